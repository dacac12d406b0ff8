"""The replay that samples by task: whose rows, which context, and that a restored one continues with the same bits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.thorough import examples

from offbeat.core.errors import RunFailed
from offbeat.core.pace import ReplayPace
from offbeat.core.tasks import TaskSample
from offbeat.core.types import NOT_ENDED, Field, Tree
from offbeat.core.visits import TASK, Visits, task_of_visit
from offbeat.memory.arena import private_arena
from offbeat.memory.replay.base import Samples
from offbeat.memory.replay.rings import Rings, RingShape
from offbeat.memory.replay.tasks import MetaBatch, TaskReplay

FIELDS = [
    Field("observation", (), "int64"),
    Field("action", (1,), "float32"),
    Field("reward", (), "float32"),
    Field("terminated", (), "bool"),
    Field("truncated", (), "bool"),
    Field("valid", (), "bool"),
    Field("episode_return", (), "float64"),
    Field("episode_length", (), "int32"),
    Field("behavior_version", (), "int64", per="unroll"),
    Field(TASK, (), "int64", per="unroll"),
]
META = MetaBatch(tasks=2, rows=10, context=8)


class Row(NamedTuple):
    """Where a row of a ticket is."""

    ticket: int
    row: int
    column: int


class Writer:
    """Writes tickets as actors do; each observation has a number of its own."""

    def __init__(self, seed: int = 0, *, actors: int = 2, parts: int = 3, columns: int = 2, tasks: int = 3) -> None:
        self.length, self.tasks, self.random = 4, tasks, np.random.default_rng(seed)
        self.visits = Visits(actors, parts, self.length, prior_rows=min(6, parts * self.length - 1))
        self.order = TaskSample(seed, tasks, 1)
        capacity = 2 * (tasks + actors) * parts * self.length * columns
        self.shape = RingShape(ReplayPace(Fraction(1), 1, actors), actors, columns, self.length, capacity)
        self.rings = self.new_rings()
        self.written: dict[int, Tree] = {}
        self.numbers, self.ends = 0, 0.0
        """How many rows have been written; how often an episode ends in a row."""

    def new_rings(self) -> Rings:
        return self.shape.slots(FIELDS, private_arena(self.shape.slabs(FIELDS)))

    def replay(self, rings: Rings | None = None) -> TaskReplay:
        return TaskReplay(rings or self.rings, visited_tasks=self.tasks, meta_batch=META, gamma=0.9, visits=self.visits)

    def task(self, ticket: int) -> int:
        return task_of_visit(self.order, self.visits.of(ticket).number)

    def write(self, ticket: int) -> None:
        slot, lead = self.rings.open(ticket), (self.length + 1, self.shape.columns)
        slot["observation"][:] = self.numbers + np.arange(lead[0] * lead[1]).reshape(lead)
        self.numbers += lead[0] * lead[1]
        rows = (self.length, self.shape.columns)
        slot["reward"][:-1] = self.random.normal(size=rows)
        slot["action"][:-1] = self.random.normal(size=(*rows, 1))
        slot["terminated"][:-1], slot["truncated"][:-1] = False, False
        slot["valid"][:-1] = self.random.random(rows) < 0.8
        slot["valid"][0] |= self.visits.of(ticket).part > 0
        slot["valid"][1] = True
        slot["episode_length"][:-1] = np.where(self.random.random(rows) < self.ends, 1, NOT_ENDED)
        slot["episode_return"][:-1] = self.random.normal(size=rows)
        slot["behavior_version"][:], slot[TASK][:] = 0, self.task(ticket)
        self.written[ticket] = {name: array.copy() for name, array in slot.items()}

    def rows(self, ticket: int) -> Iterator[Row]:
        for row, column in zip(*np.nonzero(self.written[ticket]["valid"][:-1]), strict=True):
            yield Row(ticket, int(row), int(column))

    def observation(self, row: Row) -> int:
        return int(self.written[row.ticket]["observation"][row.row, row.column])

    def expected(self, window: range) -> tuple[dict[int, set[int]], dict[int, set[int]]]:
        """Return by task the observations of its rows in the window, and those of its newest context."""
        rows, contexts = defaultdict[int, set[int]](set), dict[int, set[int]]()
        open_visits = defaultdict[int, list[Row]](list)
        for ticket in range(window.stop):
            visit, task = self.visits.of(ticket), self.task(ticket)
            if ticket in window:
                rows[task] |= set(map(self.observation, self.rows(ticket)))
            before = visit.part * self.length
            open_visits[visit.number] += [r for r in self.rows(ticket) if before + r.row < self.visits.prior_rows]
            if visit.part == self.visits.prior_tickets - 1:
                contexts[task] = set(map(self.observation, open_visits[visit.number]))
        return rows, contexts


def taken_in(writer: Writer, replay: TaskReplay, tickets: int) -> TaskReplay:
    for ticket in range(replay.next_ticket, replay.next_ticket + tickets):
        writer.write(ticket)
        replay.take_in(ticket, 0)
    return replay


def by_task(samples: Samples, name: str, rows: int) -> list[set[int]]:
    return [set(part.tolist()) for part in samples.arrays[name].reshape(META.tasks, rows)]


@given(
    st.integers(0, 2**31),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(2, 5),
    st.integers(0, 90),
)
@examples(60)
def test_samples_are_rows_of_different_tasks_with_the_newest_context_of_each(
    seed: int, actors: int, parts: int, columns: int, tasks: int, more: int
) -> None:
    writer = Writer(seed, actors=actors, parts=parts, columns=columns, tasks=tasks)
    replay = taken_in(writer, writer.replay(), actors * parts * tasks + more)
    random = np.random.default_rng(seed)
    for _ in range(3):
        rows, contexts = writer.expected(taken_in(writer, replay, 1).window)
        samples = replay.sample(random)
        assert samples.arrays["reward"].shape == (META.tasks * META.rows,)
        found = by_task(samples, "observation", META.rows)
        context = by_task(samples, "context/observation", META.context)
        drawn = [next(task for task, own in rows.items() if observations <= own) for observations in found]
        assert len(set(drawn)) == META.tasks
        for task, observations in zip(drawn, context, strict=True):
            assert observations <= contexts[task]


def test_all_rows_of_a_task_and_its_whole_context_are_sampled() -> None:
    writer = Writer()
    replay, random = taken_in(writer, writer.replay(), 60), np.random.default_rng(0)
    for _ in range(15):
        replay.sample(random)
        taken_in(writer, replay, 1)
    rows, contexts = writer.expected(replay.window)
    found, context = set[int](), set[int]()
    for _ in range(100):
        samples = replay.sample(random)
        found |= set(samples.arrays["observation"].tolist())
        context |= set(samples.arrays["context/observation"].tolist())
    assert found == set.union(*rows.values())
    assert context == set.union(*contexts.values())


def test_a_sample_and_its_context_have_the_recorded_rows_and_the_observations_after_them() -> None:
    writer = Writer()
    samples = taken_in(writer, writer.replay(), 40).sample(np.random.default_rng(0))
    recorded = {
        writer.observation(row): (rows["action"][row.row, row.column], rows["reward"][row.row, row.column], row)
        for ticket, rows in writer.written.items()
        for row in writer.rows(ticket)
    }
    for prefix in ("", "context/"):
        arrays = {
            name: samples.arrays[prefix + name] for name in ("observation", "action", "reward", "next/observation")
        }
        for number, action, reward, following in zip(*arrays.values(), strict=True):
            expected_action, expected_reward, row = recorded[int(number)]
            assert (action, reward) == (expected_action, expected_reward)
            if row.row < writer.length - 1:
                assert following == writer.observation(row._replace(row=row.row + 1))


def test_a_replay_without_a_complete_context_cannot_be_sampled() -> None:
    writer = Writer(actors=1, parts=3)
    replay = taken_in(writer, writer.replay(), 1)
    with pytest.raises(RunFailed, match=r"no context of any task.*larger warmup"):
        replay.sample(np.random.default_rng(0))
    taken_in(writer, replay, 1)
    assert replay.sample(np.random.default_rng(0))


def test_tasks_repeat_only_if_there_are_too_few_with_a_context() -> None:
    writer = Writer(actors=1, parts=1, tasks=4)
    replay = taken_in(writer, writer.replay(), 1)
    first, second = by_task(replay.sample(np.random.default_rng(0)), "observation", META.rows)
    assert first & second
    taken_in(writer, replay, 1)
    first, second = by_task(replay.sample(np.random.default_rng(0)), "observation", META.rows)
    assert not first & second


@given(st.integers(0, 2**31), st.integers(1, 3), st.integers(1, 3), st.integers(20, 120))
@examples(30)
def test_a_restored_replay_gives_the_same_samples(seed: int, actors: int, parts: int, tickets: int) -> None:
    writer = Writer(seed, actors=actors, parts=parts)
    writer.ends = 0.1
    replay = taken_in(writer, writer.replay(), tickets)
    loaded = writer.replay(writer.new_rings())
    loaded.restore(replay.state())
    loaded.load({name: array.copy() for name, array in replay.arrays().items()})
    attached = writer.replay(writer.rings)
    attached.restore(replay.state())
    attached.attach({})
    for other in (loaded, attached):
        assert other.metrics() == replay.metrics()
        for number in range(3):
            expected = replay.sample(np.random.default_rng(number)).arrays
            found = other.sample(np.random.default_rng(number)).arrays
            assert {name: array.tobytes() for name, array in found.items()} == {
                name: array.tobytes() for name, array in expected.items()
            }


def test_a_replay_that_was_emptied_in_the_middle_of_a_visit_waits_for_a_whole_one() -> None:
    writer = Writer(actors=1, parts=3)
    taken_in(writer, writer.replay(), 1)
    replay = writer.replay()
    replay.reset(1)
    taken_in(writer, replay, 2)
    assert replay.metrics()["tasks_with_context"] == 0
    taken_in(writer, replay, 2)
    assert replay.metrics()["tasks_with_context"] == 1


def test_metrics_have_the_returns_of_prior_and_posterior_episodes_and_the_sizes_of_contexts() -> None:
    writer = Writer(actors=1, parts=2, columns=1)
    replay = writer.replay()
    returns: Any = [(3, -5.0), (5, -2.0), (9, -7.0), (14, -4.0), (22, -1.0)]  # (row of the run, return)
    for ticket in range(6):
        writer.write(ticket)
        slot = writer.rings.ticket(ticket)
        for row, value in returns:
            if row // writer.length == ticket:
                slot["episode_length"][row % writer.length] = 2
                slot["episode_return"][row % writer.length] = value
        replay.take_in(ticket, 0)
    metrics = replay.metrics()
    # Visits have 8 rows, of which the first 6 are prior rows. Rows 3 and 5 are prior rows of the first visit, but of
    # different tickets, and the newest ticket counts. Row 9 is a prior row of the second visit; 14 and 22 are posterior
    # rows of the second and the third.
    assert (metrics["prior_return_min"], metrics["prior_return_max"]) == (-7.0, -2.0)
    assert metrics["posterior_return_mean"] == -2.5
    sizes = [len(context) for context in writer.expected(replay.window)[1].values()]
    assert metrics["context_size_min"] == min(sizes)
    assert metrics["context_size_mean"] == pytest.approx(np.mean(sizes))
    assert metrics["tasks_with_context"] == 3


def test_the_return_of_a_ticket_is_the_mean_of_all_its_episodes() -> None:
    writer = Writer(actors=1, parts=2, columns=2)
    replay = writer.replay()
    writer.write(0)
    slot = writer.rings.ticket(0)
    slot["episode_length"][[1, 3, 3], [0, 0, 1]] = 2
    slot["episode_return"][[1, 3, 3], [0, 0, 1]] = -1.0, -3.0, -8.0
    replay.take_in(0, 0)
    assert replay.metrics()["prior_return_mean"] == -4.0
