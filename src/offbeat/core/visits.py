"""Visits: successive tickets of an actor in one task.

    ticket      0  1  2  3 | 4  5  6  7 | ...      with 2 actors, and 2 tickets in a visit:
    visit       0  1  0  1 | 2  3  2  3 | ...      of the even tickets actor 0, of the odd ones actor 1
    part        0  0  1  1 | 0  0  1  1 | ...

Which task a visit goes to follows from its number: each round of visits is a random permutation of all tasks. So actors
and memory know the task of every ticket without messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from offbeat.core.seeding import stream
from offbeat.core.tasks import TaskSample

TASK = "task"
"""Field of a ticket: the number of its task, in each column."""


class Visit(NamedTuple):
    """The part of a visit that a ticket is."""

    number: int
    """Number of the visit, over all actors."""
    part: int
    """Which of the visit's tickets it is, from 0."""


@dataclass(frozen=True)
class Visits:
    """How tickets are divided into visits."""

    actors: int
    tickets: int
    """Tickets of a visit."""
    length: int
    """Rows of a ticket in each column."""
    prior_rows: int
    """Rows at the start of a visit in which the task variable is drawn from the prior. In the others it is drawn from
    the posterior."""

    def of(self, ticket: int) -> Visit:
        """Return the visit, and its part, that a ticket is."""
        own, part = divmod(ticket // self.actors, self.tickets)
        return Visit(own * self.actors + ticket % self.actors, part)

    @property
    def prior_tickets(self) -> int:
        """Tickets of a visit that have prior rows."""
        return -(-self.prior_rows // self.length)

    def prior_rows_of(self, part: int) -> int:
        """Return how many rows at the start of a part of a visit are prior rows."""
        return min(max(0, self.prior_rows - part * self.length), self.length)


def task_of_visit(tasks: TaskSample, visit: int) -> int:
    """Return the number of the train task that a visit goes to.

    Args:
        tasks: the tasks of the run. Each group of as many visits as there are train tasks goes to each of them once.
        visit: number of the visit.
    """
    number, position = divmod(visit, tasks.train)
    return int(stream(tasks.seed, "task", number).permutation(tasks.train)[position])
