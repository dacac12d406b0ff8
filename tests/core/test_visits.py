"""Visits: which tickets are in one task, and which task that is."""

from __future__ import annotations

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from offbeat.core.tasks import TaskSample
from offbeat.core.visits import Visits, task_of_visit

VISITS = st.builds(
    Visits, actors=st.integers(1, 4), tickets=st.integers(1, 4), length=st.integers(1, 5), prior_rows=st.integers(1, 20)
)


@given(VISITS)
def test_a_visit_has_successive_tickets_of_one_actor(visits: Visits) -> None:
    for actor in range(visits.actors):
        own = [visits.of(ticket) for ticket in range(actor, 5 * visits.tickets * visits.actors, visits.actors)]
        grouped = [[visit.part for visit in tickets] for _, tickets in groupby(own, key=lambda visit: visit.number)]
        assert all(parts == list(range(visits.tickets)) for parts in grouped)


@given(VISITS)
def test_the_visits_of_all_actors_are_numbered_without_gaps(visits: Visits) -> None:
    numbers = {visits.of(ticket).number for ticket in range(5 * visits.actors * visits.tickets)}
    assert numbers == set(range(5 * visits.actors))


@given(VISITS)
def test_prior_rows_are_the_first_rows_of_a_visit(visits: Visits) -> None:
    parts = [visits.prior_rows_of(part) for part in range(visits.tickets)]
    assert sum(parts) == min(visits.prior_rows, visits.tickets * visits.length)
    assert [rows > 0 for rows in parts] == [part < visits.prior_tickets for part in range(visits.tickets)]
    assert all(rows == visits.length for rows in parts[: visits.prior_rows // visits.length])


@given(st.integers(0, 2**31), st.integers(1, 20), st.integers(0, 5))
def test_each_round_of_visits_goes_to_every_train_task_once(seed: int, train: int, number: int) -> None:
    tasks = TaskSample(seed, train, 3)
    visited = [task_of_visit(tasks, visit) for visit in range(number * train, (number + 1) * train)]
    assert sorted(visited) == list(tasks.train_tasks)


def test_the_order_of_the_tasks_depends_on_the_seed_and_on_the_round() -> None:
    orders = {
        tuple(task_of_visit(TaskSample(seed, 20, 1), visit) for visit in range(20 * number, 20 * number + 20))
        for seed in range(3)
        for number in range(3)
    }
    assert len(orders) == 9
