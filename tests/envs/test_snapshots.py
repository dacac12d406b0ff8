from __future__ import annotations

import json
from importlib.util import find_spec

import gymnasium as gym
import numpy as np
import pytest
from tests.sample_envs import curious_envs  # noqa: F401 - registers its envs
from tests.sample_envs.env_zoo import DictObservations, OwnGenerator, OwnSnapshots, zoo_id
from tests.support.env_rows import actions_of, assert_same, collect

from offbeat.core.errors import ConfigError
from offbeat.core.saved_state import saved_and_loaded
from offbeat.envs.contract import Snapshots
from offbeat.envs.make import make_envs
from offbeat.envs.space_generators import seed_spaces

CLASSIC = ["CartPole-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1"]
MUJOCO = ["HalfCheetah-v5", "InvertedDoublePendulum-v5", "Pusher-v5", "Reacher-v5", "Swimmer-v5", "Walker2d-v5"]
"""The others are restored in adapters/test_mujoco_columns.py."""
KNOWN = [f"offbeat/{name}-v0" for name in ("ChainTruncates", "ChainTerminates", "FailsOnLastStep", "OneStep")]
QUESTIONS = [f"offbeat/{name}-v0" for name in ("Recall", "Pixels", "PixelsMotion", "PixelsGoal")]
needs_mujoco = pytest.mark.skipif(not find_spec("mujoco"), reason="needs mujoco")
SUPPORTED = [
    *CLASSIC,
    *KNOWN,
    *QUESTIONS,
    zoo_id(OwnSnapshots),
    zoo_id(OwnGenerator),
    "curious/Sampling-v0",
    *(pytest.param(env_id, marks=needs_mujoco) for env_id in MUJOCO),
]


@pytest.mark.parametrize("env_id", SUPPORTED)
def test_new_envs_continue_bit_for_bit_from_a_snapshot_in_mid_episode(env_id: str) -> None:
    envs = make_envs(env_id, 3, seed=5)
    envs.reset()
    actions = actions_of(envs, 97 if env_id in MUJOCO else 337)
    collect(envs, actions[:37])
    assert isinstance(envs, Snapshots)
    state = saved_and_loaded(envs.snapshot())
    expected = collect(envs, actions[37:])

    fresh = make_envs(env_id, 3, seed=99)
    assert isinstance(fresh, Snapshots)
    fresh.restore(state)
    assert_same(collect(fresh, actions[37:]), expected)


@pytest.mark.parametrize("env_id", ["curious/Sampling-v0", "curious/SamplingShared-v0"])
def test_what_an_env_samples_from_spaces_of_its_class_or_module_does_not_depend_on_other_envs(env_id: str) -> None:
    alone, beside, other = (make_envs(env_id, 2, seed=seed) for seed in (5, 5, 6))
    for envs in (alone, beside, other):
        envs.reset()
    actions = actions_of(alone, 20)
    expected = collect(alone, actions)
    collect(other, actions)
    assert_same(collect(beside, actions), expected)


def test_spaces_have_other_seeds_than_each_other_and_than_their_env() -> None:
    env = gym.make("curious/Sampling-v0")
    env.reset(seed=5)
    seed_spaces(env, 5)
    generators = [env.unwrapped.np_random, env.action_space.np_random, env.observation_space.np_random]
    assert len({generator.bit_generator.random_raw() for generator in generators}) == 3


@pytest.mark.parametrize("env_id", ["CartPole-v1", "offbeat/OneStep-v0", "offbeat/FailsOnLastStep-v0", *QUESTIONS])
def test_a_snapshot_right_after_an_episode_end_includes_the_pending_reset(env_id: str) -> None:
    envs = make_envs(env_id, 3, seed=5)
    envs.reset()
    actions = actions_of(envs, 120)
    step = 0
    while True:
        rows = collect(envs, actions[step : step + 1])
        step += 1
        if (rows["terminated"] | rows["truncated"]).any():
            break
    assert isinstance(envs, Snapshots)
    state = envs.snapshot()
    expected = collect(envs, actions[step:])
    assert not expected["valid"][0].all()
    fresh = make_envs(env_id, 3, seed=99)
    assert isinstance(fresh, Snapshots)
    fresh.restore(state)
    assert_same(collect(fresh, actions[step:]), expected)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "offbeat/ChainTruncates-v0"])
def test_envs_with_groups_are_restored_from_a_snapshot(env_id: str) -> None:
    envs = make_envs(env_id, 4, seed=5, groups=2)
    envs.reset()
    actions = actions_of(envs, 60)
    collect(envs, actions[:20])
    assert isinstance(envs, Snapshots)
    state = envs.snapshot()
    expected = collect(envs, actions[20:])
    envs.restore(state)
    assert_same(collect(envs, actions[20:]), expected)


def test_further_steps_do_not_change_a_snapshot() -> None:
    envs = make_envs("CartPole-v1", 3, seed=5)
    envs.reset()
    assert isinstance(envs, Snapshots)
    state = envs.snapshot()
    kept = json.dumps(state, default=lambda array: array.tolist())
    collect(envs, actions_of(envs, 30))
    assert json.dumps(state, default=lambda array: array.tolist()) == kept


def test_the_last_observations_are_restored() -> None:
    envs = make_envs("Pendulum-v1", 3, seed=5)
    envs.reset()
    last = collect(envs, actions_of(envs, 9))["observation"][-1]
    fresh = make_envs("Pendulum-v1", 3, seed=6)
    assert isinstance(envs, Snapshots)
    assert isinstance(fresh, Snapshots)
    fresh.restore(envs.snapshot())
    np.testing.assert_array_equal(fresh._rows.observation["observation"], last)  # type: ignore[attr-defined]


def test_envs_without_a_known_state_do_not_support_snapshots() -> None:
    assert not isinstance(make_envs(zoo_id(DictObservations), 2, seed=0), Snapshots)


@pytest.mark.parametrize(
    ("env_id", "columns", "groups"), [("CartPole-v0", 4, 1), ("CartPole-v1", 2, 1), ("CartPole-v1", 4, 2)]
)
def test_a_snapshot_of_other_envs_is_refused(env_id: str, columns: int, groups: int) -> None:
    taken = make_envs("CartPole-v1", 4, seed=0)
    taken.reset()
    other = make_envs(env_id, columns, seed=0, groups=groups)
    assert isinstance(taken, Snapshots)
    assert isinstance(other, Snapshots)
    with pytest.raises(ConfigError, match="the snapshot is of"):
        other.restore(taken.snapshot())
