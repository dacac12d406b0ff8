"""Locomotion envs whose columns are computed together give the rows of Gymnasium's own `step`, bit for bit."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.typing import NDArray

from offbeat.config.curriculum import parameters
from offbeat.config.env import EnvConfig
from offbeat.core.errors import EnvFailed
from offbeat.core.frozen_table import PlainTable
from offbeat.core.seeding import derive_seed
from offbeat.envs.adapters.gymnasium.mujoco_columns import stepped_together
from offbeat.envs.contract import Envs, Outcome, Snapshots
from offbeat.envs.make import make_envs

pytestmark = [
    pytest.mark.skipif(not find_spec("mujoco"), reason="needs mujoco"),
    pytest.mark.filterwarnings("ignore:WARNING. compiler attribute", "ignore:.*deprecated"),
]
ENVS = ["HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Swimmer-v5", "Humanoid-v5"]
SEED, COLUMNS, LIMIT = 7, 3, 45


def single(env_id: str, **arguments: Any) -> gym.Env[Any, Any]:
    return gym.make(env_id, disable_env_checker=True, **arguments)


def without_checks(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Return the env without the outer wrapper that checks the order of calls, as the adapter makes it."""
    entry = env.unwrapped.spec
    assert entry is not None
    entry.order_enforce = False
    return gym.make(entry, disable_env_checker=True)


def actions_of(env: gym.Env[Any, Any], steps: int) -> NDArray[np.float32]:
    """Return random actions, [steps, columns, *shape]: small ones first, so that some episodes last to the limit."""
    space: Any = env.action_space
    random = np.random.default_rng(SEED)
    scale = np.linspace(0.1, 1.0, steps)[:, None, None] * space.high
    return (random.uniform(-1, 1, (steps, COLUMNS, *space.shape)) * scale).astype(np.float32)


def compare(outcome: Outcome, column: int, expected: tuple[Any, Any, bool, bool]) -> None:
    """Require one row to have exactly these values, as float32."""
    observation, reward, terminated, truncated = expected
    assert outcome.observation["observation"][column].tobytes() == observation.astype(np.float32).tobytes()
    assert outcome.reward[column].tobytes() == np.float32(reward).tobytes()
    assert (outcome.terminated[column], outcome.truncated[column]) == (terminated, truncated and not terminated)


@pytest.mark.parametrize("env_id", ENVS)
def test_rows_are_those_of_gymnasium_bit_for_bit(env_id: str) -> None:
    envs = make_envs(env_id, COLUMNS, seed=SEED, settings=EnvConfig(max_episode_steps=LIMIT))
    plain = [single(env_id, max_episode_steps=LIMIT) for _ in range(COLUMNS)]
    assert stepped_together([without_checks(env) for env in plain], (), ()), "no record"
    first = [env.reset(seed=derive_seed(SEED, "env", 0, 0, column))[0] for column, env in enumerate(plain)]
    assert envs.reset()["observation"].tobytes() == np.stack(first).astype(np.float32).tobytes()
    over, ends = [False] * COLUMNS, 0
    for actions in actions_of(plain[0], 110):
        envs.send(actions)
        outcome = envs.recv()
        for column, env in enumerate(plain):
            assert outcome.valid[column] != over[column]
            if over[column]:
                expected: Any = (env.reset()[0], 0.0, False, False)
            else:
                *expected, _ = env.step(actions[column])
            compare(outcome, column, tuple(expected))
            over[column] = expected[2] or expected[3]
            ends += over[column]
    assert ends >= COLUMNS  # every column was reset in the loop
    envs.close()


@pytest.mark.filterwarnings("ignore:Nan, Inf or huge value")
@pytest.mark.parametrize("env_id", ENVS)
def test_rows_where_mujoco_resets_a_diverged_simulation_are_those_of_gymnasium(
    monkeypatch: pytest.MonkeyPatch, env_id: str
) -> None:
    plain: Any = single(env_id)

    def reset_model(env: Any) -> Any:
        env.set_state(env.init_qpos, np.full_like(env.init_qvel, 1e11))
        return env._get_obs()

    monkeypatch.setattr(type(plain.unwrapped), "reset_model", reset_model)
    envs = make_envs(env_id, 2, seed=SEED)
    envs.reset()
    plain.reset()
    actions = actions_of(plain, 5)[-1, :2]
    envs.send(actions)
    outcome = envs.recv()
    for column in range(2):
        plain.reset()
        *expected, _ = plain.step(actions[column])
        assert not plain.unwrapped.data.ctrl.any()  # it was reset
        compare(outcome, column, tuple(expected))
    envs.close()


@pytest.mark.parametrize("env_id", ["Hopper-v5", "Ant-v5", "Humanoid-v5"])
def test_restored_columns_continue_bit_for_bit(env_id: str) -> None:
    envs, restored = (make_envs(env_id, COLUMNS, seed=seed) for seed in (SEED, SEED + 1))
    assert isinstance(envs, Snapshots)
    assert isinstance(restored, Snapshots)
    envs.reset()
    restored.reset()
    steps = actions_of(single(env_id), 60)
    run(envs, steps[:30])
    restored.restore(envs.snapshot())
    assert run(envs, steps[30:]) == run(restored, steps[30:])


def run(envs: Envs, steps: NDArray[np.float32]) -> bytes:
    """Return the bytes of all rows of these steps."""
    rows = []
    for actions in steps:
        envs.send(actions)
        outcome = envs.recv()
        rows.append(outcome.observation["observation"].tobytes() + outcome.reward.tobytes())
    return b"".join(rows)


class OwnReward(gym.RewardWrapper[Any, Any]):
    def reward(self, reward: Any) -> Any:
        return 2 * reward


class OwnLimit(gym.wrappers.TimeLimit[Any, Any]):
    """A subclass, whose `step` may be another."""


@pytest.mark.parametrize(
    "settings",
    [EnvConfig(curriculum=("_ctrl_cost_weight 0:0.1 1:0.2",)), EnvConfig(info_metrics=("x_velocity",))],
)
def test_single_envs_and_settings_that_need_gymnasiums_own_step_get_it(settings: EnvConfig) -> None:
    envs = [without_checks(single("HalfCheetah-v5")) for _ in range(2)]
    assert stepped_together(envs, (), ())
    assert stepped_together(envs, parameters(settings.curriculum), settings.info_metrics) is None
    assert stepped_together(envs[:1], (), ()) is None


def test_arguments_wrappers_subclasses_and_functions_get_gymnasiums_own_step() -> None:
    from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv

    class Own(HalfCheetahEnv):
        def control_cost(self, action: Any) -> Any:
            return 0.0 * super().control_cost(action)

    gym.register("columns/Own-v0", Own)
    gym.register("columns/Heavy-v0", HalfCheetahEnv, kwargs={"ctrl_cost_weight": 5.0})
    made: Any = lambda: HalfCheetahEnv(exclude_current_positions_from_observation=False)  # noqa: E731
    gym.register("columns/Made-v0", made)
    try:
        refused = [
            without_checks(single("HalfCheetah-v5", ctrl_cost_weight=5.0)),
            without_checks(single("columns/Own-v0")),
            without_checks(single("columns/Heavy-v0")),
            without_checks(single("columns/Made-v0")),
            HalfCheetahEnv(ctrl_cost_weight=5.0),
            OwnReward(without_checks(single("HalfCheetah-v5"))),
            OwnLimit(without_checks(single("HalfCheetah-v5")), 9),
        ]
    finally:
        for name in ("Own", "Heavy", "Made"):
            del gym.registry[f"columns/{name}-v0"]
    assert [stepped_together([env, env], (), ()) for env in refused] == [None] * 7


def test_an_argument_changes_the_reward_as_in_gymnasium() -> None:
    envs = make_envs("HalfCheetah-v5", 2, seed=SEED, settings=EnvConfig(kwargs=PlainTable({"ctrl_cost_weight": 5.0})))
    plain = single("HalfCheetah-v5", ctrl_cost_weight=5.0)
    plain.reset(seed=derive_seed(SEED, "env", 0, 0, 0))
    envs.reset()
    action = np.full((2, 6), 0.5, np.float32)
    envs.send(action)
    assert envs.recv().reward[0] == np.float32(plain.step(action[0])[1])


def test_another_version_of_gymnasium_keeps_its_own_step(monkeypatch: pytest.MonkeyPatch) -> None:
    env = without_checks(single("HalfCheetah-v5"))
    monkeypatch.setattr(gym, "__version__", "1.5.0")
    assert stepped_together([env, env], (), ()) is None


def test_a_reset_that_fails_names_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    from gymnasium.envs.mujoco.hopper_v5 import HopperEnv

    envs = make_envs("Hopper-v5", 2, seed=SEED, settings=EnvConfig(max_episode_steps=1))
    envs.reset()
    envs.send(np.zeros((2, 3), np.float32))
    assert envs.recv().truncated.all()
    calls = iter([np.zeros(11)])
    monkeypatch.setattr(HopperEnv, "reset_model", lambda _env: next(calls))
    envs.send(np.zeros((2, 3), np.float32))
    with pytest.raises(EnvFailed, match="Hopper-v5, env 1: reset"):
        envs.recv()


def test_a_reward_that_is_not_finite_is_refused_with_its_column() -> None:
    envs = make_envs("HalfCheetah-v5", 2, seed=SEED)
    envs.reset()
    actions = np.zeros((2, 6), np.float32)
    actions[1] = np.nan
    envs.send(actions)
    with pytest.raises(EnvFailed, match=r"env 1: .*reward"):
        envs.recv()
