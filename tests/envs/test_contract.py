"""What every adapter promises, run against every kind of env."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.envs.registration import EnvSpec as RegisteredEnv
from tests.sample_envs.curious_envs import Waiting
from tests.sample_envs.env_zoo import TREES, ChoicesFromFive, DictObservations, ManyChoices, Unbounded, zoo_id
from tests.support.env_rows import actions_of, assert_same, collect, episodes_under_way, plain_rows
from tests.support.thorough import thorough

from offbeat.config.env import EnvConfig
from offbeat.core.errors import EnvFailed
from offbeat.core.seeding import derive_seed, stream
from offbeat.core.types import Array, EnvSpec, Tree
from offbeat.envs.actions import action_encoder, random_actions, split_columns
from offbeat.envs.contract import Envs, Snapshots
from offbeat.envs.make import make_envs
from offbeat.envs.rows import FiniteCheck, empty_rows

KNOWN = ["ChainTruncates", "ChainTerminates", "FailsOnLastStep", "OneStep"]
LOOPED = [
    "Pendulum-v1",
    *(f"offbeat/{name}-v0" for name in KNOWN),
    *(zoo_id(kind) for kind in (DictObservations, ManyChoices, ChoicesFromFive, Unbounded, *TREES)),
    pytest.param("HalfCheetah-v5", marks=pytest.mark.skipif(not find_spec("mujoco"), reason="needs mujoco")),
    "Pendulum-v1 frame_skip=3",
    "offbeat/FailsOnLastStep-v0 frame_skip=3",
]
"""Envs of which one column is one Gymnasium env, with a stream of its own."""
QUESTIONS = [f"offbeat/{name}-v0" for name in ("Recall", "Pixels", "PixelsMotion", "PixelsGoal")]
VECTORS = ["CartPole-v1", *QUESTIONS]
"""Envs that bring a vector env of their own, whose columns share a stream."""
POOLED = [
    pytest.param(f"envpool:{name}", marks=pytest.mark.skipif(not find_spec("envpool"), reason="needs envpool"))
    for name in ("CartPole-v1", "Pendulum-v1", "Ant-v4", "CartPole-v1 frame_skip=3")
]
GAMES = [
    pytest.param("BreakoutNoFrameskip-v4", marks=pytest.mark.skipif(not find_spec("ale_py"), reason="needs ale-py"))
]
ALL = [*VECTORS, *LOOPED, *POOLED, *GAMES]
OWN_STREAMS = [*LOOPED, *POOLED, *GAMES]
ALL_BUT_GAMES = [*VECTORS, *LOOPED, *POOLED]
"""For tests of seeds: adapters/test_ale.py compares the rows of games with an emulator that is given the same seeds."""
COLUMNS = 4
OF_A_GAME = 2
"""Columns of a game: each takes a fifth of a second to start."""
ROWS = 300
LONGER = {"HalfCheetah-v5": 1100, "envpool:Ant-v4": 1100}
"""Rows in which each column ends an episode."""

every_env = pytest.mark.parametrize("env_id", ALL)


def made(env_id: str, **arguments: int) -> Envs:
    name, frame_skip = id_and_frame_skip(env_id)
    given = {"columns": OF_A_GAME if "Breakout" in name else COLUMNS, "seed": 3, **arguments}
    return make_envs(name, settings=EnvConfig(frame_skip=frame_skip), **given)  # type: ignore[arg-type]


def id_and_frame_skip(env_id: str) -> tuple[str, int | None]:
    """Split 'Pendulum-v1 frame_skip=3'; other ids have the frame skip that they imply."""
    name, _, frame_skip = env_id.partition(" frame_skip=")
    return name, int(frame_skip) if frame_skip else None


class Collected(NamedTuple):
    """What one env says from its reset on, and what it was sent."""

    spec: EnvSpec
    first: Tree
    actions: list[Array]
    rows: Tree

    def part(self, rows: int) -> Tree:
        return {name: leaf[:rows] for name, leaf in self.rows.items()}


@pytest.fixture(scope="module")
def collected() -> Callable[[str], Collected]:
    """Rows of `made(env_id)`, collected once: most of these tests compare others with them."""
    return cache(collect_from)


def collect_from(env_id: str) -> Collected:
    envs = made(env_id)
    first = copied(envs.reset())
    actions = actions_of(envs, LONGER.get(env_id, ROWS))
    return Collected(envs.spec, first, actions, collect(envs, actions))


def copied(observation: Tree) -> Tree:
    return {name: leaf.copy() for name, leaf in observation.items()}


@every_env
def test_rows_have_the_shapes_and_dtypes_of_the_spec(env_id: str, collected: Any) -> None:
    spec, first, _, rows = collected(env_id)
    leaves = {leaf.name: ((spec.columns, *leaf.shape), np.dtype(leaf.dtype)) for leaf in spec.observation}
    assert {name: (part.shape, part.dtype) for name, part in first.items()} == leaves
    flags = dict.fromkeys(rows.keys() - leaves.keys() - {"reward"}, ((spec.columns,), np.dtype(np.bool_)))
    assert flags.keys() >= {"terminated", "truncated", "valid"}
    described = {**leaves, "reward": ((spec.columns,), np.dtype(np.float32)), **flags}
    assert {name: (part.shape[1:], part.dtype) for name, part in rows.items()} == described


@every_env
def test_a_row_is_invalid_exactly_after_an_episode_end_and_has_no_reward(env_id: str, collected: Any) -> None:
    rows = collected(env_id).rows
    ended = rows["terminated"] | rows["truncated"]
    assert ended.any(axis=0).all()
    assert rows["valid"][0].all()
    np.testing.assert_array_equal(rows["valid"][1:], ~ended[:-1])
    assert not rows["reward"][~rows["valid"]].any()
    assert not ended[~rows["valid"]].any()
    assert not (rows["terminated"] & rows["truncated"]).any()


@pytest.mark.parametrize("env_id", ALL_BUT_GAMES)
def test_the_same_seed_gives_the_same_rows(env_id: str, collected: Any) -> None:
    one, envs = collected(env_id), made(env_id)
    assert_same(one.first, {**envs.reset()})
    assert_same(one.part(ROWS), collect(envs, one.actions[:ROWS]))


@pytest.mark.parametrize("env_id", ALL_BUT_GAMES)
def test_another_seed_gives_other_rows(env_id: str, collected: Any) -> None:
    assert bits_of(collected(env_id).first) != bits_of(made(env_id, seed=4).reset())


@pytest.mark.parametrize("env_id", [VECTORS[0], *POOLED[:1], "Pendulum-v1"])
@pytest.mark.parametrize("other", [{"actor": 1}, {"origin": 640}])
def test_another_actor_or_origin_gives_other_rows(env_id: str, other: dict[str, int], collected: Any) -> None:
    assert bits_of(collected(env_id).first) != bits_of(made(env_id, **other).reset())


def bits_of(observation: Tree) -> bytes:
    return b"".join(leaf.tobytes() for leaf in observation.values())


@every_env
def test_columns_have_different_random_streams(env_id: str, collected: Any) -> None:
    first = collected(env_id).first
    columns = OF_A_GAME if "Breakout" in env_id else COLUMNS
    assert len({bits_of({name: leaf[column] for name, leaf in first.items()}) for column in range(columns)}) == columns


@every_env
def test_a_second_reset_starts_different_episodes(env_id: str) -> None:
    envs = made(env_id)
    first = copied(envs.reset())
    collect(envs, actions_of(envs, 3))
    again = envs.reset()
    assert any(not np.array_equal(first[name], again[name]) for name in first)
    assert collect(envs, actions_of(envs, 1))["valid"].all()


@pytest.mark.parametrize("env_id", VECTORS)
def test_groups_received_in_turn_equal_groups_sent_together(env_id: str) -> None:
    in_turn, together = made(env_id, groups=2), made(env_id, groups=2)
    in_turn.reset(), together.reset()
    actions = actions_of(in_turn, 100)
    assert_same(collect(in_turn, actions), collect(together, actions, together=True))


@pytest.mark.parametrize("env_id", OWN_STREAMS)
def test_columns_with_separate_random_streams_do_not_depend_on_the_groups_or_their_order(
    env_id: str, collected: Any
) -> None:
    whole, halves = collected(env_id), made(env_id, groups=2)
    assert_same(whole.first, {**halves.reset()})
    together, in_turn = collect(halves, whole.actions[:60], together=True), collect(halves, whole.actions[60:100])
    assert_same(whole.part(100), {name: np.concatenate([part, in_turn[name]]) for name, part in together.items()})


# --- begun at different moments of their episodes ------------------------------------------------------------

STEPS = np.array([0, 23, 1, 240])


def stepped_together(envs: Envs) -> list[slice]:
    """The columns that cannot be stepped without each other."""
    if envs.spec.id in VECTORS or envs.spec.id.startswith(("envpool:", "Breakout")):
        return list(envs.groups)
    return [slice(column, column + 1) for column in range(COLUMNS)]


@every_env
@pytest.mark.parametrize("groups", [2, *thorough(1)])
def test_advance_equals_single_random_steps(env_id: str, groups: int) -> None:
    envs, stepped = (made(env_id, groups=groups) for _ in range(2))
    envs.reset(), stepped.reset()
    number = np.array([0, 60]) if "Breakout" in env_id else STEPS  # which lasts, and whose lives are short
    after = actions_of(envs, 60)
    advanced = envs.advance(number, stream(0, "advance"))
    observation = copied(advanced.observation)
    rows = collect(envs, after)

    random = stream(0, "advance")
    actions = np.stack(actions_of(envs, number.max() + 60))
    for part in stepped_together(envs):
        steps, size = number[part].max(), part.stop - part.start
        drawn = random_actions(envs.spec.action, steps * size, random)
        actions[:steps, part] = drawn.reshape(steps, size, *envs.spec.action.shape)
        actions[steps : steps + 60, part] = np.stack(after)[:, part]
    expected = collect(stepped, list(actions))
    for part in stepped_together(envs):
        steps = number[part].max()
        assert_same(
            {name: leaf[:, part] for name, leaf in rows.items()},
            {name: leaf[steps : steps + 60, part] for name, leaf in expected.items()},
        )
        if steps:
            for name, leaf in observation.items():
                np.testing.assert_array_equal(leaf[part], expected[name][steps - 1, part])
        returns, lengths = episodes_under_way({name: leaf[:steps, part] for name, leaf in expected.items()})
        np.testing.assert_array_equal(advanced.returns[part], returns)
        np.testing.assert_array_equal(advanced.lengths[part], lengths)


@pytest.mark.parametrize("env_id", [VECTORS[0], "Pendulum-v1", *POOLED[:1]])
def test_advance_by_zero_steps_returns_the_first_observations(env_id: str) -> None:
    envs = made(env_id)
    first = copied(envs.reset())
    advanced = envs.advance(np.zeros(envs.spec.columns, np.int64), stream(0, "advance"))
    assert_same(advanced.observation, first)
    assert not advanced.returns.any()
    assert [part.dtype for part in advanced[1:]] == [np.float64, np.int32, np.float64]
    assert not advanced.lengths.any()
    assert advanced.infos.shape == (envs.spec.columns, 0)


def test_episodes_of_equal_length_end_in_different_rows_after_advance() -> None:
    envs = made("Pendulum-v1")
    envs.reset()
    lengths = envs.advance(np.array([0, 50, 100, 150]), stream(0, "advance")).lengths
    np.testing.assert_array_equal(lengths, [0, 50, 100, 150])
    ends = collect(envs, actions_of(envs, 200))["truncated"]
    np.testing.assert_array_equal(ends.argmax(axis=0), [199, 149, 99, 49])


def test_an_episode_that_ends_in_the_last_step_of_advance_is_followed_by_its_reset_row() -> None:
    envs = made("offbeat/OneStep-v0")
    envs.reset()
    advanced = envs.advance(np.array([0, 1, 2, 3]), stream(0, "advance"))
    np.testing.assert_array_equal(advanced.lengths, 0)
    np.testing.assert_array_equal(advanced.returns, 0)
    np.testing.assert_array_equal(advanced.observation["observation"][[1, 3], 0], 4)  # the final one
    np.testing.assert_array_equal(collect(envs, actions_of(envs, 1))["valid"][0], [True, False, True, False])


class WaitsOnce(Waiting):
    def info(self) -> dict[str, Any]:
        return {"no_decision": self.age == 3}


def test_a_row_without_a_decision_after_advance_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    kind: Any = WaitsOnce
    monkeypatch.setitem(gym.registry, "curious/WaitsOnce-v0", RegisteredEnv("curious/WaitsOnce-v0", kind))
    envs = made("curious/WaitsOnce-v0")
    for _ in range(2):
        envs.reset()
        envs.advance(np.full(COLUMNS, 3), stream(0, "advance"))
        rows = collect(envs, actions_of(envs, 3))
        np.testing.assert_array_equal(rows["no_decision"], np.array([True, False, False])[:, None].repeat(COLUMNS, 1))


@pytest.mark.parametrize("env_id", [*VECTORS, "Pendulum-v1", "offbeat/OneStep-v0"])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_snapshot_of_advanced_columns_is_exact(env_id: str, groups: int) -> None:
    envs, fresh = made(env_id, groups=groups), made(env_id, groups=groups, seed=9)
    envs.reset()
    envs.advance(STEPS, stream(0, "advance"))
    assert isinstance(envs, Snapshots)
    assert isinstance(fresh, Snapshots)
    fresh.restore(envs.snapshot())
    actions = actions_of(envs, 300)
    assert_same(collect(envs, actions), collect(fresh, actions))


@pytest.mark.parametrize(("name", "says"), [("Raises", "the cart has no mass"), ("LateNaN", "NaN or infinite")])
def test_an_env_that_fails_in_advance_is_reported_with_its_column(name: str, says: str) -> None:
    envs = made(f"zoo/{name}-v0", groups=2)
    envs.reset()
    with pytest.raises(EnvFailed, match=f"zoo/{name}-v0, env 3: .*{says}"):
        envs.advance(np.array([0, 0, 0, 40]), stream(0, "advance"))


# --- against Gymnasium itself --------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", [*LOOPED, "FrozenLake-v1", "Blackjack-v1"])
def test_rows_equal_those_of_gymnasium(env_id: str, collected: Any) -> None:
    """So the row after an end is the reset row, its observation before it the true final one."""
    ours, action_spec = collected(env_id), made(env_id).spec.action
    name, frame_skip = id_and_frame_skip(env_id)
    encode = action_encoder(action_spec)
    handed = [list(split_columns(action_spec, encode(action))) for action in ours.actions[:300]]
    for column in range(COLUMNS):
        taken = [columns[column] for columns in handed]
        observation, plain = plain_rows(name, derive_seed(3, "env", 0, 0, column), taken, frame_skip or 1)
        assert_same({name: leaf[column] for name, leaf in ours.first.items()}, observation)
        assert_same({name: part[:, column] for name, part in ours.part(300).items()}, plain)


def test_the_final_observation_of_cartpole_is_the_one_that_failed() -> None:
    envs = made("CartPole-v1")
    envs.reset()
    rows = collect(envs, actions_of(envs, 400))
    failed = rows["observation"][rows["terminated"]]
    assert len(failed) > 10
    assert ((np.abs(failed[:, 0]) > 2.4) | (np.abs(failed[:, 2]) > 0.2095)).all()
    begun = rows["observation"][~rows["valid"]]
    assert (np.abs(begun) <= 0.05).all()


def test_outcomes_are_written_to_the_same_arrays_every_time() -> None:
    envs = made("Pendulum-v1", groups=2)
    envs.reset()
    action = actions_of(envs, 1)[0][:2]
    envs.send(action, 1)
    one = envs.recv(1)
    envs.send(action, 1)
    assert envs.recv(1).observation["observation"] is one.observation["observation"]


def test_actions_may_be_overwritten_after_send() -> None:
    kept, reused = made("Pendulum-v1"), made("Pendulum-v1")
    kept.reset(), reused.reset()
    actions = actions_of(kept, 1)[0]
    kept.send(actions.copy())
    reused.send(actions)
    actions[:] = 0
    np.testing.assert_array_equal(kept.recv().reward, reused.recv().reward)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("LateNaN", "observation is NaN or infinite"),
        ("NaNReward", "reward is NaN or infinite"),
        (
            "WrongShape",
            r"\) returned an observation of shape \(1,\) where its space declares \(3,\)\. In the env, ",
        ),
        ("WrongDtype", r"reset\(\) returned an observation of float32 where its space declares uint8\. In the env, "),
        ("WrongKeys", r"returned dict as observation, without the '\w+' of its space\. In the env, "),
        ("NoSuchChoice", "returned 3 as observation/card, which is not one of the choices of its space"),
        ("ArrayReward", r"the reward is an array of shape \(1,\), not a number. In the env, return float\(reward\)"),
        ("TextReward", "the reward is str, not a number"),
        ("NumberedEnds", r"truncated is None, not a bool. In the env, return bool\(truncated\)"),
        ("OldReset", "reset"),
        ("OldStep", "step"),
        ("Raises", "ZeroDivisionError: the cart has no mass"),
    ],
)
def test_a_broken_env_is_reported_with_its_number_and_the_check_command(name: str, says: str) -> None:
    env_id = f"zoo/{name}-v0"
    envs = make_envs(env_id, 2, seed=0)
    with pytest.raises(EnvFailed, match=rf"{env_id}, env [01]: .*{says}.*`offbeat.check[^`]*{env_id}[^`]*`"):
        envs.reset(), collect(envs, actions_of(envs, 200))


def test_an_env_that_raises_is_not_blamed_for_what_the_column_before_it_has_returned() -> None:
    class Fails(gym.Wrapper[Any, Any, Any, Any]):
        made = 0

        def __init__(self, env: gym.Env[Any, Any]) -> None:
            super().__init__(env)
            self.first, Fails.made = Fails.made == 0, Fails.made + 1

        def step(self, action: Any) -> Any:
            observation, reward, _, truncated, info = super().step(action)
            return observation, reward, None if self.first else 1 // 0, truncated, info

    make: Any = lambda: Fails(gym.make("Pendulum-v1"))  # noqa: E731
    gym.register("tests/FailsBeside-v0", make)
    envs = make_envs("tests/FailsBeside-v0", 2, seed=0)
    envs.reset()
    envs.send(actions_of(envs, 1)[0])
    with pytest.raises(EnvFailed, match=r"env 1: step\(\) raised ZeroDivisionError"):
        envs.recv()
    del gym.registry["tests/FailsBeside-v0"]


@pytest.mark.parametrize(("reward", "says"), [(None, "None"), ("1.5", "str"), ({}, "dict")])
@pytest.mark.parametrize("columns", [1, 2])
def test_a_reward_that_is_no_number_is_named_in_every_step(
    monkeypatch: pytest.MonkeyPatch, columns: int, reward: object, says: str
) -> None:
    class Late(gym.Wrapper[Any, Any, Any, Any]):
        steps = 0

        def step(self, action: Any) -> Any:
            observation, *ends, info = super().step(action)
            self.steps += 1
            return (observation, *([reward, *ends[1:]] if self.steps > 1 else ends), info)

    make: Any = lambda: Late(gym.make("Pendulum-v1"))  # noqa: E731
    monkeypatch.setitem(gym.registry, "own/Late-v0", RegisteredEnv("own/Late-v0", make))
    envs = make_envs("own/Late-v0", columns, seed=0)
    envs.reset()
    with pytest.raises(EnvFailed, match=rf"own/Late-v0, env 0: .*the reward is {says}, not a number. In the env, "):
        collect(envs, actions_of(envs, 2))


def test_an_observation_of_two_numbers_in_place_of_observation_and_info_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class WithoutInfo(gym.Env[Any, Any]):
        observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            super().reset(seed=seed, options=options)
            return np.zeros(2, np.float32)

    registered = RegisteredEnv("own/WithoutInfo-v0", WithoutInfo)  # type: ignore[arg-type]
    monkeypatch.setitem(gym.registry, "own/WithoutInfo-v0", registered)
    with pytest.raises(
        EnvFailed, match=r"did not return \(observation, info\): its second value is float32, not a dict"
    ):
        make_envs("own/WithoutInfo-v0", 1, seed=0).reset()


def with_one(values: Any, column: int, value: object) -> Any:
    """Return a list of values, one of which is replaced."""
    return [value if index == column else each for index, each in enumerate(values)]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda reward, *flags: (with_one(reward, 1, np.nan), *flags), "env 1: .*the reward is NaN or infinite"),
        (lambda reward, *flags: (with_one(reward, 1, "5"), *flags), "env 1: .*the reward is str, not a number"),
        (lambda reward, ends, cut: (reward, ends.astype(float), cut), r"terminated is float, not a bool. In the env, "),
        (
            lambda reward, ends, cut: (reward, ends, with_one(cut, 1, None)),
            "env 1: .*truncated is None, not a b",
        ),
        (lambda reward, *flags: (reward[:, None], *flags), r"reward of shape \(2, 1\), but a vector env of 2 returns"),
        (
            lambda reward, _, cut: (reward, False, cut),
            r"terminated of shape \(\), but a vector env of 2 returns \(2,",
        ),
        (lambda reward, ends, cut: (reward, ends | cut), r"did not return \(observation, reward, .*, but 4 values"),
    ],
)
def test_wrong_rewards_and_flags_of_a_vector_env_are_reported_as_those_of_single_envs(
    monkeypatch: pytest.MonkeyPatch, change: Callable[..., tuple[Any, ...]], says: str
) -> None:
    class Changed(CartPoleVectorEnv):
        def step(self, action: Any) -> Any:
            observation, *ends, info = super().step(action)
            return observation, *change(*ends), info

    registered = RegisteredEnv("own/Changed-v0", vector_entry_point=Changed)  # type: ignore[arg-type]
    monkeypatch.setitem(gym.registry, "own/Changed-v0", registered)
    envs = make_envs("own/Changed-v0", 2, seed=0)
    envs.reset()
    with pytest.raises(EnvFailed, match=rf"own/Changed-v0, {says}" if says.startswith("column") else says):
        collect(envs, actions_of(envs, 2))


@pytest.mark.parametrize("value", [None, "1.5"])
def test_a_reward_of_a_vector_env_that_is_no_number_is_named_in_every_step(
    monkeypatch: pytest.MonkeyPatch, value: object
) -> None:
    class Late(CartPoleVectorEnv):
        calls = 0

        def step(self, action: Any) -> Any:
            observation, reward, *flags, info = super().step(action)
            self.calls += 1
            return observation, with_one(reward, 1, value) if self.calls > 1 else reward, *flags, info

    registered = RegisteredEnv("own/LateVector-v0", vector_entry_point=Late)  # type: ignore[arg-type]
    monkeypatch.setitem(gym.registry, "own/LateVector-v0", registered)
    envs = make_envs("own/LateVector-v0", 2, seed=0)
    envs.reset()
    with pytest.raises(EnvFailed, match=r"env 1: .*the reward is (None|str), not a number"):
        collect(envs, actions_of(envs, 2))


@pytest.mark.parametrize("waits", [False, True])
def test_a_reward_that_a_vector_env_pays_in_a_reset_row_is_ignored(
    monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    class Pays(CartPoleVectorEnv):
        def step(self, action: Any) -> Any:
            resets = self.prev_done.copy()
            observation, reward, *flags, info = super().step(action)
            assert not reward[resets].any()
            return observation, reward + 5 * resets, *flags, info | ({"no_decision": ~resets} if waits else {})

    registered = RegisteredEnv("own/Pays-v0", vector_entry_point=Pays)  # type: ignore[arg-type]
    monkeypatch.setitem(gym.registry, "own/Pays-v0", registered)
    envs = make_envs("own/Pays-v0", 2, seed=0)
    envs.reset()
    rows = collect(envs, actions_of(envs, 60))
    resets = (rows["terminated"] | rows["truncated"])[:-1]
    assert resets.sum() > 2
    assert not rows["reward"][1:][resets].any()
    assert (rows["reward"][1:][~resets] == 1).all()


def test_the_exception_of_an_env_is_chained_as_the_cause() -> None:
    envs = make_envs("zoo/Raises-v0", 2, seed=0)
    envs.reset()
    envs.send(actions_of(envs, 1)[0])
    with pytest.raises(EnvFailed) as caught:
        envs.recv()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.filterwarnings("error")
def test_finite_values_whose_sum_is_too_large_for_float32_are_finite_without_a_warning() -> None:
    rows = empty_rows([], 3)
    rows.reward[:] = 3e38
    assert FiniteCheck(rows).column() is None
    rows.reward[1] = -np.inf
    assert FiniteCheck(rows).column() == (1, "reward")


def test_recv_without_send_is_refused() -> None:
    envs = made("CartPole-v1")
    envs.reset()
    with pytest.raises(RuntimeError, match="without a send"):
        envs.recv()
