"""With `frame_skip`, an env step is several steps of the env. `test_contract.py` compares such rows with Gymnasium."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from tests.support.env_rows import actions_of, assert_same, collect, plain_rows, stacked

from offbeat.config.env import EnvConfig
from offbeat.core.errors import ConfigError, EnvFailed
from offbeat.core.seeding import derive_seed
from offbeat.core.tasks import TaskSample
from offbeat.core.types import Array, Tree
from offbeat.envs.actions import action_encoder
from offbeat.envs.checking.check import check_env
from offbeat.envs.checking.preflight import preflight, preflight_world
from offbeat.envs.contract import Envs, Snapshots
from offbeat.envs.make import make_envs, single_agent_adapter, task_envs

SEED = 3
mujoco = pytest.mark.skipif(not find_spec("mujoco"), reason="needs mujoco")
envpool = pytest.mark.skipif(not find_spec("envpool"), reason="needs envpool")
TASKS = TaskSample(seed=3, train=2, test=1)


class PaysForEachStep(gym.RewardWrapper[Any, Any]):
    def reward(self, reward: Any) -> float:  # noqa: ARG002
        return 1.0


class Counter(gym.Env[Any, Any]):
    """Observes and reports the number of steps; ends after ten. Its reward is always the same array."""

    observation_space = gym.spaces.Box(0, 100, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self) -> None:
        self.count, self.pay = 0, np.array(1.0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:  # noqa: ARG002
        self.count += 1
        return np.full(1, self.count, np.float32), self.pay, self.count == 10, False, {"count": self.count}


class Pays(gym.Wrapper[Any, Any, Any, Any]):
    """Its rewards are given; then they are 1."""

    rewards: ClassVar[list[Any]] = []

    def step(self, action: Any) -> Any:
        observation, _, *ends = super().step(action)
        return observation, self.rewards.pop(0) if self.rewards else 1.0, *ends


COUNTER = f"{__name__}:Counter"
COLUMNS = "offbeat.envs.testing.recall:RecallVectorEnv"


@pytest.fixture(autouse=True, scope="module")
def _registered() -> Iterator[None]:
    gym.register("repeat/OnlyColumns-v0", entry_point=None, vector_entry_point=COLUMNS)
    yield
    del gym.registry["repeat/OnlyColumns-v0"]


def made(env_id: str, frame_skip: int, columns: int = 2, **settings: Any) -> Envs:
    return make_envs(env_id, columns, seed=SEED, settings=EnvConfig(frame_skip=frame_skip, **settings))


def played(envs: Envs, steps: int) -> Tree:
    envs.reset()
    return collect(envs, actions_of(envs, steps))


# --- rows ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", ["CartPole-v1", pytest.param("Hopper-v5", marks=mujoco)])
def test_envs_that_are_stepped_together_without_it_are_stepped_one_by_one(env_id):
    """CartPole has a vector env of its own, and the locomotion envs are computed together."""
    envs = made(env_id, 3)
    first = {name: leaf.copy() for name, leaf in envs.reset().items()}
    actions = actions_of(envs, 100)
    rows = collect(envs, actions)
    assert rows["terminated"].any()
    for column in range(2):
        seed = derive_seed(SEED, "env", 0, 0, column)
        taken = [action_encoder(envs.spec.action)(action)[column] for action in actions]
        plain_first, plain = plain_rows(env_id, seed, taken, frame_skip=3)
        assert_same({name: leaf[column] for name, leaf in first.items()}, plain_first)
        assert_same({name: part[:, column] for name, part in rows.items()}, plain)


def test_rewards_are_summed_and_all_else_is_that_of_the_last_step():
    envs = made(COUNTER, 4, columns=1, info_metrics=("count",))
    envs.reset()
    rows = []
    for action in actions_of(envs, 4):
        envs.send(action)
        outcome = envs.recv()
        parts = (outcome.observation["observation"], outcome.reward, outcome.info, outcome.terminated)
        rows.append([part.item() for part in parts])
    np.testing.assert_array_equal(rows, [[4, 4, 4, 0], [8, 4, 8, 0], [10, 2, 10, 1], [0, 0, np.nan, 0]])


@pytest.mark.parametrize(("rewards", "says"), [([None], "None"), ([1.0, None], "None"), ([1.0, 1.0, "5"], "str")])
def test_a_reward_that_is_no_number_is_reported_as_without_frame_skip(rewards, says):
    envs = made(COUNTER, 4, columns=1, wrappers=(f"{__name__}:Pays",))
    envs.reset()
    Pays.rewards[:] = rewards
    envs.send(actions_of(envs, 1)[0])
    with pytest.raises(EnvFailed, match=rf"{COUNTER}, env 0: .*the reward is {says}, not a number. In the env, return"):
        envs.recv()


def test_the_steps_are_those_of_the_env_in_its_wrappers():
    envs = made("Pendulum-v1", 4, wrappers=(f"{__name__}:PaysForEachStep",))
    assert set(played(envs, 30)["reward"].ravel()) == {4.0}


@envpool
@pytest.mark.parametrize(("name", "frame_skip", "steps"), [("CartPole-v1", 4, 120), ("Ant-v4", 3, 400)])
def test_rows_of_a_pool_equal_those_of_pools_of_one_env_repeated_by_hand(name, frame_skip, steps):
    """Episodes end in different steps of an env step, and the columns that end there are not stepped further."""
    envs = made(f"envpool:{name}", frame_skip, columns=4, info_metrics=("elapsed_step",))
    envs.reset()
    actions, encode = actions_of(envs, steps), action_encoder(envs.spec.action)
    rows = []
    for action in actions:
        envs.send(action)
        outcome = envs.recv()
        (observation,) = outcome.observation.values()
        parts = (observation, outcome.reward, outcome.terminated, outcome.truncated, outcome.info[:, 0])
        rows.append({str(index): part.copy() for index, part in enumerate(parts)})
    ends, twins = 0, []
    for column in range(4):
        seed = derive_seed(SEED, "env", 0, 0, column)
        twin = list(repeated_by_hand(name, seed, [encode(action)[[column]] for action in actions], frame_skip))
        ends += sum(bool(row["2"] or row["3"]) for row in twin)
        twins.append(stacked(twin))
    assert ends >= 4
    together = {key: np.stack([twin[key] for twin in twins], axis=1) for key in twins[0]}
    assert_same(stacked(rows), together)


def repeated_by_hand(name: str, seed: int, actions: list[Array], frame_skip: int) -> Iterator[Tree]:
    """Yield the rows of one env of EnvPool: observation, reward, terminated, truncated, and its number of steps."""
    pool = import_module("envpool").make_gymnasium(name, num_envs=1, seed=[seed])
    pool.reset()
    ended = False
    for action in actions:
        reward, resets = np.float32(0), ended
        for _ in range(1 if resets else frame_skip):
            observation, gained, terminated, truncated, info = pool.step(action)
            reward, ended = reward + np.float32(gained[0]), bool(terminated[0] or truncated[0])
            if ended:
                break
        elapsed = np.nan if resets else float(info["elapsed_step"][0])
        parts = (np.float32(observation[0]), reward, terminated[0], truncated[0] and not terminated[0], elapsed)
        yield {str(index): np.array(part) for index, part in enumerate(parts)}
    pool.close()


# --- limits and counts --------------------------------------------------------------------------------------


def longest(envs: Envs, steps: int) -> int:
    """Return the number of env steps of the first episode, which is truncated."""
    truncated = played(envs, steps)["truncated"]
    assert (truncated.argmax(axis=0) == truncated[:, 0].argmax()).all()
    return int(truncated[:, 0].argmax()) + 1


@pytest.mark.parametrize("env_id", ["Pendulum-v1", pytest.param("envpool:Pendulum-v1", marks=envpool)])
@pytest.mark.parametrize(("limit", "expected"), [(None, 67), (67, 67), (7, 7), (1000, 67)])
def test_the_time_limit_of_the_env_counts_its_own_steps_and_that_of_the_run_env_steps(env_id, limit, expected):
    """200 of its own steps are 66 env steps of three, and one of two."""
    envs = made(env_id, 3, max_episode_steps=limit)
    assert envs.spec.time_limit == expected
    assert longest(envs, 70) == expected


@pytest.mark.parametrize("env_id", ["Pendulum-v1", pytest.param("envpool:Pendulum-v1", marks=envpool)])
def test_an_evaluation_is_cut_after_env_steps(env_id):
    envs = make_envs(env_id, 2, seed=SEED, settings=EnvConfig(frame_skip=3), cut_after=9)
    assert (envs.spec.time_limit, envs.spec.cut_at, longest(envs, 12)) == (67, 9, 9)


@pytest.mark.parametrize(
    ("env_id", "frames"),
    [
        ("Pendulum-v1", 2),
        pytest.param("HalfCheetah-v5", 10, marks=mujoco),
        pytest.param("envpool:Pendulum-v1", 2, marks=envpool),
        pytest.param("envpool:HalfCheetah-v4", 10, marks=envpool),
        pytest.param("envpool:Pong-v5", 2, marks=envpool),
    ],
)
def test_frames_are_those_of_the_env_times_the_frame_skip_and_atari_games_have_no_others(env_id, frames):
    assert made(env_id, 2).spec.frame_skip == frames


# --- state, tasks, and other ways to make the env -----------------------------------------------------------


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "CartPole-v1", pytest.param("HalfCheetah-v5", marks=mujoco)])
def test_new_envs_continue_bit_for_bit_from_a_snapshot(env_id):
    envs, fresh = made(env_id, 3, max_episode_steps=50), made(env_id, 3, max_episode_steps=50)
    played(envs, 37)
    assert isinstance(envs, Snapshots)
    assert isinstance(fresh, Snapshots)
    fresh.restore(envs.snapshot())
    actions = actions_of(envs, 80, seed=1)
    assert_same(collect(envs, actions), collect(fresh, actions))


def test_envs_with_tasks_have_them_and_continue_in_them_from_a_snapshot():
    envs, fresh = with_tasks(), with_tasks()
    envs.start_tasks(np.array([0, 1]))
    fresh.restore(envs.snapshot())
    still = [np.zeros((2, *envs.spec.action.shape), np.float32)] * 3
    rows = collect(envs, still)
    assert (rows["reward"][:, 0] != rows["reward"][:, 1]).all()
    assert_same(collect(fresh, still), rows)


def with_tasks() -> Any:
    settings = EnvConfig(frame_skip=2)
    return task_envs(make_envs("offbeat/PointRobot-v0", 2, seed=SEED, settings=settings, tasks=TASKS))


def test_a_curriculum_sets_the_parameters_of_the_env():
    envs = made("Pendulum-v1", 2, curriculum=("g 0:3 1:5",))
    plain = made("Pendulum-v1", 2)
    envs.set_progress(0.0)
    assert not np.array_equal(played(envs, 5)["reward"], played(plain, 5)["reward"])


class Pictures(Counter):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 40}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        self.render_mode = render_mode

    def render(self) -> Any:
        return np.zeros((8, 8, 3), np.uint8)


def test_single_and_rendered_envs_repeat_actions():
    env_id, settings = f"{__name__}:Pictures", EnvConfig(frame_skip=4)
    adapter = single_agent_adapter(env_id)
    for env in (adapter.make_single(env_id, settings), adapter.make_renderable(env_id, settings, "rgb_array")):
        env.reset(seed=0)
        assert env.step(0)[-1] == {"count": 4}
        assert env.metadata["render_fps"] == 10, "one image per env step"
    assert Pictures.metadata["render_fps"] == 40


def test_check_steps_the_env_with_it():
    """Ten steps are three env steps of four."""
    endless = [
        any("no episode ended" in found.problem for found in check_env(COUNTER, 1, 5, EnvConfig(frame_skip=frame_skip)))
        for frame_skip in (1, 4)
    ]
    assert endless == [True, False]


# --- refusals -----------------------------------------------------------------------------------------------


def test_an_env_with_only_a_vector_env_is_refused():
    with pytest.raises(ConfigError, match="has only a vector env, which cannot repeat actions: leave frame_skip out"):
        preflight("repeat/OnlyColumns-v0", EnvConfig(frame_skip=2))
    assert preflight("repeat/OnlyColumns-v0", EnvConfig(frame_skip=1)).frame_skip == 1


WORLDS = [
    "offbeat.envs.testing.games:Nim",
    pytest.param(
        "pettingzoo:mpe2/simple_spread_v3", marks=pytest.mark.skipif(not find_spec("mpe2"), reason="needs mpe2")
    ),
    pytest.param("openspiel:kuhn_poker", marks=pytest.mark.skipif(not find_spec("pyspiel"), reason="needs open_spiel")),
]


@pytest.mark.parametrize("env_id", WORLDS)
@pytest.mark.parametrize("refuse", [preflight_world, check_env])
def test_worlds_are_refused(env_id, refuse):
    with pytest.raises(ConfigError, match=f"frame_skip is 4, which is not supported by {env_id}: only envs with one a"):
        refuse(env_id, settings=EnvConfig(frame_skip=4))


class Masked(Counter):
    """Allows the choices 0 and 1 by turns."""

    def step(self, action: Any) -> Any:
        if action != self.count % 2:
            raise ValueError(f"choice {action} is not allowed")
        *parts, _ = super().step(action)
        return *parts, {"action_mask": np.eye(2)[self.count % 2]}

    def reset(self, **arguments: Any) -> Any:
        return super().reset(**arguments)[0], {"action_mask": np.eye(2)[0]}


def test_an_env_with_action_masks_is_refused_because_a_mask_holds_for_one_step():
    assert preflight(f"{__name__}:Masked").mask == "action_mask"
    with pytest.raises(ConfigError, match=r"frame_skip is 2, but .*:Masked has action masks, and a mask holds for one"):
        preflight(f"{__name__}:Masked", EnvConfig(frame_skip=2))
