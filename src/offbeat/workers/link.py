"""The link: the interface between an actor and the rest of the run.

    work = link.next()      # waits until a ticket may start
    ...                     # act, and write the rows into the slots of the work
    link.commit(work, ...)  # the ticket is committed

Actors in the learner's thread, in threads, in processes, on a cluster, and in lock-free workers differ only in their
link.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from offbeat.core.memory_shape import Slots
from offbeat.core.types import Tree
from offbeat.memory.league import LeagueMemory
from offbeat.memory.weights import Weights
from offbeat.metrics.timings import Timings


class PolicyWork(NamedTuple):
    """What an actor needs to act one ticket with one policy."""

    weights: NDArray[np.float32]
    """The published weights to act with, as one flat vector."""
    slot: Tree
    """The arrays to write into, by field: [T + 1, N, ...] for one value per row, [N, ...] for one value per unroll."""


class Work(NamedTuple):
    """One ticket to act."""

    ticket: int
    version: int
    """Version of the weights of all policies: the number of learning steps that made them."""
    progress: float
    """Training progress at that version, from 0 to 1."""
    policies: tuple[PolicyWork, ...]
    """One for each policy, in the order of the run's policies."""
    league: LeagueMemory | None = None
    """The memory of the league, if the run has one."""


class Link(Protocol):
    """Gives an actor its tickets and takes the finished ones."""

    def next(self) -> Work:
        """Wait until this actor's next ticket may start, and return it with its weights and slots.

        Raises:
            Closed: the run is ending.
        """
        ...

    def commit(self, work: Work, timings: Timings, longest_stall: float) -> None:
        """Commit a ticket whose rows are all written.

        Args:
            work: the work that `next` returned last.
            timings: this actor's time so far, by activity.
            longest_stall: duration of its longest env call, in seconds.
        """
        ...


class Memory:
    """The slots and weights of all policies, and the memory of a league. `work` joins them for one ticket."""

    def __init__(self, policies: Sequence[tuple[Slots, Weights]], league: LeagueMemory | None = None) -> None:
        self.policies, self.league = tuple(policies), league

    @property
    def progress(self) -> float:
        """Training progress at the newest version of the weights."""
        weights = self.policies[0][1]
        return weights.progress(weights.newest)

    def work(self, ticket: int, version: int) -> Work:
        """Return the work of a ticket that is acted with this version of the weights."""
        progress = self.policies[0][1].progress(version)
        policies = tuple(PolicyWork(weights.read(version), slots.open(ticket)) for slots, weights in self.policies)
        return Work(ticket, version, progress, policies, self.league)
