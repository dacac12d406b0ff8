"""Episodes are truncated after `max_episode_steps` in every kind of env, and after `cut_after` in evaluations."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import TimeLimit
from tests.reference.known_values import exact_values
from tests.support.env_rows import actions_of, assert_same, collect, plain_rows

from offbeat.config.env import EnvConfig
from offbeat.core.errors import ConfigError, EnvFailed
from offbeat.core.seeding import derive_seed
from offbeat.core.types import Tree
from offbeat.envs.actions import action_encoder, split_columns
from offbeat.envs.adapters.gymnasium.adapter import GymnasiumEnvs
from offbeat.envs.contract import Envs, Snapshots
from offbeat.envs.make import make_envs
from offbeat.envs.testing.known_values import RING, Walk
from offbeat.envs.testing.recall import RecallVectorEnv

LIMIT = 7
atari = pytest.mark.skipif(not find_spec("ale_py"), reason="needs ale-py")
OWN_LIMIT = {"offbeat/ChainTruncates-v0": 5, "offbeat/Recall-v0": 5}
"""Those whose episodes never last as long as LIMIT."""
LONG = [
    "Pendulum-v1",
    "CartPole-v1",
    "limits/Ring-v0",
    pytest.param("BreakoutNoFrameskip-v4", marks=atari),
    *(
        pytest.param(f"envpool:{name}", marks=pytest.mark.skipif(not find_spec("envpool"), reason="needs envpool"))
        for name in ("CartPole-v1", "Pendulum-v1")
    ),
]
KINDS = [*OWN_LIMIT, *LONG]


class OnlyColumns(RecallVectorEnv):
    """A vector env of one's own that cannot be limited, and of which there is no single one."""


class Limitable(RecallVectorEnv):
    """One that can be."""

    def __init__(self, num_envs: int = 1, max_episode_steps: int = 5) -> None:
        super().__init__(num_envs, delay=max_episode_steps - 1)


class WrongOrder(RecallVectorEnv):
    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012


def limited_inside() -> gym.Env[Any, Any]:
    return TimeLimit(Walk(RING, ring=True), 6)


_REGISTERED: dict[str, dict[str, Any]] = {
    "limits/Ring-v0": {"entry_point": Walk, "kwargs": {"positions": RING, "ring": True, "random_start": True}},
    "limits/Inside-v0": {"entry_point": limited_inside},
    "limits/OnlyColumns-v0": {"entry_point": None, "vector_entry_point": OnlyColumns},
    "limits/Limitable-v0": {"entry_point": None, "vector_entry_point": Limitable},
    "limits/WrongOrder-v0": {"entry_point": None, "vector_entry_point": WrongOrder},
    "limits/Wrapped-v0": {
        "entry_point": None,
        "vector_entry_point": OnlyColumns,
        "additional_wrappers": (gym.wrappers.ClipReward.wrapper_spec(min_reward=0),),
    },
}


@pytest.fixture(autouse=True, scope="module")
def _registered() -> Iterator[None]:
    """Other tests try all envs that are registered in this process."""
    for env_id, registration in _REGISTERED.items():
        gym.register(env_id, **registration)
    yield
    for env_id in _REGISTERED:
        del gym.registry[env_id]


def made(env_id: str, columns: int = 3, limit: int | None = LIMIT, **arguments: Any) -> Envs:
    settings = EnvConfig(max_episode_steps=limit, **arguments.pop("settings", {}))
    return make_envs(env_id, columns, seed=2, settings=settings, **arguments)


def episodes(rows: Tree) -> list[list[tuple[int, bool]]]:
    """Of each column, the rows between two ends and whether the end was a truncation."""
    ended = rows.get("over", rows["terminated"] | rows["truncated"])
    found = []
    for column in range(ended.shape[1]):
        ends = np.flatnonzero(ended[:, column])
        lengths = np.diff(ends, prepend=-2) - 1  # the first episode has no reset row before it
        found.append([(int(n), bool(rows["truncated"][end, column])) for n, end in zip(lengths, ends, strict=True)])
    return found


@pytest.mark.parametrize("env_id", KINDS)
def test_every_kind_of_env_truncates_an_episode_after_max_episode_steps(env_id):
    envs = made(env_id, 1) if "Breakout" in env_id else made(env_id, columns=2, groups=2)  # each game starts slowly
    assert envs.spec.time_limit == OWN_LIMIT.get(env_id, LIMIT)
    envs.reset()
    played = episodes(collect(envs, actions_of(envs, 60)))
    longest = OWN_LIMIT.get(env_id, LIMIT)
    assert all(max(lengths)[0] == longest for lengths in played)
    if env_id not in OWN_LIMIT:
        assert all(truncated == (length == LIMIT) for column in played for length, truncated in column)
    envs.close()


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "offbeat/FailsOnLastStep-v0", "offbeat/ChainTerminates-v0"])
@pytest.mark.parametrize("limit", [1, 3, 4, 1000])
def test_rows_equal_those_of_gymnasiums_time_limit_and_a_shorter_limit_of_the_env_is_kept(env_id, limit, monkeypatch):
    """The slow twin is Gymnasium's own loop. FailsOnLastStep fails in its step 4: with that limit too."""
    envs = made(env_id, limit=limit)
    first = {name: leaf.copy() for name, leaf in envs.reset().items()}
    actions = actions_of(envs, 400 if limit == 1000 else 30)
    rows, encode = collect(envs, actions), action_encoder(envs.spec.action)
    encoded = [list(split_columns(envs.spec.action, encode(action))) for action in actions]
    own = gym.spec(env_id).max_episode_steps
    monkeypatch.setattr(gym.spec(env_id), "max_episode_steps", min(limit, own or limit))
    for column in range(3):
        seed = derive_seed(2, "env", 0, 0, column)
        plain_first, plain = plain_rows(env_id, seed, [action[column] for action in encoded])
        assert_same({name: leaf[column] for name, leaf in first.items()}, plain_first)
        assert_same({name: part[:, column] for name, part in rows.items()}, plain)


@pytest.mark.parametrize("limit", [2, 5])
def test_a_truncation_bootstraps_from_the_true_next_observation(limit):
    """In a ring that goes on for ever, the one-step target is the value in closed form, in rows that end as well."""
    gamma = 0.9
    envs = made("limits/Ring-v0", limit=limit)
    before = envs.reset()["observation"].copy()
    truncations = 0
    for action in actions_of(envs, 40):
        envs.send(action)
        outcome = envs.recv()
        after, valid = outcome.observation["observation"], outcome.valid
        value, following = (exact_values("offbeat/ChainTruncates-v0", row, gamma) for row in (before, after))
        target = outcome.reward + gamma * following * ~outcome.terminated
        np.testing.assert_allclose(target[valid], value[valid], rtol=1e-6)
        truncations += int(outcome.truncated.sum())
        before = after.copy()
    assert truncations == 3 * (40 // (limit + 1))


def test_termination_takes_precedence_when_the_limit_is_reached_in_the_same_step():
    envs = made("offbeat/FailsOnLastStep-v0", limit=4)
    envs.reset()
    rows = collect(envs, actions_of(envs, 20))
    assert rows["terminated"].sum() == 3 * 4
    assert not rows["truncated"].any()


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "CartPole-v1", "limits/Ring-v0", "offbeat/Recall-v0"])
def test_the_elapsed_steps_are_part_of_a_snapshot(env_id):
    envs, fresh = made(env_id, limit=4), made(env_id, limit=4)
    assert isinstance(envs, Snapshots)
    assert isinstance(fresh, Snapshots)
    envs.reset()
    collect(envs, actions_of(envs, 12))
    fresh.restore(envs.snapshot())
    actions = actions_of(envs, 20, seed=1)
    rows = collect(envs, actions)
    assert rows["truncated"].any()
    assert_same(rows, collect(fresh, actions))


def test_a_vector_env_that_does_not_support_a_limit_is_replaced_by_single_envs():
    for env_id, objects in (("CartPole-v1", 1), ("limits/Limitable-v0", 1), ("offbeat/Recall-v0", 3)):
        envs = made(env_id, limit=3)
        assert isinstance(envs, GymnasiumEnvs)
        assert len(envs._all_envs()) == objects, env_id
        assert envs.spec.time_limit == 3


def test_a_vector_only_env_that_does_not_support_a_limit_is_refused_with_the_remedy():
    with pytest.raises(ConfigError, match=r"OnlyColumns-v0 has only a vector env, which does not accept max_episode_s"):
        made("limits/OnlyColumns-v0", limit=3)
    assert made("limits/OnlyColumns-v0", limit=5).spec.time_limit == 5, "it ends by itself as early"
    with pytest.raises(ConfigError, match="which does not reset in NEXT_STEP order"):
        made("limits/WrongOrder-v0", limit=3)


def test_a_vector_only_env_that_is_registered_with_wrappers_is_refused():
    with pytest.raises(
        ConfigError, match="which cannot have the wrappers that it is registered with: leave them out, or"
    ):
        made("limits/Wrapped-v0", limit=3)


@pytest.mark.parametrize(
    ("env_id", "limit"),
    [
        ("Pendulum-v1", 200),
        ("CartPole-v1", 500),
        ("offbeat/ChainTruncates-v0", 5),
        ("offbeat/Recall-v0", 5),
        ("limits/Inside-v0", 6),
        ("limits/Ring-v0", None),
        ("CliffWalking-v1", None),
        pytest.param("ALE/Pong-v5", 27_000, marks=atari),
    ],
)
def test_the_spec_has_the_time_limit_of_the_env(env_id, limit):
    assert made(env_id, 1, limit=None).spec.time_limit == limit
    assert made(env_id, 1, limit=10**6).spec.time_limit == (10**6 if limit is None else limit)


@pytest.mark.parametrize("env_id", LONG)
def test_an_evaluation_cuts_episodes_and_its_spec_has_the_limit(env_id):
    envs = made(env_id, 1, limit=None, cut_after=LIMIT)
    assert envs.spec.cut_at == LIMIT
    assert envs.spec.time_limit == made(env_id, 1, limit=None).spec.time_limit, "of the task, not of the evaluation"
    envs.reset()
    assert max(length for column in episodes(collect(envs, actions_of(envs, 40))) for length, _ in column) == LIMIT


@pytest.mark.parametrize("env_id", ["offbeat/Recall-v0", "limits/OnlyColumns-v0", "offbeat/ChainTruncates-v0"])
def test_an_evaluation_does_not_cut_envs_with_a_shorter_time_limit(env_id):
    free, cut = made(env_id, limit=None), made(env_id, limit=None, cut_after=LIMIT)
    assert cut.spec.cut_at is None
    assert_same(free.reset(), cut.reset())
    actions = actions_of(free, 20)
    assert_same(collect(free, actions), collect(cut, actions))


def test_an_evaluation_does_not_cut_a_vector_env_that_cannot_be_limited():
    envs = made("limits/OnlyColumns-v0", limit=None, cut_after=2)
    assert envs.spec.cut_at is None


@pytest.mark.skipif(not find_spec("envpool"), reason="needs envpool")
def test_an_evaluation_does_not_cut_a_pool_that_ignores_its_limit():
    envs = made("envpool:Maze-v0", 2, limit=None, cut_after=3)
    envs.reset()
    rows = collect(envs, actions_of(envs, 10))
    assert not (rows["terminated"] | rows["truncated"]).any()
    limited = made("envpool:Maze-v0", 2, limit=3)
    limited.reset()
    with pytest.raises(EnvFailed, match=r"max_episode_steps is 3, .* a time limit of its own that cannot be shortened"):
        collect(limited, actions_of(limited, 3))


@atari
@pytest.mark.parametrize(("limit", "max_frames", "ends"), [(90, 41, 11), (9, 400, 9)])
def test_the_smaller_of_max_frames_and_max_episode_steps_ends_a_game(limit, max_frames, ends):
    settings = {"max_frames": max_frames, "episodic_life": False, "frame_skip": 4}
    envs = made("BreakoutNoFrameskip-v4", 1, limit=limit, settings=settings)
    assert envs.spec.time_limit == ends
    envs.reset()
    rows = collect(envs, actions_of(envs, 60))
    assert {length for column in episodes(rows) for length, _ in column} == {ends}


@atari
def test_a_lost_life_does_not_reset_the_step_count_of_a_game():
    envs = made("BreakoutNoFrameskip-v4", 1, limit=100, settings={"episodic_life": True})
    envs.reset()
    rows = collect(envs, [np.zeros(1, np.int64)] * 210)
    assert rows["terminated"].any(), "no life was lost"
    assert {length for column in episodes(rows) for length, _ in column} == {100}
