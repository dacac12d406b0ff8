"""The rings of a replay: rows of each actor in the order of time, written ticket by ticket.

    ring of actor a, [R + 1, N, ...]:   slot 0: T rows | slot 1: T rows | ... | last slot: T rows | 1 row

Ticket k belongs to actor a = k % actors, and lies in slot (k // actors) % slots of its ring. So the next row of a
column is its next step, and the observation of the next row is the one that follows: nothing is stored twice. A
ticket is committed with the observation that follows it in row 0 of the next slot, or in the last row of the ring.

What may be sampled while the tickets below a prefix are taken in is the **window**: the last so many of them as make
the capacity. It depends on the prefix alone. Meanwhile actors may be writing the next G tickets (max_ahead), each with
one row in the slot behind its own; the rings have slots for these beside the window, so that no row that can be sampled
is ever written.

A row is told by its **cell** in the order of tickets, slot by slot over all actors, and by its **place** in the rings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from offbeat.core.errors import ConfigError
from offbeat.core.memory_shape import Slab
from offbeat.core.pace import ReplayPace
from offbeat.core.types import INFO_MASK, Array, Field, Tree
from offbeat.memory.arena import arena_bytes

PREFIX = "replay/"


@dataclass(frozen=True)
class RingShape:
    """How much a replay holds: plain data, from which every process lays out the same arrays."""

    pace: ReplayPace
    actors: int
    columns: int
    """N, envs of an actor."""
    length: int
    """T, rows of a ticket (chunk_length)."""
    capacity: int
    """Rows of all actors together that can be sampled at least, once so many have been written."""
    history: int = 0
    """Rows before a sampled one that its stack of frames may reach back to."""

    remedy: ClassVar[str] = "pass a smaller capacity"

    def __post_init__(self) -> None:
        beside, one = self.beside * self.ticket_rows, f"chunk_length x envs_per_actor = {self.length} x {self.columns}"
        names, numbers = self._sum
        if self.capacity < beside:
            raise ConfigError(
                f"capacity is {self.capacity} transitions, but {names} = {numbers} "
                f"tickets of {one} rows, {beside} together, may be in the making beside them, more than "
                f"could be sampled: pass --set capacity={beside} or more, or a smaller chunk_length or max_ahead"
            )
        if self.capacity < self.pace.warmup:
            raise ConfigError(
                f"warmup is {self.pace.warmup} transitions, but capacity is {self.capacity}: the first of them would "
                f"be gone before the first update. Pass --set capacity={self.pace.warmup} or more, or "
                f"--set warmup={self.capacity} or less"
            )

    @property
    def ticket_rows(self) -> int:
        """Rows of a ticket, over its columns."""
        return self.length * self.columns

    @property
    def tickets(self) -> int:
        """Tickets in the window, once so many have been taken in: as many as make the capacity."""
        return -(-self.capacity // self.ticket_rows)

    @property
    def beside(self) -> int:
        """Tickets' room that the rings have beside the window.

        While the tickets below p are taken in, those up to p - 1 + G may be in the making. The last of these also
        writes into the slot of the ticket `actors` after it, which therefore must not be in the window. And frames
        of those just before the window are seen in stacks of its first rows.
        """
        return self.pace.max_ahead + self.actors + self.leading

    @property
    def leading(self) -> int:
        """Tickets before the window that stacks of its first rows reach back to."""
        return -(-self.history // self.length) * self.actors

    @property
    def _sum(self) -> tuple[str, str]:
        """What takes room beside the window, in names and in numbers."""
        names, numbers = "max_ahead + actors", f"{self.pace.max_ahead} + {self.actors}"
        return (f"{names} + leading", f"{numbers} + {self.leading}") if self.leading else (names, numbers)

    @property
    def slots_per_ring(self) -> int:
        """Slots of a ring: its share of the window and of what is beside it, rounded up."""
        return -(-(self.tickets + self.beside) // self.actors)

    @property
    def rows(self) -> int:
        """Rows of a ring, R, without the one at its end."""
        return self.slots_per_ring * self.length

    @property
    def cells(self) -> int:
        """Rows of all rings, over their columns, without those at the ends."""
        return self.actors * self.slots_per_ring * self.ticket_rows

    def window(self, prefix: int, origin: int = 0) -> range:
        """Return the tickets that can be sampled once those below `prefix` are taken in; `origin` was the first."""
        return range(max(origin, prefix - self.tickets), prefix)

    def slabs(self, fields: Sequence[Field]) -> list[Slab]:
        """Return what the rings' arena consists of."""
        time = {"step": self.rows + 1, "unroll": self.slots_per_ring}
        return [
            (PREFIX + field.name, (self.actors, time[field.per], self.columns, *field.shape), field.dtype)
            for field in fields
        ]

    def slots(self, fields: Sequence[Field], arrays: Tree) -> Rings:
        """Return the rings on the arrays of an arena that holds the slabs of the same fields."""
        return Rings(self, fields, arrays)

    def is_cut(self, ticket: int) -> bool:
        """Whether new episodes that begin at `ticket` follow rows of others, which must not run on into them."""
        return ticket >= self.actors

    @property
    def purpose(self) -> str:
        """What needs the memory: a phrase that goes on with how much."""
        slots, (names, numbers) = self.actors * self.slots_per_ring, self._sum
        return (
            f"capacity / (chunk_length x envs_per_actor) + {names} = {self.tickets} + {numbers} tickets, in all "
            f"{slots} slots of {self.length} x {self.columns} rows, need"
        )

    def describe(self, fields: Sequence[Field]) -> str:
        """Return the arithmetic in words."""
        size, (names, numbers) = arena_bytes(self.slabs(fields)), self._sum
        return (
            f"replay: {self.tickets * self.ticket_rows:,} transitions can be sampled, {self.tickets:,} tickets of "
            f"{self.length} x {self.columns} rows; {self.actors} x {self.slots_per_ring:,} slots with those of "
            f"{names} = {numbers}; {size / self.cells:,.0f} bytes a row, "
            f"{size / 1e6:,.1f} MB in all"
        )

    def check(self, batch_size: int, n_step: int) -> None:
        """Refuse samples that the window cannot give.

        Raises:
            ConfigError: with the arithmetic and the remedy.
        """
        if self.capacity < batch_size:
            raise ConfigError(
                f"capacity is {self.capacity} transitions, but a batch has {batch_size}: "
                f"pass --set capacity={batch_size} or more"
            )
        longest = self.tickets // self.actors * self.length
        if n_step > longest:
            needed = -(-n_step // self.length) * self.actors * self.ticket_rows
            raise ConfigError(
                f"n_step is {n_step}, but with capacity={self.capacity} the replay keeps {longest} successive rows of "
                f"a column, {self.tickets} tickets of {self.length} x {self.columns} rows from {self.actors} actors: "
                f"pass --set n_step={longest} or less, or --set capacity={needed} or more"
            )


class Rings:
    """The arrays of all rings, addressed by ticket."""

    def __init__(self, shape: RingShape, fields: Sequence[Field], arrays: Tree) -> None:
        """Address the arrays of an arena that holds the shape's slabs of the same fields."""
        self.shape = shape
        self.fields = tuple(fields)
        self._steps = {field.name: arrays[PREFIX + field.name] for field in fields if field.per == "step"}
        self._tickets = {field.name: arrays[PREFIX + field.name] for field in fields if field.per == "unroll"}
        self.leaves = [name for name in self._steps if name == INFO_MASK or name.split("/")[0] == "observation"]
        self.stacks = {field.name: field.history + 1 for field in fields if field.history}
        """How many frames are seen at once of leaves that are stacked."""

    def open(self, ticket: int) -> Tree:
        """Return the arrays that `ticket` writes: [T + 1, N, ...] (per step) or [N, ...] (per unroll).

        Row 0 has the observation that followed the actor's last ticket; of row T only the observation may be written.
        """
        if self._slot(ticket) == 0:
            actor = ticket % self.shape.actors
            for name in self.leaves:
                self._steps[name][actor, 0] = self._steps[name][actor, self.shape.rows]
        return self._views(ticket, self.shape.length + 1)

    def ticket(self, ticket: int) -> Tree:
        """Return the arrays of a committed ticket: views [T, N, ...] (per step) or [N, ...] (per unroll)."""
        return self._views(ticket, self.shape.length)

    def _views(self, ticket: int, rows: int) -> Tree:
        actor, slot = ticket % self.shape.actors, self._slot(ticket)
        first = slot * self.shape.length
        steps = {name: ring[actor, first : first + rows] for name, ring in self._steps.items()}
        return steps | {name: ring[actor, slot] for name, ring in self._tickets.items()}

    def _slot(self, ticket: int) -> int:
        return ticket // self.shape.actors % self.shape.slots_per_ring

    def per_ticket(self, name: str) -> Array:
        """Return a field that each ticket has once: a view [actors, slots, N, *shape]."""
        return self._tickets[name]

    def flat(self, name: str) -> Array:
        """Return a field of all rings by place: a view [actors (R + 1) N, *shape]."""
        ring = self._steps[name]
        return ring.reshape(-1, *ring.shape[3:])

    def valid(self, ticket: int) -> NDArray[np.bool_]:
        """Return which rows of a committed ticket are transitions, cell by cell: a view [T N]."""
        first = self._slot(ticket) * self.shape.length
        flags = self._steps["valid"][ticket % self.shape.actors, first : first + self.shape.length]
        return flags.reshape(-1)

    def valid_cells(self) -> NDArray[np.bool_]:
        """Return which rows are transitions, cell by cell over all tickets: a copy."""
        actors, slots = self.shape.actors, self.shape.slots_per_ring
        flags = self._steps["valid"][:, :-1].reshape(actors, slots, -1)
        return np.ascontiguousarray(flags.transpose(1, 0, 2)).reshape(-1)

    def stretches(self, window: range, names: Sequence[str]) -> Tree:
        """Return views of the rows of a window and of those that follow them, by '<actor>/<number>/<field>'.

        Each is contiguous. An actor has two stretches of rows where they pass the end of its ring.
        """
        return {
            f"{actor}/{number}/{name}": self._stretch(name, actor, slots)
            for actor in range(self.shape.actors)
            for number, slots in enumerate(self._slots(window, actor))
            for name in names
        }

    def _stretch(self, name: str, actor: int, slots: range) -> Array:
        if name in self._tickets:
            return self._tickets[name][actor, slots.start : slots.stop]
        length = self.shape.length
        return self._steps[name][actor, slots.start * length : slots.stop * length + 1]

    def _slots(self, window: range, actor: int) -> list[range]:
        """Return which slots of an actor's ring its tickets in a window have."""
        actors = self.shape.actors
        own = range(window.start + (actor - window.start) % actors, window.stop, actors)
        return around(self._slot(own.start), len(own), self.shape.slots_per_ring)


def around(first: int, count: int, size: int) -> list[range]:
    """Return the places of `count` items from `first` on, on a ring of `size`: none, one or two ranges."""
    pieces = [range(first, min(first + count, size)), range(first + count - size)]
    return [piece for piece in pieces if piece]
