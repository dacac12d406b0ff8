"""Observations have the previous action and reward of each column: as computed row by row from what was sent."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from gymnasium import spaces
from tests.sample_envs import curious_envs, remembering_envs  # noqa: F401 - they register their envs
from tests.sample_envs.env_zoo import DictActions, Switches, TableOfChoices, TupleActions, Unbounded, zoo_id
from tests.sample_envs.labelled_world import LIVES
from tests.support.env_rows import actions_of, assert_same, collect

from offbeat.api.playing.inputs import flattened
from offbeat.config.env import EnvConfig
from offbeat.core.errors import ConfigError
from offbeat.core.seeding import stream
from offbeat.core.tasks import TaskSample
from offbeat.core.types import Array, EnvSpec, Leaf, Tree
from offbeat.envs.actions import action_encoder
from offbeat.envs.checking.preflight import preflight_world
from offbeat.envs.contract import Envs, Snapshots, TaskEnvs
from offbeat.envs.make import make_envs, task_envs
from offbeat.envs.previous_inputs import spec_with_previous_inputs
from offbeat.envs.spaces import action_spec
from offbeat.envs.worlds.make import make_worlds

BOTH = EnvConfig(previous_action=True, previous_reward=True)
WAITING = "curious/Waiting-v0"
IDS = [
    *("CartPole-v1", "memory/Side-v0", "offbeat/OneStep-v0", "offbeat/PixelsGoal-v0"),
    *map(zoo_id, (DictActions, TupleActions, Switches, TableOfChoices, Unbounded)),
]
WORLD = "tests.sample_envs.labelled_world:Labelled"
COLUMNS, STEPS = 4, 80


def made(env_id: str, settings: EnvConfig = BOTH, **arguments: int) -> Envs:
    return make_envs(env_id, COLUMNS, settings=settings, **{"seed": 3, **arguments})  # type: ignore[arg-type]


def world_columns(groups: int = 1) -> Envs:
    spec = preflight_world(WORLD, BOTH)
    assert spec is not None
    return make_worlds(spec, 2, {"all": tuple(LIVES)}, seed=3, settings=BOTH, groups=groups).envs["all"]


def expected_rows(envs: Envs, actions: list[Array], rows: Tree) -> Iterator[tuple[Tree, Array]]:
    """Yield the previous actions, as the env got them, by leaf, and the previous rewards; NaN where there is none."""
    encode = action_encoder(envs.spec.action)
    columns = envs.spec.columns
    action: Tree = {}
    reward = np.zeros(columns, np.float32)
    for step, sent in enumerate(actions):
        given = {name: np.asarray(part, np.float64) for name, part in flattened("previous_action", encode(sent))}
        action = action or {name: np.full(part.shape, np.nan) for name, part in given.items()}
        for column in range(columns):
            waits = "no_decision" in rows and rows["no_decision"][step, column]
            for name, part in given.items():
                if not waits:
                    action[name][column] = part[column] if rows["valid"][step, column] else np.nan
            if rows["valid"][step, column]:
                reward[column] = rows["reward"][step, column]
            else:
                reward[column] = reward[column] + rows["reward"][step, column] if waits else 0
        yield {name: part.copy() for name, part in action.items()}, reward.copy()


def as_env_action(leaf: Leaf, stored: Array) -> Array:
    """Return what a leaf [N, *shape] says of the env's actions; NaN where it is 0, which is no action."""
    if not leaf.choices:
        return stored.astype(np.float64)
    return np.where(stored == 0, np.nan, stored + np.array(leaf.start).reshape(leaf.shape))


def check(envs: Envs, *, together: bool = False) -> Tree:
    first = envs.reset()
    names = [leaf for leaf in envs.spec.observation if leaf.is_previous]
    assert all(not first[leaf.name].any() for leaf in names)
    actions = actions_of(envs, STEPS)
    rows = collect(envs, actions, together=together)
    for step, (action, reward) in enumerate(expected_rows(envs, actions, rows)):
        np.testing.assert_array_equal(rows["previous_reward"][step], reward)
        for leaf in names[:-1]:
            none_is_zero = np.nan_to_num(action[leaf.name]) if not leaf.choices else action[leaf.name]
            np.testing.assert_allclose(as_env_action(leaf, rows[leaf.name][step]), none_is_zero, rtol=1e-6)
    assert (~rows["valid"]).any()
    return rows


@pytest.mark.parametrize(("env_id", "groups"), [*((env_id, 1) for env_id in IDS), (IDS[0], 2), (IDS[-1], 2)])
def test_the_inputs_are_those_of_the_row_before_and_zero_at_the_start_of_an_episode(env_id, groups):
    check(made(env_id, groups=groups), together=groups == 2)


@pytest.mark.parametrize("groups", [1, 2])
def test_the_inputs_of_an_agent_start_with_its_own_episode_in_a_world(groups):
    rows = check(world_columns(groups))
    assert rows["no_decision"].any()


def test_a_reward_without_a_decision_is_added_to_that_of_the_last_decision():
    rows = check(made(WAITING))
    assert set(np.unique(rows["previous_reward"])) == {0.0, 1.0, 2.0, 3.0}  # three rows after each decision


def test_an_action_has_a_leaf_for_each_part_with_the_names_and_numbers_of_the_env():
    def leaves(env_id: str) -> list[Leaf]:
        return [leaf for leaf in made(env_id).spec.observation if leaf.is_previous]

    reward = Leaf("previous_reward", (), "float32")
    assert leaves("CartPole-v1") == [Leaf("previous_action", (), "uint8", (3,), (-1,)), reward]
    assert leaves("memory/Side-v0") == [Leaf("previous_action", (1,), "float32"), reward]
    assert leaves(zoo_id(DictActions)) == [
        Leaf("previous_action/aim", (2,), "float32"),
        Leaf("previous_action/gear", (), "uint8", (4,), (0,)),
        Leaf("previous_action/tools/0", (2,), "uint8", (3, 3), (-1, -1)),
        Leaf("previous_action/tools/1", (1, 2), "float32"),
        reward,
    ]


def test_parts_of_an_action_with_the_same_name_are_refused():
    space = spaces.Dict({"a": spaces.Dict({"b": spaces.Discrete(2)}), "a/b": spaces.Discrete(3)})
    spec = EnvSpec("Test-v0", (Leaf("observation", (1,), "float32"),), action_spec(space, "Test-v0"), columns=1)
    with pytest.raises(ConfigError, match="two parts of its actions with the same name"):
        spec_with_previous_inputs(spec, BOTH)
    assert len(spec_with_previous_inputs(spec, EnvConfig(previous_reward=True)).observation) == 2


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (EnvConfig(), []),
        (EnvConfig(previous_action=True), ["previous_action"]),
        (EnvConfig(previous_reward=True), ["previous_reward"]),
        (BOTH, ["previous_action", "previous_reward"]),
    ],
)
def test_only_the_inputs_that_are_asked_for_are_leaves(settings, names):
    envs = made("CartPole-v1", settings)
    assert [leaf.name for leaf in envs.spec.observation] == ["observation", *names]
    assert list(envs.reset()) == ["observation", *names]


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", WAITING])
def test_a_snapshot_has_the_inputs(env_id):
    envs, fresh = made(env_id, groups=2), made(env_id, groups=2, seed=9)
    assert isinstance(envs, Snapshots)
    assert isinstance(fresh, Snapshots)
    envs.reset()
    collect(envs, actions_of(envs, 7))
    fresh.restore(envs.snapshot())
    actions = actions_of(envs, 30, seed=1)
    assert_same(collect(envs, actions), collect(fresh, actions))


def test_envs_without_snapshots_have_none_with_the_inputs_either():
    assert not isinstance(made("zoo/TreesVector-v0"), Snapshots)


def test_random_steps_before_a_run_leave_the_inputs_at_zero():
    envs = made("CartPole-v1")
    envs.reset()
    advanced = envs.advance(np.array([3, 1, 0, 2]), stream(0, "advance"))
    assert not advanced.observation["previous_action"].any()
    assert not advanced.observation["previous_reward"].any()


def test_an_env_with_tasks_starts_each_task_without_previous_inputs():
    envs = make_envs("offbeat/PointRobot-v0", COLUMNS, seed=3, settings=BOTH, tasks=TaskSample(0, 3, 2))
    plain = make_envs("offbeat/PointRobot-v0", COLUMNS, seed=3, tasks=TaskSample(0, 3, 2))
    assert isinstance(envs, TaskEnvs)
    assert isinstance(envs, Snapshots) == isinstance(plain, Snapshots)
    envs.reset(), collect(envs, actions_of(envs, 3))
    first = task_envs(envs).start_tasks(np.array([4, 0, 2, 1]))
    assert not first["previous_action"].any()
    assert not first["previous_reward"].any()
    rows = collect(envs, [np.ones((COLUMNS, 2), np.float32)])
    np.testing.assert_array_equal(rows["previous_reward"], rows["reward"])


def test_rows_without_a_decision_are_still_signalled():
    envs, plain = made(WAITING), made(WAITING, EnvConfig())
    for each in (envs, plain):
        each.reset(), collect(each, actions_of(each, 2))
    assert envs.reports_no_decision
    np.testing.assert_array_equal(envs.next_no_decision, plain.next_no_decision)
