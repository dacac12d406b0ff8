"""A loaded policy that infers its task: what is observed changes the following episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.support.trials import ROBOT, TRIALS, played, policy_for, sampled_tests

from offbeat.algorithms.sac_config import SACConfig
from offbeat.api.playing.loaded_policy import LoadedPolicy
from offbeat.api.playing.trained import Trained
from offbeat.api.watch import watch
from offbeat.core.seeding import stream
from offbeat.core.types import INFO_MASK, ActionSpec, Leaf
from offbeat.envs.checking.preflight import preflight
from offbeat.envs.meta.point_robot import PointRobot
from offbeat.models.acting import make_policy
from offbeat.models.published import published_layout
from offbeat.models.spec import ContextEncoderSpec, PolicySpec

THREE, ONES = np.zeros((3, 2)), np.ones(3)
"""Observations or actions of three envs, and rewards."""


def loaded() -> LoadedPolicy:
    return LoadedPolicy(policy_for(ROBOT), Trained(ROBOT, "pearl", 0, 0, 0, trials=TRIALS))


def episode(policy: LoadedPolicy, env: PointRobot, *, observes: bool = True) -> float:
    """Play an episode whose start the policy knows, and return its return."""
    observation, _ = env.reset()
    total = 0.0
    for _ in range(20):
        action = policy(observation)
        following, reward, *_ = env.step(action)
        if observes:
            policy.observe(observation, action, reward, following)
        observation, total = following, total + reward
    return total


def test_a_trial_by_hand_has_the_returns_of_the_evaluation() -> None:
    policy, env = loaded(), PointRobot()
    env.set_task(sampled_tests(PointRobot)[0])
    policy.reset_task(stream(3, "trials", 0))
    returns = []
    for _ in range(TRIALS.prior_episodes):
        policy.reset(prior=True)
        returns.append(episode(policy, env))
    policy.reset()
    returns.append(episode(policy, env))
    adaptation = played(policy.acting_policy, ROBOT, 1, seed=3).adaptation
    assert adaptation is not None
    np.testing.assert_allclose(returns, adaptation[0], rtol=1e-4)


def test_what_was_observed_counts_from_the_next_episode_on_and_until_the_task_is_forgotten() -> None:
    policy, env, zero = loaded(), PointRobot(), np.zeros(2, np.float32)
    env.set_task(np.array([0.5, 0.5]))
    policy.reset_task(stream(0, "a"))
    before = policy(zero)
    policy.observe(zero, before, -3.0, zero)
    np.testing.assert_array_equal(policy(zero), before)
    policy.reset_task(stream(0, "a"))
    np.testing.assert_array_equal(policy(zero), before)
    policy.reset_task(stream(0, "a"))
    policy.observe(zero, before, -3.0, zero)
    policy.reset()
    assert not np.array_equal(policy(zero), before)


def test_each_env_of_a_batch_has_its_own_context() -> None:
    policy, zeros = loaded(), np.zeros((3, 2), np.float32)
    policy.reset_task()
    first = policy(zeros)
    assert len(np.unique(first, axis=0)) == 3, "each env has its own task variable"
    policy.observe(zeros, first, np.full(3, -1.0), zeros, where=np.array([False, True, False]))
    policy.reset([False, True, False])
    second = policy(zeros)
    assert (first == second).all(axis=1).tolist() == [True, False, True]


def test_an_action_of_the_env_is_recorded_as_in_training() -> None:
    policy = loaded()
    recorded = np.array([[-1.0, 0.5]], np.float32)
    np.testing.assert_allclose(policy.acting_policy.to_env.inverse(policy.encode(recorded)), recorded, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros(3), np.zeros(2), 0.0, np.zeros(2)), r"observation has shape \(3,\)"),
        ((np.zeros(2), np.zeros(3), 0.0, np.zeros(2)), r"the action has shape \(3,\), but \(2,\) is expected"),
        ((np.zeros(2), np.array([0, np.nan]), 0.0, np.zeros(2)), r"action has NaN .* in element \[1\]: finite numbers"),
        ((np.zeros(2), np.zeros(2), np.nan, np.zeros(2)), "reward is nan, but finite numbers of float32 are expected"),
        ((np.zeros(2), np.zeros(2), 1e300, np.zeros(2)), r"reward is 1e\+300, but finite numbers of float32"),
        ((np.zeros((3, 2)), np.zeros((3, 2)), [1.0], np.zeros((3, 2))), r"reward has shape \(1,\), but \(3,\) is"),
        ((THREE, np.zeros((5, 2)), ONES, THREE), "observation is a batch of 3, but action is a batch of 5"),
        ((THREE, THREE, ONES, np.zeros((2, 2))), "observation is a batch of 3, but next_observation is a batch of 2"),
        ((THREE, THREE, ONES, np.zeros(2)), "observation is a batch of 3, but next_observation is of one env"),
        ((np.zeros(2), np.zeros(2), 1.0, THREE), "observation is of one env, but next_observation is a batch of 3"),
    ],
)
def test_observing_what_the_env_does_not_return_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        loaded().observe(*arguments)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (-2, r"action is \[-2\], which is not one of the choices .*: whole numbers from -1 to 1 are expected"),
        (2, "whole numbers from -1 to 1"),
        (0.6, "action has values of dtype float64, but whole numbers are expected"),
    ],
)
def test_observing_an_action_that_is_not_one_of_the_choices_is_refused(action: float, message: str) -> None:
    spec = PolicySpec(
        (Leaf("observation", (2,), "float32"),), ActionSpec("discrete", (), (3,), (-1,)), (8,), "relu", "categorical",
        False, context_encoder=ContextEncoderSpec(2, (5,)),
    )  # fmt: skip
    policy = LoadedPolicy(make_policy(spec), Trained("Levers-v0", "pearl", 0, 0, 0, trials=TRIALS))
    policy.observe(np.zeros(2), 1, 0.0, np.zeros(2))
    with pytest.raises(ValueError, match=message):
        policy.observe(np.zeros(2), action, 0.0, np.zeros(2))
    policy.reset_task()
    with pytest.raises(ValueError, match="observation is a batch of 3, but action is of one env"):
        policy.observe(THREE, 1, ONES, THREE)


def test_task_variables_from_the_prior_do_not_depend_on_what_is_observed_before_the_first_action() -> None:
    policy, zero = loaded(), np.zeros(2, np.float32)
    first = []
    for observed in (False, True):
        policy.reset_task(stream(0, "a"))
        policy.reset(prior=True)
        if observed:
            policy.observe(zero, zero, -3.0, zero)
        first.append(policy(zero))
    np.testing.assert_array_equal(*first)


def test_a_transition_is_observed_without_the_action_mask_of_its_observation() -> None:
    leaves = (Leaf("observation", (2,), "float32"), Leaf(INFO_MASK, (3,), "bool"))
    encoder = ContextEncoderSpec(2, (5,))
    action = ActionSpec("discrete", (), (3,))
    spec = PolicySpec(leaves, action, (8,), "relu", "categorical", False, context_encoder=encoder)
    policy = LoadedPolicy(make_policy(spec), Trained("Masked-v0", "pearl", 0, 0, 0, trials=TRIALS))
    policy.acting_policy.load(stream(0, "weights").normal(0, 0.3, published_layout(spec).size).astype(np.float32))
    zeros, masks = np.zeros((99, 2), np.float32), np.ones((99, 3), np.int8)
    first = policy(zeros, action_mask=masks, random=stream(0, "actions"))
    policy.observe(zeros, first, np.ones(99), zeros)
    policy.reset()
    assert (policy(zeros, action_mask=masks, random=stream(0, "actions")) != first).any()


def test_another_number_of_envs_is_refused_until_the_task_is_forgotten() -> None:
    policy = loaded()
    policy(np.zeros((3, 2), np.float32))
    policy.reset()
    with pytest.raises(ValueError, match=r"2 observations are given, but the policy knows the tasks of 3 envs"):
        policy(np.zeros((2, 2), np.float32))
    policy.reset_task()
    assert policy(np.zeros((2, 2), np.float32)).shape == (2, 2)


def test_flags_of_another_number_of_envs_are_refused() -> None:
    policy, zeros = loaded(), np.zeros((3, 2), np.float32)
    policy.observe(zeros, zeros, np.zeros(3), zeros)
    with pytest.raises(ValueError, match=r"ended has shape \(2,\), but \(3,\) is expected"):
        policy.reset([True, False])
    with pytest.raises(ValueError, match=r"where has shape \(1,\), but \(3,\) is expected"):
        policy.observe(zeros, zeros, np.zeros(3), zeros, where=[True])


def test_a_policy_that_infers_no_task_refuses_to_observe() -> None:
    spec = SACConfig(hidden_sizes=(4,)).policy_spec(preflight(ROBOT))
    policy = LoadedPolicy(make_policy(spec), Trained(ROBOT, "sac", 0, 0, 0))
    with pytest.raises(TypeError, match="this policy of sac does not infer its task"):
        policy.reset_task()


# --- watch --------------------------------------------------------------------------------------------------


def test_watch_shows_all_episodes_of_a_trial_in_the_test_task_that_the_seed_names(tmp_path: Path) -> None:
    policy = loaded()
    shown = watch({"default": policy}, seed=0, video=tmp_path / "trial.gif")
    adaptation = played(policy.acting_policy, ROBOT, 1, seed=0).adaptation
    assert adaptation is not None
    np.testing.assert_allclose([*shown.earlier_returns, shown.returns["default"]], adaptation[0], rtol=1e-4)
    assert (shown.length, shown.cut) == (60, False)
    with Image.open(tmp_path / "trial.gif") as video:
        assert getattr(video, "n_frames", 1) > 40  # equal frames in a row are one

    other = LoadedPolicy(policy_for(ROBOT, zero=True), policy.trained)
    goal = sampled_tests(PointRobot)[6 % 4]
    assert watch({"default": other}, seed=6, video=tmp_path / "other.gif").returns["default"] == pytest.approx(
        -20 * np.linalg.norm(goal)
    )


def test_watch_cuts_a_trial_in_the_episode_in_which_the_limit_is_reached(tmp_path: Path) -> None:
    shown = watch({"default": loaded()}, seed=0, video=tmp_path / "trial.gif", max_steps=30)
    assert (len(shown.earlier_returns), shown.length, shown.cut) == (1, 30, True)
