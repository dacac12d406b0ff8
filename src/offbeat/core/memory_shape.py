"""The interfaces of a run's memory. Config, memory, actors and runtimes use them without importing each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from offbeat.core.pace import Pace
from offbeat.core.types import Field, Tree

Slab = tuple[str, tuple[int, ...], str]
"""Name, shape and dtype of one array."""


class Slots(Protocol):
    """The slots that an actor writes to, of unrolls or of a replay."""

    def open(self, ticket: int) -> Tree:
        """Return the arrays of a ticket, [T + 1, N, ...] per step and [N, ...] per unroll, by field."""
        ...


class MemoryShape(Protocol):
    """The shape of the memory of a run, as plain data: of unrolls, or of a replay."""

    @property
    def pace(self) -> Pace: ...

    @property
    def length(self) -> int:
        """T, the env steps of one column in a ticket."""
        ...

    def slabs(self, fields: Sequence[Field]) -> list[Slab]:
        """Return the arrays that the arena of this memory needs."""
        ...

    def slots(self, fields: Sequence[Field], arrays: Tree) -> Slots:
        """Return the slots in the arrays of an arena, which `slabs` describes."""
        ...

    def is_cut(self, ticket: int) -> bool:
        """Whether an actor that starts new episodes at `ticket` writes them after rows of other episodes."""
        ...

    @property
    def records_history(self) -> bool:
        """Whether a slot has the frames before its first row. Elsewhere they are in the slots of earlier tickets."""
        ...

    @property
    def purpose(self) -> str:
        """Subject of a message about the required memory, with the calculation. The size follows it."""
        ...

    @property
    def remedy(self) -> str:
        """What to pass so that less memory is needed."""
        ...

    def describe(self, fields: Sequence[Field]) -> str:
        """Return the memory that it takes, in a line, and details for the log in further ones; '' if this is little."""
        ...
