"""A loaded policy refuses what its env would never return, with the key and what is expected, and changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.support.loaded_policies import loaded, recurrent

from offbeat.algorithms.dqn import DQNConfig
from offbeat.api.playing.loaded_policy import LoadedPolicy
from offbeat.api.playing.trained import Trained
from offbeat.core.types import ActionSpec
from offbeat.envs.checking.preflight import preflight
from offbeat.models.acting import make_policy

NUMBERS = np.zeros(4, np.float32)
PLACE, FLAGS = np.zeros(3, np.float32), np.ones(5, np.int8)
TREE = {
    "card": -1,
    "place": PLACE,
    "table": (np.array([[1, 0], [0, 7]]), {"lamps": np.zeros((2, 2), np.int8), "height": 0.0}),
}


def with_value(value: float, *index: int, shape: tuple[int, ...] = (4,)) -> Any:
    numbers = np.zeros(shape)
    numbers[index] = value
    return numbers


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (with_value(np.nan, 1), r"observation has NaN or infinity.* in element \[1\]: finite numbers are expected"),
        (with_value(-np.inf, 0), r"observation has NaN or infinity.* in element \[0\]"),
        (with_value(1e300, 2), r"numbers too large for float32, in element \[2\]"),
        (with_value(np.nan, 1, 3, shape=(2, 4)), r"in row 1, element \[3\]"),
        (np.zeros(3), r"observation has shape \(3,\), but \(4,\) or \(N, 4\) is expected"),
        (np.zeros((2, 3, 4)), r"observation has shape \(2, 3, 4\), but \(4,\)"),
        (np.array(["a"] * 4), r"observation has values of dtype <U1, but numbers of shape \(4,\)"),
        ((NUMBERS, {}), r"observation is a tuple that is not an array, but shape \(4,\) .*: pass only the observation"),
        ({"a": NUMBERS}, r"observation is a dict with 'a', but one array of shape \(4,\) or"),
        (None, r"the observation is None, but an array of shape \(4,\) is expected"),
    ],
)
def test_an_observation_with_wrong_values_shape_or_dtype_is_refused(observation, message):
    with pytest.raises(ValueError, match=message):
        loaded("CartPole-v1")(observation)


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        ({**TREE, "place": with_value(np.nan, 0, shape=(3,))}, r"observation/place has NaN"),
        ({**TREE, "card": 0.5}, r"observation/card has values of dtype float64, but whole numbers are expected"),
        ({**TREE, "card": np.zeros(2, int)}, r"observation/card is a batch of 2, but observation/place is of one env"),
        ({"card": 0, "place": PLACE}, r"the observation has no 'table/0': it has 'card', 'place'"),
        (PLACE, r"the observation is one array, but a dict or tuple with 'card' is expected"),
    ],
)
def test_the_message_about_a_part_of_an_observation_names_its_key(observation, message):
    policy = loaded("zoo/TreeObservations-v0")
    policy(TREE)
    with pytest.raises(ValueError, match=message):
        policy(observation)


def test_a_mask_that_allows_nothing_is_refused_unless_there_is_nothing_to_decide():
    policy, nothing = loaded("zoo/MaskInInfo-v0"), np.zeros(5)
    with pytest.raises(ValueError, match="action_mask allows no choice of component 0 of the action: allow at least"):
        policy(PLACE, action_mask=nothing)
    with pytest.raises(ValueError, match="action_mask allows no choice of component 0 of the action in row 1"):
        policy(np.stack([PLACE, PLACE]), action_mask=np.stack([FLAGS, nothing]))
    policy(PLACE, action_mask=nothing, no_decision=True)


def test_an_explored_action_is_one_of_the_envs_where_the_mask_allows_nothing():
    env = preflight("zoo/MaskInInfo-v0")
    spec = DQNConfig(hidden_sizes=(4,)).policy_spec(replace(env, action=ActionSpec("discrete", (), nvec=(5,))))
    policy = make_policy(spec)
    policy.load(np.ones_like(policy.vector))  # epsilon is 1
    explores = LoadedPolicy(policy, Trained(env.id, "dqn", 0, 0, 0))
    random, nothing = np.random.default_rng(0), np.zeros(5)
    actions = {explores(PLACE, action_mask=nothing, no_decision=True, random=random) for _ in range(100)}
    assert actions == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("number", [np.nan, -np.inf, 0.5])
def test_a_mask_with_other_numbers_than_0_and_1_is_refused(number):
    with pytest.raises(ValueError, match="but 1 where a choice is allowed and else 0 is expected"):
        loaded("zoo/MaskInInfo-v0")(PLACE, action_mask=np.array([1, number, 1, 1, 1]))


def test_a_refused_observation_does_not_change_the_memory_of_a_policy():
    policy, other = recurrent(), recurrent()
    numbers = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    for each in (policy, other):
        each(numbers[0])
    with pytest.raises(ValueError, match="NaN"):
        policy(with_value(np.nan, 0, shape=(3,)))
    assert policy(numbers[1]) == other(numbers[1])
