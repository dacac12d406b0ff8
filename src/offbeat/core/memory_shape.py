"""What a run remembers, as plain data: what config, memory, actors and runtimes agree on without knowing each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from offbeat.core.pace import Pace
from offbeat.core.types import Field, Tree

Slab = tuple[str, tuple[int, ...], str]
"""Name, shape and dtype of one array."""


class Slots(Protocol):
    """What an actor writes to: unrolls or a replay."""

    def open(self, ticket: int) -> Tree:
        """Return the arrays of a ticket, [T + 1, N, ...] per step and [N, ...] per unroll, by field."""
        ...


class MemoryShape(Protocol):
    """What a run remembers, as plain data: unrolls, or a replay."""

    @property
    def pace(self) -> Pace: ...

    @property
    def length(self) -> int:
        """Env steps of one column in a ticket, T."""
        ...

    def slabs(self, fields: Sequence[Field]) -> list[Slab]:
        """Return what its arena consists of."""
        ...

    def slots(self, fields: Sequence[Field], arrays: Tree) -> Slots:
        """Return what actors write to, on such an arena."""
        ...

    def is_cut(self, ticket: int) -> bool:
        """Whether new episodes that begin at `ticket` follow rows of others, which must not run on into them."""
        ...

    @property
    def purpose(self) -> str:
        """What needs its memory, with the arithmetic: a phrase that goes on with how much."""
        ...

    @property
    def remedy(self) -> str:
        """What to pass to need less."""
        ...

    def describe(self, fields: Sequence[Field]) -> str:
        """Say how much memory it takes, if that is worth a word."""
        ...
