from __future__ import annotations

import pickle
from collections.abc import Sequence as Several
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.reference.replay import (
    FIELDS,
    LEAVES,
    WAITING_FIELDS,
    Chances,
    Key,
    Transition,
    Writers,
    assert_equal,
    copied,
    decisions,
    transitions,
)
from tests.support.goodness_of_fit import chi_square
from tests.support.thorough import examples

from offbeat.core.errors import ConfigError, RunFailed
from offbeat.core.pace import ReplayPace
from offbeat.core.types import NO_DECISION, Array, Field
from offbeat.memory.arena import private_arena
from offbeat.memory.replay.base import Samples
from offbeat.memory.replay.priorities import Exponents
from offbeat.memory.replay.rings import Rings, RingShape
from offbeat.memory.replay.sequences import SequenceReplay

seeds = st.integers(0, 2**32 - 1)
GAMMA = 0.9
Sequence = tuple[int, int]
"""(ticket, column)."""


class Run:
    """Writers and a replay of sequences, side by side, and what should be found in it."""

    def __init__(
        self,
        actors: int = 2,
        columns: int = 3,
        length: int = 4,
        capacity: int = 120,
        max_ahead: int = 2,
        *,
        before: int = 1,
        origin: int = 0,
        seed: int = 0,
        chances: Chances | None = None,
        fields: Several[Field] = FIELDS,
        **settings: Any,
    ) -> None:
        self.fields = fields
        self.shape = RingShape(ReplayPace(Fraction(1), 1, max_ahead), actors, columns, length, capacity)
        self.before, self.origin = before, origin
        self.settings: dict[str, Any] = {"batch_size": 8 * length, "n_step": 1, "gamma": GAMMA, **settings}
        self.writers = Writers(self.rings(), np.random.default_rng(seed), chances or Chances(), origin)
        self.replay = self.new_replay(self.writers.rings)
        self.replay.reset(origin)
        self._found: tuple[range, dict[int, dict[Key, Transition]]] = range(0), {}

    def rings(self) -> Rings:
        return self.shape.slots(self.fields, private_arena(self.shape.slabs(self.fields)))

    def new_replay(self, rings: Rings) -> SequenceReplay:
        return SequenceReplay(rings, burn_in=self.before * self.shape.length, **self.settings)

    def steps(self, count: int) -> Run:
        for _ in range(count):
            prefix = self.replay.next_ticket + 1
            self.writers.go_ahead(prefix, prefix + self.shape.pace.max_ahead)
            self.completed = self.replay.take_in(prefix - 1, 10 * prefix)
        return self

    def expected(self) -> list[Sequence]:
        """Return all that can be drawn: those that the window has from the beginning of the burn-in on."""
        window, columns = self.replay.window, range(self.shape.columns)
        reach = self.before * self.shape.actors
        return [
            (ticket, column)
            for ticket in window
            if ticket - reach >= window.start
            for column in columns
            if self.complete(ticket)[:, column].any()
        ]

    def transitions(self, ticket: int) -> dict[Key, Transition]:
        """Return the transitions of a ticket, computed once per window; no later step starts in another ticket."""
        if self._found[0] != self.replay.window:
            self._found = self.replay.window, {}
        found = self._found[1]
        if ticket not in found:
            committed, actors, n = self.writers.committed, self.shape.actors, self.settings["n_step"]
            alone = range(ticket, ticket + 1)
            if self.fields is WAITING_FIELDS:
                found[ticket] = decisions(committed, self.replay.window, actors, n, GAMMA, alone)
            else:
                found[ticket] = transitions(committed, alone, actors, n, GAMMA)
        return found[ticket]

    def complete(self, ticket: int) -> Array:
        """Return which rows of a ticket are transitions, [T, N]."""
        flags = np.zeros((self.shape.length, self.shape.columns), bool)
        for _, row, column in self.transitions(ticket):
            flags[row, column] = True
        return flags

    def leaf(self, name: str, ticket: int, row: int, column: int) -> Array:
        """Return an observation at a row that counts from the start of a ticket, over its end."""
        later, row_of_later = divmod(row, self.shape.length)
        if row > 0 and not row_of_later:
            later, row_of_later = later - 1, self.shape.length
        found: Array = self.writers.committed[ticket + later * self.shape.actors][name][row_of_later, column]
        return found

    def sequences(self, samples: Samples) -> list[Sequence]:
        return [
            (ticket, cell % self.shape.columns)
            for ticket, cell in zip(samples.tickets.tolist(), samples.cells.tolist(), strict=True)
        ]

    def assert_whole(self, samples: Samples) -> None:
        """All that a sample says is what was committed of these rows, and before and after them."""
        arrays, committed, actors, length = samples.arrays, self.writers.committed, self.shape.actors, self.shape.length
        for i, (ticket, column) in enumerate(self.sequences(samples)):
            own = committed[ticket]
            tickets = [committed[ticket - back * actors] for back in range(self.before, -1, -1)]
            np.testing.assert_array_equal(arrays["initial_state"][:, ...][i], tickets[0]["initial_state"][column])
            alone, complete = self.transitions(ticket), self.complete(ticket)[:, column]
            following = {
                row: (transition.next[0] - ticket) // actors * length + transition.next[1]
                for (_, row, of_column), transition in alone.items()
                if of_column == column
            }
            last, first = max(length, *following.values()), -self.before * length
            rows = [min(row, last) for row in range(first, len(arrays["resets"]) + first)]
            for name in LEAVES:
                expected = [self.leaf(name, ticket, row, column) for row in rows]
                np.testing.assert_array_equal(arrays[name][:, i], expected, err_msg=name)
            in_episode = [part["valid"] | part.get(NO_DECISION, False) for part in tickets]
            resets = [~flag for part in in_episode for flag in part[:-1, column]]
            resets += [False] * (len(rows) - len(resets))
            np.testing.assert_array_equal(arrays["resets"][:, i], resets)
            for name in ("action", "recorded"):
                np.testing.assert_array_equal(arrays[name][:, i], own[name][:-1, column], err_msg=name)
            np.testing.assert_array_equal(arrays["valid"][:, i], complete)
            for row in np.flatnonzero(complete).tolist():
                transition = alone[ticket, row, column]
                assert arrays["next"][row, i] == following[row]
                assert arrays["reward"][row, i] == pytest.approx(transition.reward, rel=1e-6)
                assert arrays["discount"][row, i] == np.float32(transition.discount)
            assert samples.behavior_updates[i] == 10 * (ticket + 1)
        assert len(samples.cells) == self.settings["batch_size"] // length


@st.composite
def runs(draw: st.DrawFn, exponents: Exponents | None = None) -> Run:
    actors, columns, length = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    max_ahead, before = draw(st.integers(0, 4)), draw(st.integers(0, 2))
    least = max(max_ahead + actors, (before + 1) * actors) * columns * length
    often = st.sampled_from([0.0, 0.1, 0.4])
    sizes = (actors, columns, length, draw(st.integers(max(least, 8 * length), least + 60 + 8 * length)), max_ahead)
    fields = draw(st.sampled_from([FIELDS, WAITING_FIELDS]))
    waits = (draw(st.sampled_from([0.0, 0.4, 0.8])), draw(often)) if fields is WAITING_FIELDS else ()
    chances = Chances(draw(often), draw(often), draw(often), draw(often), *waits)
    more: dict[str, Any] = {"n_step": draw(st.integers(1, length)), "exponents": exponents, "fields": fields}
    origin = draw(st.sampled_from([0, 0, 1, 17]))
    return Run(*sizes, before=before, origin=origin, seed=draw(seeds), chances=chances, **more)


# --- what is sampled, while actors write --------------------------------------------------------------------


TWO_STEPS_IN_TWO_ROWS: dict[str, Any] = {
    "length": 2,
    "n_step": 2,
    "fields": WAITING_FIELDS,
    "chances": Chances(waits=0.3),
}
"""In the second row of a ticket the next decision is in the next ticket, which an actor may be writing."""


@examples(20)
@example(run=Run(**TWO_STEPS_IN_TWO_ROWS), seed=0)
@given(run=runs(), seed=seeds)
def test_each_sample_is_a_committed_column_of_a_ticket_with_the_rows_before_and_after(run, seed):
    known: set[Key] = set()
    for step in range(2 * run.shape.slots_per_ring * run.shape.actors):
        run.steps(1)
        now = {key for ticket in run.replay.window for key in run.transitions(ticket)}
        assert run.completed == len(now - known), "those of tickets that are only burn-in count too"
        known, expected = now, run.expected()
        of = [int(run.complete(ticket)[:, column].sum()) for ticket, column in expected]
        assert run.replay.size == sum(of)
        if expected and step % 3 == 0:
            samples = run.replay.sample(np.random.default_rng(seed))
            assert set(run.sequences(samples)) <= set(expected)
            run.assert_whole(samples)
            assert run.replay.transitions == pytest.approx(8 * np.mean(of))


@examples(10)
@given(run=runs(), seed=seeds)
def test_rows_being_written_by_actors_change_no_sample(run, seed):
    for _ in range(2 * run.shape.slots_per_ring * run.shape.actors):
        run.steps(1)
        if run.replay.size:
            before = copied(run.replay.sample(np.random.default_rng(seed)))
            prefix = run.replay.next_ticket
            run.writers.go_ahead(prefix, prefix + run.shape.pace.max_ahead)
            assert_equal(run.replay.sample(np.random.default_rng(seed)), before)


@pytest.mark.parametrize("before", [0, 1])
def test_all_sequences_with_a_transition_are_sampled_uniformly(before):
    run = Run(length=2, seed=1, before=before, chances=Chances(invalid=0.5)).steps(43)
    random, counts = np.random.default_rng(0), dict.fromkeys(run.expected(), 0)
    assert 30 < len(counts) < (20 - 2 * before) * 3  # some have none
    for _ in range(300):
        for sequence in run.sequences(run.replay.sample(random)):
            counts[sequence] += 1
    assert chi_square(list(counts.values())) > 0.01


def test_sampling_without_a_transition_is_refused():
    run = Run(chances=Chances(invalid=1.0)).steps(12)
    with pytest.raises(RunFailed, match=r"no transition: in tickets 4 to 11 .*larger capacity"):
        run.replay.sample(np.random.default_rng(0))


def test_samples_have_the_documented_shapes_and_dtypes():
    run = Run(n_step=2, exponents=Exponents(0.6, 0.4)).steps(5)
    samples = run.replay.sample(np.random.default_rng(0))
    assert {name: (array.shape, array.dtype.name) for name, array in samples.arrays.items()} == {
        "observation/number": ((9, 8), "int64"),
        "observation/image": ((9, 8, 2, 3), "uint8"),
        "resets": ((9, 8), "bool"),
        "initial_state": ((8, 2), "float32"),
        "action": ((4, 8, 2), "float32"),
        "recorded": ((4, 8, 3), "float32"),
        "valid": ((4, 8), "bool"),
        "reward": ((4, 8), "float32"),
        "discount": ((4, 8), "float32"),
        "next": ((4, 8), "int64"),
        "weight": ((8,), "float32"),
    }


# --- priorities ---------------------------------------------------------------------------------------------


@examples(20)
@given(run=runs(Exponents(0.6, 0.4)), seed=seeds)
def test_sequences_are_sampled_in_proportion_to_their_errors_with_importance_weights(run, seed):
    random = np.random.default_rng(seed)
    run.steps(2 * run.shape.slots_per_ring * run.shape.actors)
    if not run.replay.size:
        return
    samples = run.replay.sample(random)
    run.assert_whole(samples)
    errors = {cell: 0.1 * (1 + cell % 5) for cell in set(samples.cells.tolist())}
    run.replay.update_priorities(samples, np.array([errors[cell] for cell in samples.cells.tolist()]))
    again = run.replay.sample(random)
    assert set(run.sequences(again)) <= set(run.expected())
    highest = max(1.0, *((error + 1e-6) ** 0.6 for error in errors.values()))
    priority = np.array([(errors[cell] + 1e-6) ** 0.6 if cell in errors else highest for cell in again.cells.tolist()])
    np.testing.assert_allclose(again.arrays["weight"], (priority.min() / priority) ** 0.4, rtol=1e-5)


def test_a_sequence_that_can_no_longer_be_sampled_gets_no_priority():
    run = Run(exponents=Exponents(1.0, 1.0), chances=Chances(0, 0, 0, 0)).steps(10)
    samples = copied(run.replay.sample(np.random.default_rng(0)))
    oldest = min(samples.tickets)
    while oldest >= run.replay.window.start + 2:
        run.steps(1)
    run.steps(1)
    assert oldest in run.replay.window
    run.replay.update_priorities(samples, np.full(8, 100.0))
    for seed in range(9):
        assert oldest not in run.replay.sample(np.random.default_rng(seed)).tickets


# --- what a checkpoint keeps ----------------------------------------------------------------------------------


WAITING = {"fields": WAITING_FIELDS, "chances": Chances(waits=0.7, absent=0.3)}


@pytest.mark.parametrize("exponents", [None, Exponents(0.6, 0.4)])
@pytest.mark.parametrize("steps", [3, 9, 47])
@pytest.mark.parametrize("rows", [{}, WAITING], ids=["all decisions", "some without"])
def test_a_restored_replay_gives_the_samples_of_an_uninterrupted_one(steps, exponents, rows):
    run = Run(exponents=exponents, **rows).steps(steps)
    if exponents and run.replay.size:
        samples = run.replay.sample(np.random.default_rng(1))
        run.replay.update_priorities(samples, np.arange(8) / 4)
    state, arrays = pickle.loads(pickle.dumps((run.replay.state(), run.replay.arrays())))
    other = run.new_replay(run.rings())
    other.restore(state)
    other.load(arrays)
    assert (other.size, other.window) == (run.replay.size, run.replay.window)
    for seed in range(3) if run.replay.size else ():
        assert_equal(other.sample(np.random.default_rng(seed)), run.replay.sample(np.random.default_rng(seed)))


@pytest.mark.parametrize("rows", [{}, WAITING], ids=["all decisions", "some without"])
def test_recover_uses_the_rows_and_states_written_for_a_dead_learner(rows):
    run = Run(**rows).steps(31)
    other = run.new_replay(run.writers.rings)
    other.recover(0, 31, behavior_updates=5)
    assert (other.size, other.window) == (run.replay.size, run.replay.window)
    one, two = (replay.sample(np.random.default_rng(0)) for replay in (run.replay, other))
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, two.arrays[name], err_msg=name)
    assert (two.behavior_updates == 5).all()


# --- what cannot work ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch_size": 10}, r"batch_size is 10 transitions.*chunk_length = 4: pass --set batch_size=8"),
        ({"batch_size": 3}, r"pass --set batch_size=4"),
        ({"n_step": 5}, r"n_step is 5.*chunk_length = 4.*--set n_step=4 or less, or --set chunk_length=5"),
        ({"before": 5}, r"capacity is 120.*2 actors.*20 \+ 4 rows of 3 columns: pass --set capacity=144 or more"),
        ({"before": 0.5}, r"burn_in is 2.0 env steps.*chunk_length = 4.*--set burn_in=4"),
    ],
)
def test_sequences_longer_than_the_rings_support_are_refused_with_the_arithmetic(changes, words):
    with pytest.raises(ConfigError, match=words):
        Run(**changes)
    Run(**{**changes, "batch_size": 8, "n_step": 4, "before": 4})
