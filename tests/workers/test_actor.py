from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import Any, cast

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from tests.sample_envs import curious_envs, env_zoo
from tests.support.env_rows import assert_same, collect, empty_slot
from tests.support.models import random_vector
from tests.support.policies import WithoutWeights
from tests.support.thorough import thorough

from offbeat.config.env import EnvConfig
from offbeat.core.errors import Closed, EnvFailed, NetworkFailed, RunFailed
from offbeat.core.pace import OnPolicyPace
from offbeat.core.types import (
    ENV_STEP,
    FRAME_AGE,
    NO_DECISION,
    NOT_ENDED,
    Acted,
    ActionSpec,
    Array,
    EnvSpec,
    Field,
    Tree,
    env_fields,
)
from offbeat.envs.actions import random_actions
from offbeat.envs.call_watch import UNWATCHED, EnvCallWatch
from offbeat.envs.contract import Envs, Outcome
from offbeat.envs.make import make_envs
from offbeat.memory.arena import private_arena
from offbeat.memory.unrolls import UnrollShape
from offbeat.memory.weights import Weights, weight_slabs
from offbeat.metrics.timings import Timings
from offbeat.models.acting import make_policy
from offbeat.models.published import published_layout
from offbeat.models.spec import Distribution, PolicySpec
from offbeat.workers.actor import Actor
from offbeat.workers.columns import PolicyColumns
from offbeat.workers.inference import Inference
from offbeat.workers.link import Memory, PolicyWork, Work
from offbeat.workers.policy_faults import policy_fault

WANDERER = env_zoo.zoo_id(env_zoo.Wanderer)
DICTS = env_zoo.zoo_id(env_zoo.DictObservations)
CHOICES = env_zoo.zoo_id(env_zoo.ManyChoices)
LENGTH = 7
COLUMNS = 4


class Stage:
    """An actor with slots to write to and weights to act with."""

    def __init__(
        self, env: str, *, groups: int = 1, seed: int = 0, watch: EnvCallWatch = UNWATCHED, frame_stack: int = 1
    ) -> None:
        self.envs = make_envs(env, COLUMNS, seed=seed, groups=groups, settings=EnvConfig(frame_stack=frame_stack))
        spec = self.envs.spec
        kind: Distribution = "gaussian" if spec.action.kind == "box" else "categorical"
        policy = PolicySpec(spec.observation, spec.action, (8,), "tanh", kind, normalize=True)
        self.policy = make_policy(policy)
        self.vector = random_vector(policy, np.random.default_rng(0))
        self.columns = PolicyColumns(self.envs, self.policy)
        self.actor = Actor(0, seed, [self.columns], watch)

    def slot(self) -> Tree:
        return {
            **slot_of(self.envs.spec),
            "behavior_log_prob": np.zeros((LENGTH + 1, COLUMNS), np.float32),
        }

    def act(self, *tickets: int, version: int = 3) -> list[Tree]:
        slots = [self.slot() for _ in tickets]
        for ticket, slot in zip(tickets, slots, strict=True):
            self.actor.act(Work(ticket, version, 0.0, (PolicyWork(self.vector, slot),)))
        return slots

    def begin_and_act(self, *tickets: int) -> list[Tree]:
        self.actor.start(0)
        return self.act(*tickets)


def slot_of(spec: EnvSpec) -> Tree:
    return empty_slot(env_fields(spec), LENGTH, spec.columns)


class AtRandom(WithoutWeights):
    """A policy that takes no notice of what it sees."""

    def __init__(self, action: ActionSpec) -> None:
        self._action = action

    def act(self, observation: Tree, random: np.random.Generator, state: Array | None = None) -> Acted:  # noqa: ARG002
        return Acted(random_actions(self._action, len(observation["observation"]), random), {})


def whole(slots: list[Tree]) -> Tree:
    """Rows 0 .. T - 1 of all tickets, one after the other."""
    return {name: np.concatenate([slot[name][:LENGTH] for slot in slots]) for name in slots[0]}


@pytest.mark.parametrize("env", [WANDERER, DICTS, CHOICES, "CartPole-v1", "Pendulum-v1"])
def test_a_slot_has_the_env_outcomes_of_its_actions(env):
    stage, twin = Stage(env), make_envs(env, COLUMNS, seed=0)
    slots = stage.begin_and_act(0, 1, 2)
    rows, leaves = whole(slots), [leaf.name for leaf in twin.spec.observation]
    observation = {name: leaf.copy() for name, leaf in twin.reset().items()}
    assert_same({name: rows[name][0] for name in leaves}, observation)
    said = collect(twin, [stage.policy.to_env(action) for action in rows["action"]])
    for name in ("reward", "terminated", "truncated", "valid"):
        np.testing.assert_array_equal(rows[name], said[name], err_msg=name)
    for name in leaves:
        np.testing.assert_array_equal(rows[name][1:], said[name][:-1], err_msg=name)
        np.testing.assert_array_equal(slots[-1][name][LENGTH], said[name][-1], err_msg=name)


@pytest.mark.parametrize("env", [WANDERER, DICTS, "CartPole-v1"])
def test_the_last_row_of_a_ticket_is_the_first_row_of_the_next(env):
    stage = Stage(env)
    first, second, third = stage.begin_and_act(0, 4, 8)
    for before, after in ((first, second), (second, third)):
        for leaf in stage.envs.spec.observation:
            np.testing.assert_array_equal(before[leaf.name][LENGTH], after[leaf.name][0])
    assert (first["observation" if env != DICTS else "observation/place"][0] != 0).any()


def test_a_ticket_begins_with_the_observation_after_the_last_one_whose_slot_may_be_in_use_again():
    stage = Stage("CartPole-v1")
    [first] = stage.begin_and_act(0)
    last = first["observation"][LENGTH].copy()
    first["observation"][:] = 7
    np.testing.assert_array_equal(stage.act(1)[0]["observation"][0], last)


def test_actions_and_log_probabilities_of_a_row_are_those_of_the_policy_for_its_observation():
    stage = Stage("Pendulum-v1")
    [slot] = stage.begin_and_act(0)
    log_std = published_layout(stage.policy.spec).views(stage.vector)["log_std"]
    for row in range(LENGTH):
        mean = stage.policy.forward({"observation": slot["observation"][row]})
        z = (slot["action"][row] - mean) / np.exp(log_std)
        expected = (-0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(axis=1)
        np.testing.assert_allclose(slot["behavior_log_prob"][row], expected, atol=1e-4)
    assert (slot["behavior_version"] == 3).all()


def test_an_actor_uses_the_given_weights_for_each_ticket():
    left, right = Stage("Pendulum-v1"), Stage("Pendulum-v1")
    left.begin_and_act(0)
    right.begin_and_act(0)
    right.vector = right.vector * 2
    [mine], [other] = left.act(1), right.act(1, version=4)
    assert (mine["action"][:LENGTH] != other["action"][:LENGTH]).all()
    assert (other["behavior_version"] == 4).all()


def test_the_time_in_which_an_actor_asks_its_inference_is_counted_as_a_wait_like_that_for_the_answer(monkeypatch):
    now = [0.0]

    class Takes:
        """An inference that takes a second to be asked, and four to answer."""

        def start_ticket(self, work: Work) -> None:
            pass

        def submit(self, _group: int) -> None:
            now[0] += 1

        def wait(self, _group: int) -> None:
            now[0] += 4

    monkeypatch.setattr("offbeat.workers.actor.clock", lambda: now[0])
    stage, takes = Stage("CartPole-v1", groups=2), cast(Inference, Takes())
    stage.actor = Actor(0, 0, [stage.columns], inference=takes)
    stage.begin_and_act(0)
    assert stage.actor.timings.totals()["wait"] == 2 * LENGTH * (1 + 4)


def test_the_random_stream_of_a_ticket_does_not_depend_on_earlier_tickets():
    stage = Stage(WANDERER)
    [fifth] = stage.begin_and_act(5)
    _renew(stage)
    [sixth] = stage.begin_and_act(6)
    stage.act(7, 8)
    _renew(stage)
    [again] = stage.begin_and_act(5)
    assert_same(again, fifth)
    assert (fifth["action"] != sixth["action"]).any()


def _renew(stage: Stage) -> None:
    """Give the policy to a new actor, whose envs have not been stepped."""
    stage.actor = Actor(0, 0, [PolicyColumns(make_envs(WANDERER, COLUMNS, seed=0), stage.policy)])


@pytest.mark.parametrize(("env", "groups"), [(WANDERER, 2), (DICTS, 4), ("Pendulum-v1", 2)])
def test_env_groups_give_the_same_rows_as_one_group(env, groups):
    one, several = whole(Stage(env).begin_and_act(0, 1, 2)), whole(Stage(env, groups=groups).begin_and_act(0, 1, 2))
    ended = one["terminated"] | one["truncated"]
    assert one.keys() == several.keys()
    for name, part in one.items():
        rows = ended if name in ("episode_return", "episode_length") else ...
        np.testing.assert_allclose(several[name][rows], part[rows], rtol=1e-4, atol=1e-4, err_msg=name)


def test_the_ages_of_frame_stacks_are_those_of_the_columns_of_each_env_group():
    stage = Stage("offbeat/PixelsMotion-v0", groups=2, frame_stack=3)
    stage.actor.start(0, spread=20)
    slots = stage.act(*range(8))
    for slot in slots:
        age, continues = slot[FRAME_AGE], slot["valid"][:-1]
        assert (age[1:] == np.where(continues, np.minimum(age[:-1] + 1, 2), 0)).all()
    of_groups = np.split(np.concatenate([slot[FRAME_AGE] for slot in slots]), 2, axis=1)
    assert (of_groups[0] != of_groups[1]).any()


@pytest.mark.parametrize(("env", "groups"), [(WANDERER, 2), ("CartPole-v1", 1)])
def test_returns_and_lengths_are_recorded_at_episode_ends_across_tickets(env, groups):
    rows = whole(Stage(env, groups=groups).begin_and_act(*range(12)))
    ended = (rows["terminated"] | rows["truncated"]) & rows["valid"]
    assert ended.sum() > 5
    for column in range(COLUMNS):
        begin = 0
        for row in np.flatnonzero(ended[:, column]).tolist():
            episode = slice(begin, row + 1)
            total = rows["reward"][episode, column].astype(np.float64).sum()
            assert rows["episode_return"][row, column] == pytest.approx(total, rel=1e-5, abs=1e-4)
            assert rows["episode_length"][row, column] == rows["valid"][episode, column].sum()
            begin = row + 1
    lengths = rows["episode_length"][ended]
    assert lengths.max() > LENGTH, "no episode crossed a ticket"


@pytest.mark.skipif(not find_spec("ale_py"), reason="needs ale-py")
def test_rewards_are_clipped_and_end_with_a_life_while_returns_are_those_of_complete_games():
    game, tickets = "AsterixNoFrameskip-v4", range(20)
    settings = EnvConfig(reward_scale=0.5, max_frames=400).completed(game)
    envs = make_envs(game, 1, seed=5, settings=settings)  # each game takes a fifth of a second to start
    actor = Actor(0, 0, [PolicyColumns(envs, AtRandom(envs.spec.action), settings.learning_rewards)])
    actor.start(0)
    slots = [{**slot_of(envs.spec), "episode_length": np.full((LENGTH + 1, 1), 9)} for _ in tickets]
    for ticket, slot in zip(tickets, slots, strict=True):
        actor.act(Work(ticket, 3, 0.0, (PolicyWork(np.zeros(0, np.float32), slot),)))
    rows = whole(slots)
    raw = make_envs(game, 1, seed=5, settings=settings)
    raw.reset()
    paid = collect(raw, list(rows["action"]))
    assert paid["reward"].max() > 1
    assert (paid["over"] != paid["terminated"] | paid["truncated"]).any(), "no life was lost"
    np.testing.assert_array_equal(rows["reward"], paid["reward"].clip(-1, 1) * 0.5 * paid["valid"])
    np.testing.assert_array_equal(rows["terminated"], paid["terminated"])
    np.testing.assert_array_equal(rows["episode_length"] != NOT_ENDED, paid["over"])
    begin = 0
    for row in np.flatnonzero(paid["over"][:, 0]).tolist():
        played = slice(begin, row + 1)
        assert rows["episode_return"][row, 0] == paid["reward"][played, 0].sum()
        assert rows["episode_length"][row, 0] == paid["valid"][played, 0].sum()
        begin = row + 1
    assert begin > 0


class Lives:
    """Envs that pay 1 in each row. Each end of an episode is only a lost life, after which the game continues."""

    def __init__(self, envs: Envs) -> None:
        self._envs = envs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._envs, name)

    def recv(self, group: int = 0) -> Outcome:
        outcome = self._envs.recv(group)
        return outcome._replace(reward=np.ones_like(outcome.reward), over=np.zeros_like(outcome.terminated))


def test_a_reset_row_after_a_lost_life_has_no_reward():
    envs = cast(Envs, Lives(make_envs(WANDERER, COLUMNS, seed=0)))
    stage = Stage(WANDERER)
    stage.actor = Actor(0, 0, [PolicyColumns(envs, stage.policy)])
    rows = whole(stage.begin_and_act(*range(4)))
    assert not rows["valid"].all()
    np.testing.assert_array_equal(rows["reward"], rows["valid"])


def test_a_second_start_begins_new_episodes():
    stage = Stage("Pendulum-v1")
    first = stage.begin_and_act(0)[0]
    again = stage.begin_and_act(0)[0]
    assert (first["observation"][0] != again["observation"][0]).any()
    last = stage.act(*range(1, 29))[-1]
    assert (last["truncated"][LENGTH - 4 :].sum(), last["episode_length"].max()) == (COLUMNS, 200)


def long_slot(spec: EnvSpec, length: int) -> Tree:
    shapes = {field.name: ((length + 1, 1, *field.shape), field.dtype) for field in env_fields(spec)}
    return {name: np.zeros(shape, dtype) for name, (shape, dtype) in shapes.items()}


@pytest.mark.parametrize("spread", [2_000, *thorough(0)])
def test_the_return_of_a_very_long_episode_is_accurate_to_one_in_a_million(spread):
    envs = make_envs(env_zoo.zoo_id(env_zoo.Payday), 1, seed=0)
    actor = Actor(0, 0, [PolicyColumns(envs, AtRandom(envs.spec.action))])
    actor.start(0, spread)
    slot = long_slot(envs.spec, env_zoo.Payday.length)
    actor.act(Work(0, 0, 0.0, (PolicyWork(np.zeros(0, np.float32), slot),)))
    ended = slot["episode_length"] > 0
    np.testing.assert_allclose(slot["episode_return"][ended], [0.1 * env_zoo.Payday.length], rtol=1e-6)


# --- snapshots ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "groups"), [("CartPole-v1", 1), ("Pendulum-v1", 2), (env_zoo.zoo_id(env_zoo.OwnSnapshots), 1)]
)
def test_a_restored_actor_continues_bit_for_bit(env, groups):
    stage, other = Stage(env, groups=groups), Stage(env, groups=groups, seed=0)
    stage.begin_and_act(0, 1, 2)
    state = stage.actor.snapshot()
    assert state is not None
    expected = stage.act(*range(3, 30))  # the snapshot must not change meanwhile
    other.begin_and_act(7)
    other.actor.restore(state)
    for slot, twin in zip(other.act(*range(3, 30)), expected, strict=True):
        assert_same(slot, twin)
    ended = np.concatenate([slot["terminated"] | slot["truncated"] for slot in expected])
    assert ended.any(), "no episode ended: its return was not put to the test"


def test_a_restored_actor_sees_the_frame_stacks_of_the_unfinished_episodes():
    stage, other = (Stage("offbeat/PixelsMotion-v0", frame_stack=3) for _ in range(2))
    last = stage.begin_and_act(0)[-1]
    assert not last["truncated"].any(), "the next ticket begins in the middle of an episode"
    state = stage.actor.snapshot()
    assert state is not None
    [expected] = stage.act(1)  # the snapshot must not change meanwhile
    other.actor.restore(state)
    assert_same(other.act(1)[0], expected)


def test_an_actor_that_is_restored_after_a_cut_begins_with_a_reset_row():
    stage, other = Stage("CartPole-v1"), Stage("CartPole-v1")
    stage.actor.start(0, cut=True)
    state = stage.actor.snapshot()
    assert state is not None
    other.actor.start(0)
    other.actor.restore(state)
    assert not other.act(0)[0]["valid"][0].any()


def test_the_reset_row_after_a_cut_has_nothing_of_the_ticket_that_the_slot_had_before():
    stage = Stage("CartPole-v1")
    stage.envs.spec = replace(stage.envs.spec, info=("success",))
    stage.actor.start(0, cut=True)
    slot = stage.slot() | {name: np.ones((LENGTH + 1, COLUMNS), np.bool_) for name in (NO_DECISION, ENV_STEP)}
    slot["info"] = np.ones((LENGTH + 1, COLUMNS, 1), np.float32)
    zeros = ("action", "reward", "terminated", "truncated", "valid", NO_DECISION, ENV_STEP)
    for name in zeros:
        slot[name][:] = 1
    stage.columns.start_ticket(PolicyWork(stage.vector, slot), 0, 0.0, 1)
    for name in zeros:
        assert not slot[name][0].any(), name
    assert np.isnan(slot["info"][0]).all()


def test_an_actor_on_envs_without_snapshots_has_no_snapshot_and_refuses_restore():
    stage = Stage(WANDERER)
    stage.begin_and_act(0)
    assert stage.actor.snapshot() is None
    with pytest.raises(TypeError, match="Wanderer"):
        stage.actor.restore({"policies": [{}], "cut": False})


# --- beginning at other moments of the episodes ---------------------------------------------------------------


def test_spread_columns_start_at_different_episode_steps_and_report_full_lengths():
    stage = Stage("Pendulum-v1")
    stage.actor.start(0, spread=100)
    rows = whole(stage.act(*range(30)))
    ends = np.argmax(rows["truncated"], axis=0)
    assert len(set(ends.tolist())) == COLUMNS
    assert ((ends >= 99) & (ends <= 199)).all(), "each has taken 0 to 99 steps of its 200"
    assert set(rows["episode_length"][rows["truncated"]].tolist()) == {200}
    plain = Stage("Pendulum-v1")
    [first] = plain.begin_and_act(0)
    assert (rows["observation"][0] != first["observation"][0]).any(axis=1).sum() >= COLUMNS - 1


def test_the_spread_is_determined_by_seed_actor_and_origin():
    def first_row(origin: int, seed: int = 0, actor: int = 0) -> list[float]:
        stage = Stage("Pendulum-v1")
        stage.actor = Actor(actor, seed, [stage.columns])
        stage.actor.start(origin, spread=50)
        row: list[float] = stage.act(0)[0]["observation"][0].tolist()
        return row

    assert first_row(0) == first_row(0)
    assert first_row(0) != first_row(8)
    assert first_row(0) != first_row(0, seed=1)
    assert first_row(0) != first_row(0, actor=1)


# --- being watched ------------------------------------------------------------------------------------------


class RecordingWatch:
    """Notes each call of the envs, and closes at one of them."""

    def __init__(self, close_at: int = -1) -> None:
        self.calls: list[bool] = []
        """Whether an episode may begin in it."""
        self.inside = False
        self._close_at = close_at

    def enter(self, *, resets: bool) -> None:
        assert not self.inside
        if len(self.calls) == self._close_at:
            raise Closed
        self.calls.append(resets)
        self.inside = True

    def leave(self) -> None:
        assert self.inside
        self.inside = False


@pytest.mark.parametrize("groups", [1, 2])
def test_every_env_call_is_watched_and_possible_resets_are_marked(groups):
    watch = RecordingWatch()
    stage = Stage("Pendulum-v1", groups=groups, watch=watch)
    rows = whole(stage.begin_and_act(*range(30)))
    assert not watch.inside
    calls = 1 + 30 * LENGTH * groups * 2 + 30
    assert len(watch.calls) == calls, "the reset, a send and a recv a row and group, and what each ticket tells"
    ended = np.flatnonzero(rows["truncated"].any(axis=1))
    resetting = 1 + len(ended) - (30 * LENGTH - 1 in ended)  # the first row, and the row after each end
    assert resetting >= 2
    assert sum(watch.calls) == 1 + resetting * groups * 2


def test_closing_the_gate_ends_an_actor_in_the_middle_of_a_ticket():
    stage = Stage(WANDERER, watch=RecordingWatch(close_at=5))
    with pytest.raises(Closed):
        stage.begin_and_act(0)


def test_the_longest_env_call_is_recorded():
    stage = Stage(WANDERER)
    stage.begin_and_act(0, 1)
    assert 0 < stage.actor.longest_stall <= stage.actor.timings.seconds["env"]


# --- ticket after ticket ------------------------------------------------------------------------------------


class TwoTickets:
    """A link with two tickets, 3 and 5, which then closes."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.committed: list[int] = []

    def next(self) -> Work:
        if len(self.committed) == 2:
            raise Closed
        ticket = 3 + 2 * len(self.committed)
        return self._memory.work(ticket, version=ticket // 4)

    def commit(self, work: Work, timings: Timings, longest_stall: float) -> None:
        assert timings.seconds["act"] > 0
        assert timings.seconds["wait/actor"] >= 0
        assert longest_stall > 0
        self.committed.append(work.ticket)


def test_an_actor_uses_the_version_of_its_link_for_each_ticket_until_the_link_closes():
    stage = Stage(WANDERER)
    pace, length = OnPolicyPace(4, 1), LENGTH
    fields = [*env_fields(stage.envs.spec), Field("behavior_log_prob", (), "float32")]
    shape = UnrollShape(pace, length, COLUMNS)
    unrolls = shape.slots(fields, private_arena(shape.slabs(fields)))
    weights = Weights(private_arena(weight_slabs(len(stage.vector), 2)))
    for version in (0, 1):
        weights.open(version)[:] = stage.vector * (1 + version)
        weights.commit(version)
    stage.actor.start(0)
    link = TwoTickets(Memory([(unrolls, weights)]))
    with pytest.raises(Closed):
        stage.actor.work(link)
    assert link.committed == [3, 5]
    assert [set(unrolls.open(ticket)["behavior_version"].tolist()) for ticket in (3, 5)] == [{0}, {1}]
    twin = Stage(WANDERER)
    [first] = twin.begin_and_act(3)
    twin.vector = twin.vector * 2
    [second] = twin.act(5)
    for ticket, slot in ((3, first), (5, second)):
        np.testing.assert_array_equal(unrolls.open(ticket)["observation"], slot["observation"])
        np.testing.assert_array_equal(unrolls.open(ticket)["action"][:length], slot["action"][:length])


def test_an_actor_of_two_policies_writes_the_rows_of_two_separate_actors():
    """Rows of the first do not depend on the second; the second has random streams of its own."""
    both, alone = Stage("Pendulum-v1"), Stage("Pendulum-v1")
    second = Stage("CartPole-v1")
    actor = Actor(0, 0, [both.columns, second.columns])
    actor.start(0)
    alone.actor.start(0)
    slots = [(both.slot(), second.slot()) for _ in range(6)]
    for ticket, (ours, theirs) in enumerate(slots):
        parts = (PolicyWork(both.vector, ours), PolicyWork(second.vector, theirs))
        actor.act(Work(ticket, 3, 0.0, parts))
    for (ours, theirs), expected in zip(slots, alone.act(*range(6)), strict=True):
        for name, array in expected.items():
            np.testing.assert_array_equal(ours[name], array, err_msg=name)
        assert theirs["valid"][:-1].any()
    replayed = actor.snapshot()
    assert replayed is not None
    assert len(replayed["policies"]) == 2
    follow = [(both.slot(), second.slot()) for _ in range(2)]
    for side, (ours, theirs) in enumerate(follow):
        if side:
            actor.restore(replayed)
        actor.act(Work(6, 3, 0.0, (PolicyWork(both.vector, ours), PolicyWork(second.vector, theirs))))
    for place in (0, 1):
        for name, array in follow[0][place].items():
            np.testing.assert_array_equal(array, follow[1][place][name], err_msg=name)


def test_policies_of_an_actor_have_separate_random_streams():
    first, second = Stage(WANDERER), Stage(WANDERER)
    actor, slots = Actor(0, 0, [first.columns, second.columns]), (first.slot(), second.slot())
    work = tuple(PolicyWork(first.vector, slot) for slot in slots)
    actor.start(0)
    actor.act(Work(0, 3, 0.0, work))
    ours, theirs = slots
    np.testing.assert_array_equal(ours["observation"][0], theirs["observation"][0])
    assert (ours["action"][:LENGTH] != theirs["action"][:LENGTH]).any()
    actor.start(1, spread=LENGTH)
    actor.act(Work(1, 3, 0.0, work))
    assert (ours["observation"][0] != theirs["observation"][0]).any(), "they have taken other random steps"


# --- whose fault ------------------------------------------------------------------------------------------------


def columns_of(env: str, policy: Any, *, no_decision: bool = False) -> tuple[Actor, Any]:
    """Return an actor with one policy, and a function that acts a ticket; `no_decision`: of the env's spec."""
    envs = make_envs(env, COLUMNS, seed=0)
    actor = Actor(0, 0, [PolicyColumns(envs, policy(envs.spec.action))])
    actor.start(0)
    slot = slot_of(replace(envs.spec, no_decision=no_decision))
    return actor, lambda: actor.act(Work(0, 0, 0.0, (PolicyWork(np.zeros(1, np.float32), slot),)))


class BreaksInRow(AtRandom):
    """Chooses NaN in one column from its third call on."""

    calls = 0

    def act(self, observation: Tree, random: np.random.Generator, state: Array | None = None) -> Acted:
        self.calls += 1
        acted = super().act(observation, random, state)
        if self.calls > 2:
            acted.action[2] = np.nan
        return acted


def test_the_policy_is_named_when_an_env_fails_because_of_nan_actions():
    _, act = columns_of("Pendulum-v1", BreaksInRow)
    with pytest.raises(RunFailed, match=r"the policy chose the action \[nan\] in Pendulum-v1, env 2") as failed:
        act()
    assert not isinstance(failed.value, EnvFailed)
    assert isinstance(failed.value.__cause__, EnvFailed)


def test_the_world_and_the_agent_are_named_when_a_policy_of_several_agents_chooses_nan():
    spec = EnvSpec("Worlds-v0", (), ActionSpec("box", (1,)), 6, agents=("red", "blue"), policy="good")
    actions = np.array([[0.0], [np.nan]], np.float32)
    fault = policy_fault(actions, spec, 4, EnvFailed("it broke"))
    assert "the action [nan] in Worlds-v0, world 2, agent blue: " in str(fault)


def test_the_policy_is_named_when_its_network_returns_nan_for_choices():
    stage = Stage("CartPole-v1")
    stage.vector[:] = np.nan
    with pytest.raises(NetworkFailed, match="the network of the policy returned NaN or infinity in CartPole-v1"):
        stage.begin_and_act(0)


def test_an_env_that_fails_is_named_with_the_env_steps_of_its_episode():
    class LateFault(gym.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            observation, _, *rest = super().step(action)
            self.steps = getattr(self, "steps", 0) + 1
            return observation, np.nan if self.steps == 2 else 1.0, *rest

    make: Any = lambda: LateFault(gym.make("Pendulum-v1"))  # noqa: E731
    gym.register("tests/LateFault-v0", make)
    _, act = columns_of("tests/LateFault-v0", AtRandom)
    with pytest.raises(EnvFailed, match=r"env 0: reward is NaN.*, after 1 env step of the episode. Run `"):
        act()


def test_an_env_that_fails_is_named_with_the_decisions_of_its_episode_if_some_steps_have_none():
    class FaultInTurn(curious_envs.Waiting):
        """There is a decision in its steps 1 and 4. Its step 6 fails."""

        def step(self, action: Any) -> Any:
            observation, reward, *rest = super().step(action)
            return observation, np.nan if self.age == 6 else reward, *rest

    make: Any = FaultInTurn
    gym.register("tests/FaultInTurn-v0", make)
    _, act = columns_of("tests/FaultInTurn-v0", AtRandom, no_decision=True)
    with pytest.raises(EnvFailed, match=r"env 0: reward is NaN.*, after 2 decisions of the episode. Run `"):
        act()


def test_a_vector_env_that_fails_is_named_without_env_steps_because_its_columns_differ_in_them():
    class Fails(CartPoleVectorEnv):
        def step(self, _action: Any) -> Any:
            raise ArithmeticError("no mass")

    make: Any = Fails
    gym.register("tests/FailingVector-v0", vector_entry_point=make)
    _, act = columns_of("tests/FailingVector-v0", AtRandom)
    with pytest.raises(EnvFailed, match=r"the vector env of which this is the first env raised .*: no mass\. Run `"):
        act()
