from __future__ import annotations

import pickle
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reference.replay import (
    FIELDS,
    LEAVES,
    PER_TICKET,
    WAITING_FIELDS,
    Chances,
    Key,
    SlowPriorities,
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
from offbeat.core.types import Array, Field, Tree
from offbeat.memory.arena import arena_bytes, private_arena
from offbeat.memory.replay.base import Samples
from offbeat.memory.replay.n_step import n_steps
from offbeat.memory.replay.priorities import Exponents
from offbeat.memory.replay.rings import Rings, RingShape
from offbeat.memory.replay.transitions import TransitionReplay

seeds = st.integers(0, 2**32 - 1)
GAMMA = 0.9


def shape_of(actors: int, columns: int, length: int, capacity: int, max_ahead: int, warmup: int = 1) -> RingShape:
    return RingShape(ReplayPace(Fraction(1), warmup, max_ahead), actors, columns, length, capacity)


def rings_of(shape: RingShape, fields: Sequence[Field] = FIELDS) -> Rings:
    return shape.slots(fields, private_arena(shape.slabs(fields)))


class Run:
    """Writers and a replay, side by side, and what should be found in it."""

    def __init__(
        self,
        shape: RingShape,
        seed: int = 0,
        *,
        n_step: int = 1,
        batch_size: int = 32,
        exponents: Exponents | None = None,
        chances: Chances | None = None,
        origin: int = 0,
        fields: Sequence[Field] = FIELDS,
    ) -> None:
        self.fields = fields
        self.shape, self.n_step, self.random = shape, n_step, np.random.default_rng(seed)
        self.writers = Writers(rings_of(shape, fields), self.random, chances or Chances(), origin)
        self.replay = self.new_replay(self.writers.rings, batch_size, exponents)
        self.replay.reset(origin)
        self.arguments: dict[str, Any] = {"batch_size": batch_size, "exponents": exponents}
        self._expected: tuple[range, dict[Key, Any]] = range(0), {}

    def new_replay(self, rings: Rings, batch_size: int, exponents: Exponents | None) -> TransitionReplay:
        return TransitionReplay(rings, batch_size=batch_size, n_step=self.n_step, gamma=GAMMA, exponents=exponents)

    def step(self) -> None:
        """Let the next ticket be taken in, while the pace lets actors be ahead, and be writing."""
        prefix = self.replay.next_ticket + 1
        self.writers.go_ahead(prefix, prefix + self.shape.pace.max_ahead)
        self.completed = self.replay.take_in(prefix - 1, 10 * prefix)

    def steps(self, count: int) -> Run:
        for _ in range(count):
            self.step()
        return self

    def expected(self) -> dict[Key, Any]:
        """Return the transitions of the window, which are computed once for each."""
        window = self.replay.window
        if self._expected[0] != window:
            twin = decisions if self.fields is WAITING_FIELDS else transitions
            self._expected = window, twin(self.writers.committed, window, self.shape.actors, self.n_step, GAMMA)
        return self._expected[1]

    def keys(self, samples: Samples) -> list[Key]:
        """Which rows were sampled, by the numbers that their observations have."""
        where = {
            int(number): (ticket, row, column)
            for ticket in self.replay.window
            for (row, column), number in np.ndenumerate(self.writers.committed[ticket]["observation/number"][:-1])
            if self.writers.committed[ticket]["valid"][row, column]
        }
        return [where[number] for number in samples.arrays["observation/number"].tolist()]

    def assert_whole(self, samples: Samples) -> None:
        """All that a sample says is what was committed of that row, and of its successor."""
        expected, arrays, committed = self.expected(), samples.arrays, self.writers.committed
        for i, (ticket, row, column) in enumerate(self.keys(samples)):
            transition = expected[ticket, row, column]
            for name in (*LEAVES, "action", "recorded"):
                np.testing.assert_array_equal(arrays[name][i], committed[ticket][name][row, column], err_msg=name)
            last, after, _ = transition.next
            for name in LEAVES:
                np.testing.assert_array_equal(arrays[f"next/{name}"][i], committed[last][name][after, column])
            assert arrays["reward"][i] == pytest.approx(transition.reward, rel=1e-6)
            assert arrays["discount"][i] == np.float32(transition.discount)
            assert samples.tickets[i] == ticket
            assert samples.behavior_updates[i] == 10 * (ticket + 1)


@st.composite
def runs(draw: st.DrawFn, exponents: Exponents | None = None) -> Run:
    actors, columns, length = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    max_ahead = draw(st.integers(0, 5))
    least = (max_ahead + actors) * columns * length
    shape = shape_of(actors, columns, length, draw(st.integers(least, least + 40)), max_ahead)
    n_step = draw(st.integers(1, min(5, shape.tickets // actors * length)))
    often = st.sampled_from([0.0, 0.1, 0.4])
    fields = draw(st.sampled_from([FIELDS, WAITING_FIELDS]))
    waits = (draw(st.sampled_from([0.0, 0.4, 0.8])), draw(often)) if fields is WAITING_FIELDS else ()
    chances = Chances(draw(often), draw(often), draw(often), draw(often), *waits)
    sizes = {"n_step": n_step, "batch_size": min(24, shape.capacity), "origin": draw(st.sampled_from([0, 0, 1, 17]))}
    return Run(shape, draw(seeds), exponents=exponents, chances=chances, fields=fields, **sizes)


# --- what is sampled, while actors write --------------------------------------------------------------------


@examples(30)
@given(run=runs(), seed=seeds)
def test_each_sample_is_a_valid_committed_row_of_the_window_with_its_successor(run, seed):
    for step in range(3 * run.shape.slots_per_ring * run.shape.actors):
        run.step()
        assert run.replay.size == len(run.expected())
        if run.replay.size and step % 3 == 0:
            random = np.random.default_rng(seed)
            run.assert_whole(run.replay.sample(random))


@examples(30)
@given(run=runs(), seed=seeds)
def test_rows_being_written_by_actors_change_no_sample(run, seed):
    for _ in range(2 * run.shape.slots_per_ring * run.shape.actors):
        run.step()
        if run.replay.size:
            before = copied(run.replay.sample(np.random.default_rng(seed)))
            prefix = run.replay.next_ticket
            run.writers.go_ahead(prefix, prefix + run.shape.pace.max_ahead)
            assert_equal(run.replay.sample(np.random.default_rng(seed)), before)


def test_all_transitions_of_the_window_are_sampled_uniformly():
    run = Run(shape_of(2, 3, 4, 60, 2), 1, batch_size=60).steps(23)
    random, counts = np.random.default_rng(0), dict.fromkeys(run.expected(), 0)
    assert 20 < len(counts) < 50  # and the others are invalid
    for _ in range(500):
        for key in run.keys(run.replay.sample(random)):
            counts[key] += 1
    assert chi_square(list(counts.values())) > 0.01


@pytest.mark.parametrize(
    ("fields", "chances"), [(FIELDS, Chances(invalid=0.95)), (WAITING_FIELDS, Chances(waits=0.9, absent=0.5))]
)
def test_samples_are_uniform_when_nearly_all_rows_are_invalid(fields, chances):
    run = Run(shape_of(1, 2, 5, 200, 0), 1, batch_size=200, chances=chances, fields=fields).steps(30)
    random, counts = np.random.default_rng(0), dict.fromkeys(run.expected(), 0)
    assert 2 < len(counts) < 20
    for _ in range(50):
        for key in run.keys(run.replay.sample(random)):
            counts[key] += 1
    assert chi_square(list(counts.values())) > 0.01


def test_sampling_uses_one_random_number_per_transition():
    for invalid in (0.0, 0.7):
        run = Run(shape_of(1, 2, 5, 200, 0), 1, batch_size=64, chances=Chances(invalid=invalid)).steps(30)
        random, same = np.random.default_rng(5), np.random.default_rng(5)
        run.replay.sample(random)
        same.integers(run.replay.size, size=64)
        assert random.integers(2**60) == same.integers(2**60)


def test_sampling_without_a_valid_row_is_refused():
    run = Run(shape_of(1, 2, 3, 30, 1), batch_size=8, chances=Chances(invalid=1.0)).steps(7)
    with pytest.raises(RunFailed, match=r"no transition: in tickets 2 to 6 .*larger capacity"):
        run.replay.sample(np.random.default_rng(0))


def test_samples_have_the_documented_fields_shapes_and_dtypes():
    run = Run(shape_of(2, 3, 4, 60, 2), n_step=2, batch_size=5, exponents=Exponents(0.6, 0.4)).steps(5)
    samples = run.replay.sample(np.random.default_rng(0))
    assert {name: (array.shape, array.dtype.name) for name, array in samples.arrays.items()} == {
        "observation/number": ((5,), "int64"),
        "observation/image": ((5, 2, 3), "uint8"),
        "next/observation/number": ((5,), "int64"),
        "next/observation/image": ((5, 2, 3), "uint8"),
        "action": ((5, 2), "float32"),
        "reward": ((5,), "float32"),
        "recorded": ((5, 3), "float32"),
        "discount": ((5,), "float32"),
        "weight": ((5,), "float32"),
    }


@pytest.mark.parametrize("exponents", [None, Exponents(0.6, 0.4)])
def test_a_sample_stays_unchanged_during_the_next_call_of_sample(exponents):
    run = Run(shape_of(2, 3, 4, 60, 2), n_step=2, batch_size=11, exponents=exponents).steps(9)
    random = np.random.default_rng(0)
    first = run.replay.sample(random)
    kept, arrays = copied(first), dict(first.arrays)
    if exponents:
        run.replay.update_priorities(first, np.arange(11))
    second = copied(run.replay.sample(random))
    assert_equal(first, kept)
    third = run.replay.sample(random)
    for name, array in arrays.items():
        assert third.arrays[name] is array
        assert (kept.arrays[name] != second.arrays[name]).any() or name == "discount"


def test_tickets_must_be_taken_in_in_order():
    run = Run(shape_of(2, 3, 4, 60, 2)).steps(3)
    for ticket in (2, 4):
        with pytest.raises(ValueError, match=f"got ticket {ticket}, but the next ticket to take in is 3"):
            run.replay.take_in(ticket, 0)


# --- rewards of n steps -------------------------------------------------------------------------------------

SIX = {"reward": [1, 2, 4, 8, 16, 32]}
"""A column of two tickets of three rows; gamma is 1/2."""


@pytest.mark.parametrize(
    ("flags", "n", "row", "reward", "discount", "following"),
    [
        ({}, 1, 0, 1, 1 / 2, 1),
        ({}, 2, 0, 1 + 2 / 2, 1 / 4, 2),
        ({}, 4, 0, 1 + 2 / 2 + 4 / 4 + 8 / 8, 1 / 16, 4),  # over the ticket's end
        ({}, 3, 4, 16 + 32 / 2, 1 / 4, 6),  # up to the window's end
        ({}, 3, 5, 32, 1 / 2, 6),
        ({"terminated": [1]}, 3, 0, 1 + 2 / 2, 0, 2),
        ({"terminated": [0]}, 1, 0, 1, 0, 1),
        ({"truncated": [1]}, 3, 0, 1 + 2 / 2, 1 / 4, 2),
        ({"truncated": [0]}, 1, 0, 1, 1 / 2, 1),
        ({"terminated": [1], "truncated": [1]}, 3, 0, 1 + 2 / 2, 0, 2),
        ({"terminated": [3]}, 3, 0, 1 + 2 / 2 + 4 / 4, 1 / 8, 3),  # it ends after the three
        ({"terminated": [2]}, 3, 0, 1 + 2 / 2 + 4 / 4, 0, 3),
        ({"invalid": [1]}, 3, 0, 1, 1 / 2, 1),
        ({"invalid": [3]}, 4, 1, 2 + 4 / 2, 1 / 4, 3),  # a cut at the second ticket's first row
        ({"invalid": [3], "terminated": [2]}, 4, 2, 4, 0, 3),
        ({"invalid": [1], "terminated": [1]}, 3, 0, 1, 1 / 2, 1),  # of a row that is not taken
    ],
)
def test_n_step_returns_stop_at_episode_ends_and_the_end_of_the_window(flags, n, row, reward, discount, following):
    shape = shape_of(1, 1, 3, 6, 0)
    rings = rings_of(shape)
    for ticket in range(2):
        slot = rings.open(ticket)
        slot["observation/number"][:, 0] = np.arange(4) + 3 * ticket
        slot["reward"][:3, 0] = SIX["reward"][3 * ticket : 3 * ticket + 3]
        for name in ("terminated", "truncated"):
            slot[name][:3, 0] = [3 * ticket + i in flags.get(name, []) for i in range(3)]
        slot["valid"][:3, 0] = [3 * ticket + i not in flags.get("invalid", []) for i in range(3)]
    replay = TransitionReplay(rings, batch_size=6, n_step=n, gamma=0.5)
    for ticket in range(2):
        replay.take_in(ticket, 0)
    found = sampled_row(replay, row)
    assert found == (row, reward, discount, following)


def sampled_row(replay: TransitionReplay, row: int) -> tuple[int, float, float, int]:
    random = np.random.default_rng(0)
    for _ in range(100):
        arrays = replay.sample(random).arrays
        for i in np.flatnonzero(arrays["observation/number"] == row):
            return row, *(arrays[name][i].item() for name in ("reward", "discount", "next/observation/number"))
    raise AssertionError("never sampled")


@examples(100)
@given(n=st.integers(1, 6), size=st.integers(1, 20), seed=seeds)
def test_n_step_returns_equal_those_of_a_row_by_row_computation(n, size, seed):
    random = np.random.default_rng(seed)
    reward = random.standard_normal((n, size)).astype(np.float32)
    terminated, truncated, valid = (random.random((n, size)) < chance for chance in (0.2, 0.2, 0.8))
    valid[0] = True
    left = random.integers(1, n + 2, size)
    reward[np.arange(n)[:, None] >= left] = np.nan
    found = n_steps(reward, terminated, truncated, valid, left, GAMMA)
    for i in range(size):
        total, discount, steps = 0.0, 1.0, 0
        while True:
            total += discount * float(reward[steps, i])
            discount *= GAMMA
            steps += 1
            if terminated[steps - 1, i]:
                discount = 0.0
            if terminated[steps - 1, i] or truncated[steps - 1, i] or steps == min(n, left[i]) or not valid[steps, i]:
                break
        assert found.reward[i] == pytest.approx(total, rel=1e-6, abs=1e-6)
        assert found.discount[i] == np.float32(discount)
        assert found.steps[i] == steps


# --- priorities ---------------------------------------------------------------------------------------------


@examples(30)
@given(run=runs(Exponents(0.6, 0.4)), seed=seeds)
def test_priorities_equal_those_of_a_slow_reference_and_samples_are_consistent(run, seed):
    random, slow = np.random.default_rng(seed), SlowPriorities(0.6)
    for _ in range(2 * run.shape.slots_per_ring * run.shape.actors):
        known = run.expected()
        run.step()
        now = run.expected()
        slow.of = {key: slow.of[key] for key in known if key in now}
        slow.enter([key for key in now if key not in known])
        assert run.completed == len(now.keys() - known.keys())
        assert run.replay.size == len(now)
        np.testing.assert_allclose(priorities_in(run), [slow.of[key] for key in sorted(now)])
        if run.replay.size:
            samples = run.replay.sample(random)
            run.assert_whole(samples)
            keys = run.keys(samples)
            np.testing.assert_allclose(samples.arrays["weight"], slow.weights(keys, 0.4), rtol=1e-5)
            errors = np.array([hash((key, seed)) % 1000 / 100 for key in keys], np.float32)  # one a row
            run.replay.update_priorities(samples, errors)
            slow.update(keys, errors.tolist())


def priorities_in(run: Run) -> list[float]:
    """Those that are not 0, in the order of tickets, rows and columns."""
    kept = [part for name, part in run.replay.arrays().items() if name.startswith("priorities/")]
    return [float(priority) for priority in np.concatenate(kept) if priority]


def test_rows_that_left_the_window_since_they_were_sampled_get_no_priority():
    run = Run(shape_of(1, 2, 1, 6, 2), batch_size=6, exponents=Exponents(1, 1), chances=Chances(0, 0, 0, 0)).steps(3)
    samples = run.replay.sample(np.random.default_rng(0))
    tickets = samples.tickets.copy()
    assert set(tickets.tolist()) == {0, 1, 2}
    run.steps(2)  # of 6 slots: 0 and 1 have left the window, and nothing lies there
    run.replay.update_priorities(samples, tickets + 5.0)
    np.testing.assert_allclose(priorities_in(run), [7 + 1e-6] * 2 + [1.0] * 4)
    run.steps(4)  # 0 .. 2 have given way to 6 .. 8
    run.replay.update_priorities(samples, tickets + 50.0)
    assert priorities_in(run) == [7 + 1e-6] * 6


def test_a_replay_without_priorities_refuses_priority_updates():
    run = Run(shape_of(1, 2, 1, 6, 2), batch_size=6).steps(3)
    samples = run.replay.sample(np.random.default_rng(0))
    with pytest.raises(ValueError, match="there are no priorities"):
        run.replay.update_priorities(samples, np.ones(6))


# --- what a checkpoint keeps --------------------------------------------------------------------------------


@examples(30)
@given(exponents=st.sampled_from([None, Exponents(0.6, 0.4)]), data=st.data())
def test_a_restored_replay_samples_and_continues_bit_for_bit(exponents, data):
    run = data.draw(runs(exponents))
    run.steps(data.draw(st.integers(0, 2 * run.shape.slots_per_ring * run.shape.actors)))
    before = learn(run.replay, 1)
    state, arrays = pickle.loads(pickle.dumps((run.replay.state(), run.replay.arrays())))
    again = restored(run, state, arrays)
    assert again.window == run.replay.window
    if before:
        assert_equal(run.replay.sample(np.random.default_rng(0)), again.sample(np.random.default_rng(0)))
    for _ in range(2 * run.shape.slots_per_ring * run.shape.actors):
        run.step()  # first, so that new rows get the highest priority of before
        rewrite(run, again)
        again.take_in(run.replay.next_ticket - 1, 10 * run.replay.next_ticket)
        assert again.size == run.replay.size
        for one, other in zip(learn(run.replay, 2), learn(again, 2), strict=True):
            assert_equal(one, other)


def restored(run: Run, state: Any, arrays: Tree) -> TransitionReplay:
    """A replay on other memory, full of something else."""
    memory = private_arena(run.shape.slabs(run.fields))
    for array in memory.values():
        array[...] = 1
    replay = run.new_replay(run.shape.slots(run.fields, memory), **run.arguments)
    replay.restore(state)
    replay.load(arrays)
    return replay


def learn(replay: TransitionReplay, updates: int) -> list[Samples]:
    """Sample some batches, and set priorities where there are any."""
    random, batches = np.random.default_rng(3), []
    for _ in range(updates if replay.size else 0):
        samples = replay.sample(random)
        if "weight" in samples.arrays:
            replay.update_priorities(samples, samples.cells % 7 * 0.3)
        batches.append(copied(samples))
    return batches


def rewrite(run: Run, replay: TransitionReplay) -> None:
    """Let the same ticket be written once more, on the memory of another replay."""
    ticket = run.replay.next_ticket - 1
    source, target = run.writers.rings._views(ticket, run.shape.length + 1), replay._rings.open(ticket)
    for name, array in target.items():
        rows = slice(None) if name in LEAVES or name in PER_TICKET else slice(run.shape.length)
        array[rows] = source[name][rows]


def test_checkpoint_arrays_are_contiguous_views_of_the_window_and_the_next_rows():
    run = Run(shape_of(2, 3, 4, 60, 2))
    assert run.replay.arrays() == {}
    for step in range(40):
        run.step()
        arrays = run.replay.arrays()
        assert all(part.flags.c_contiguous and not part.flags.owndata for part in arrays.values())
        assert {name.split("/", 2)[2] for name in arrays} == {
            field.name for field in FIELDS if not field.name.startswith(("episode", "behavior"))
        }
        rows = sum(len(part) for name, part in arrays.items() if name.endswith("/reward"))
        kept = min(step + 1, run.shape.tickets) * 4
        assert kept < rows <= kept + 4  # one for each stretch


def test_a_replay_of_another_topology_is_refused():
    run = Run(shape_of(2, 3, 4, 60, 2)).steps(9)
    other = Run(shape_of(2, 3, 4, 72, 2)).steps(9)
    run.replay.restore(run.replay.state())
    with pytest.raises(ConfigError, match="another topology: resume with the same actors, envs_per_actor"):
        run.replay.load(other.replay.arrays())
    arrays = run.replay.arrays()
    name = next(name for name in arrays if name.endswith("reward"))
    with pytest.raises(ConfigError, match="another topology"):
        run.replay.load(arrays | {name: arrays[name].astype(np.float64)})
    with_priorities = Run(run.shape, exponents=Exponents(0.6, 0.4)).steps(9)
    for state in (other.replay.state(), with_priorities.replay.state()):
        with pytest.raises(ConfigError, match="another topology"):
            run.replay.restore(state)


def test_reset_empties_the_replay_and_starts_its_window_at_the_given_ticket():
    run = Run(shape_of(2, 3, 4, 60, 2), exponents=Exponents(0.6, 0.4)).steps(9)
    run.replay.reset(21)
    assert (run.replay.window, run.replay.size) == (range(21, 21), 0)
    run.writers.go_ahead(22, 22)
    run.replay.take_in(21, 0)
    assert run.replay.window == range(21, 22)
    assert set(run.replay.sample(np.random.default_rng(0)).tickets.tolist()) == {21}


# --- slots --------------------------------------------------------------------------------------------------


@examples(60)
@given(run=runs(), data=st.data())
def test_the_learner_reads_the_rows_that_were_written_for_each_ticket(run, data):
    run.steps(data.draw(st.integers(1, 40)))
    for ticket in run.replay.window:
        rows = run.replay.ticket(ticket)
        for name, part in run.writers.committed[ticket].items():
            if not name.startswith("episode"):
                whole = part if name in PER_TICKET else part[:-1]
                np.testing.assert_array_equal(rows[name], whole, err_msg=name)


def test_slots_are_views_of_one_buffer_with_a_row_for_the_next_observation():
    shape = shape_of(2, 3, 4, 60, 2)
    rings = rings_of(shape)
    slot, rows = rings.open(3), rings.ticket(3)
    assert {name: array.shape for name, array in slot.items()} == {
        field.name: (3, *field.shape) if field.per == "unroll" else (5, 3, *field.shape) for field in FIELDS
    }
    assert all(np.shares_memory(rows[name], array) for name, array in slot.items())
    assert all(len(rows[name]) == 4 for name in rows if name not in PER_TICKET)


@examples(60)
@given(actors=st.integers(1, 4), length=st.integers(1, 3), count=st.integers(1, 40))
def test_opening_a_ticket_keeps_the_final_observation_of_the_one_before(actors, length, count):
    rings = rings_of(shape_of(actors, 2, length, 2 * actors * length, 0))
    for ticket in range(count):
        slot = rings.open(ticket)
        if ticket >= actors:
            assert (slot["observation/number"][0] == ticket - actors + 1).all()
        slot["observation/number"][-1] = ticket + 1


def test_only_the_first_ticket_of_an_actor_is_not_a_continuation():
    shape = shape_of(3, 1, 1, 20, 1)
    assert [shape.is_cut(ticket) for ticket in range(5)] == [False, False, False, True, True]


@examples(100)
@given(
    actors=st.integers(1, 5),
    columns=st.integers(1, 5),
    length=st.integers(1, 5),
    ahead=st.integers(0, 9),
    data=st.data(),
)
def test_the_window_has_the_capacity_and_the_rings_exactly_the_room_for_tickets_in_flight(
    actors, columns, length, ahead, data
):
    least = (ahead + actors) * columns * length
    shape = shape_of(actors, columns, length, data.draw(st.integers(least, 4 * least)), ahead)
    window = shape.window(1000)
    assert window.stop == 1000
    assert 0 <= len(window) * columns * length - shape.capacity < columns * length
    slots = actors * shape.slots_per_ring
    written_last = 1000 - 1 + ahead + actors
    assert 0 <= slots - (written_last - window.start + 1) < actors
    assert shape.window(2) == range(max(0, 2 - len(window)), 2)
    assert shape.window(1000, origin=999) == range(999, 1000)


# --- what cannot work ---------------------------------------------------------------------------------------


def refusal(make: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        make()
    return str(refused.value)


def test_a_capacity_below_the_tickets_in_flight_is_refused_with_the_arithmetic():
    text = refusal(lambda: shape_of(2, 4, 8, 191, 4))
    assert "capacity is 191" in text
    assert "max_ahead + actors = 4 + 2 tickets of chunk_length x envs_per_actor = 8 x 4 rows are stored" in text
    assert "which takes 192" in text
    assert "--set capacity=192" in text
    assert shape_of(2, 4, 8, 192, 4)


def test_a_warmup_above_the_capacity_is_refused():
    text = refusal(lambda: shape_of(1, 1, 1, 50, 0, warmup=51))
    assert "warmup is 51 transitions, but capacity is 50" in text
    assert "--set capacity=51 or more, or --set warmup=50 or less" in text
    assert shape_of(1, 1, 1, 50, 0, warmup=50)


def test_a_batch_size_above_the_capacity_is_refused():
    rings = rings_of(shape_of(1, 1, 1, 50, 0))
    text = refusal(lambda: TransitionReplay(rings, batch_size=51, n_step=1, gamma=GAMMA))
    assert "capacity is 50 transitions, but a batch has 51: pass --set capacity=51 or more" in text
    assert TransitionReplay(rings, batch_size=50, n_step=1, gamma=GAMMA)


def test_an_n_step_longer_than_a_column_of_the_window_is_refused():
    shape = shape_of(2, 3, 4, 60, 2)  # 5 tickets of two actors: two of the same one at least
    shape.check(1, 8)
    text = refusal(lambda: shape.check(1, 9))
    assert "n_step is 9, but with capacity=60 the replay holds 8 successive rows of an env" in text
    assert "--set n_step=8 or less, or --set capacity=72 or more" in text
    shape_of(2, 3, 4, 72, 2).check(1, 9)


def test_describe_reports_the_size_of_the_replay():
    shape = shape_of(2, 3, 4, 60, 2)
    assert shape.purpose == (
        "capacity / (chunk_length x envs_per_actor) + max_ahead + actors = 5 + 2 + 2 tickets, in all 10 slots of "
        "4 x 3 rows, need"
    )
    size = arena_bytes(shape.slabs(FIELDS))
    assert shape.describe(FIELDS) == (
        f"replay: 60 transitions, {size / 1e6:.1f} MB\n"
        f"5 tickets of 4 x 3 rows; 2 x 5 slots including max_ahead + actors = 2 + 2; {size / 120:.0f} bytes per row"
    )


def test_the_arrays_of_a_ring_have_one_row_more_than_its_slots():
    slabs = {name: (shape, dtype) for name, shape, dtype in shape_of(2, 3, 4, 60, 2).slabs(FIELDS)}
    assert slabs["replay/observation/image"] == ((2, 21, 3, 2, 3), "uint8")
    assert slabs["replay/behavior_version"] == ((2, 5, 3), "int64")
    assert len(slabs) == len(FIELDS)


def test_a_ring_shape_can_be_pickled():
    shape = shape_of(2, 3, 4, 60, 2)
    assert pickle.loads(pickle.dumps(shape)) == shape


def test_a_replay_with_a_single_observation_leaf_is_sampled():
    fields = [Field("observation", (2,), "float32"), *FIELDS[2:]]
    shape = shape_of(1, 1, 2, 4, 0)
    rings = shape.slots(fields, private_arena(shape.slabs(fields)))
    slot = rings.open(0)
    slot["observation"][:] = np.arange(6).reshape(3, 1, 2)
    slot["valid"][:2] = True
    replay = TransitionReplay(rings, batch_size=3, n_step=1, gamma=GAMMA)
    replay.take_in(0, 0)
    arrays: dict[str, Array] = replay.sample(np.random.default_rng(0)).arrays
    np.testing.assert_array_equal(arrays["next/observation"], arrays["observation"] + 2)
