"""The link: what an actor knows of everything beyond its envs.

    work = link.next()      # waits until a ticket may begin
    ...                     # act, and write what was seen into the slots of the work
    link.commit(work, ...)  # the ticket counts as acted

Serial, threads, processes and lock-free workers differ only in their link.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from offbeat.core.memory_shape import Slots
from offbeat.core.types import Tree
from offbeat.memory.weights import Weights
from offbeat.metrics.timings import Timings


class PolicyWork(NamedTuple):
    """What a ticket means to one policy."""

    weights: NDArray[np.float32]
    """The flat vector to act with."""
    slot: Tree
    """Where to write: [T + 1, N, ...] per step and [N, ...] per unroll, by field."""


class Work(NamedTuple):
    """One ticket to act."""

    ticket: int
    version: int
    """Of the weights of all policies: the learning steps that they have had."""
    progress: float
    """Of the training, 0 to 1, that belongs to the version."""
    policies: tuple[PolicyWork, ...]
    """In the order of the run's policies."""

    @classmethod
    def of_one(cls, ticket: int, version: int, own: PolicyWork, progress: float = 0.0) -> Work:
        """Return the work of an actor that acts for one policy."""
        return cls(ticket, version, progress, (own,))


class Link(Protocol):
    """Where an actor gets its tickets from, and to whom it hands them in."""

    def next(self) -> Work:
        """Wait until this actor's next ticket may begin, and return it.

        Raises:
            Closed: the run is ending.
        """
        ...

    def commit(self, work: Work, timings: Timings, longest_stall: float) -> None:
        """Let work, which has been written whole, count as acted.

        Args:
            work: the last one that `next` returned.
            timings: where this actor's time has gone so far.
            longest_stall: seconds of its longest call of an env.
        """
        ...


class Memory:
    """The slots and weights of all policies, on an arena: makes the work of a ticket."""

    def __init__(self, policies: Sequence[tuple[Slots, Weights]]) -> None:
        self.policies = tuple(policies)

    @property
    def progress(self) -> float:
        """Progress of the training that belongs to the newest version."""
        weights = self.policies[0][1]
        return weights.progress(weights.newest)

    def work(self, ticket: int, version: int) -> Work:
        """Return a ticket, to be acted with a version of the weights."""
        progress = self.policies[0][1].progress(version)
        parts = tuple(PolicyWork(weights.read(version), slots.open(ticket)) for slots, weights in self.policies)
        return Work(ticket, version, progress, parts)
