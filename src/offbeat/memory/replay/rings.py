"""The rings of a replay: the rows of each actor in temporal order, written ticket by ticket.

    ring of actor a, [R + 1, N, ...]:   slot 0: T rows | slot 1: T rows | ... | last slot: T rows | 1 row

Ticket k belongs to actor a = k % actors, and is in slot (k // actors) % slots of its ring. Its **place** counts the
slots of all rings: place k % (actors x slots) is slot place // actors of ring place % actors. The next row of a column
is its next step, so the next observation is in the next row, and no observation is stored twice. A ticket is committed
together with the observation after it, which is in row 0 of the next slot, or in the last row of the ring.

The **window** is the range of tickets that samples may read: the newest tickets that have been taken in, as many as the
capacity holds. They can be sampled too, except the first few if there is a burn-in: these are only read. While the
learner samples, actors may write the next G tickets (max_ahead), and one row in the slot after each. The rings have
additional slots for these, so a row of the window is never overwritten.

A row has two indices: its **row number**, which counts rows place by place, and its **position** in the flattened
rings.
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
from offbeat.core.types import FRAME_AGE, I64, Array, Field, Tree, is_leaf
from offbeat.memory.arena import arena_bytes

PREFIX = "replay/"


@dataclass(frozen=True)
class RingShape:
    """The size of a replay: plain data, from which every process computes the same memory layout."""

    pace: ReplayPace
    actors: int
    columns: int
    """N, envs of an actor."""
    length: int
    """T, rows of a ticket (chunk_length)."""
    capacity: int
    """Minimum number of rows, of all actors together, that can be sampled once the replay is full."""
    history: int = 0
    """Number of earlier rows whose frames the frame stack of a row may contain."""

    remedy: ClassVar[str] = "pass a smaller capacity"

    def __post_init__(self) -> None:
        extra_rows = self.extra_tickets * self.ticket_rows
        ticket = f"chunk_length x envs_per_actor = {self.length} x {self.columns}"
        names, numbers = self._extra
        if self.capacity < extra_rows:
            raise ConfigError(
                f"capacity is {self.capacity} transitions, but {names} = {numbers} tickets of {ticket} rows are stored "
                f"in addition to those that can be sampled, which takes {extra_rows}: pass --set capacity={extra_rows} "
                "or more, or a smaller chunk_length or max_ahead"
            )
        if self.capacity < self.pace.warmup:
            raise ConfigError(
                f"warmup is {self.pace.warmup} transitions, but capacity is {self.capacity}: the first of them would "
                f"be overwritten before the first update. Pass --set capacity={self.pace.warmup} or more, or "
                f"--set warmup={self.capacity} or less"
            )

    @property
    def ticket_rows(self) -> int:
        """Rows of a ticket, all columns counted: T x N."""
        return self.length * self.columns

    @property
    def tickets(self) -> int:
        """Maximum number of tickets in the window: as many as the capacity needs."""
        return -(-self.capacity // self.ticket_rows)

    @property
    def extra_tickets(self) -> int:
        """Number of tickets that the rings hold in addition to the window.

        When the tickets before p have been taken in, actors may write tickets p to p - 1 + G. Each of these also writes
        one row into the next slot of its ring, so the ticket in that slot must not be in the window. Frame stacks of
        the window's first rows need the tickets just before the window.
        """
        return self.pace.max_ahead + self.actors + self.history_tickets

    @property
    def history_tickets(self) -> int:
        """Number of tickets before the window that the frame stacks of its first rows need."""
        return -(-self.history // self.length) * self.actors

    @property
    def _extra(self) -> tuple[str, str]:
        """The sum that makes `extra_tickets`, written in words and in numbers, for messages."""
        names, numbers = "max_ahead + actors", f"{self.pace.max_ahead} + {self.actors}"
        history = self.history_tickets
        return (f"{names} + history of frame stacks", f"{numbers} + {history}") if history else (names, numbers)

    @property
    def slots_per_ring(self) -> int:
        """Slots of a ring: its share of all tickets, rounded up."""
        return -(-(self.tickets + self.extra_tickets) // self.actors)

    @property
    def rows(self) -> int:
        """R: rows of a ring without the additional last row."""
        return self.slots_per_ring * self.length

    @property
    def all_rows(self) -> int:
        """Rows of all rings, all columns counted, without the additional last rows."""
        return self.actors * self.slots_per_ring * self.ticket_rows

    def window(self, next_ticket: int, origin: int = 0) -> range:
        """Return the tickets that samples may read after tickets origin .. next_ticket - 1 have been taken in."""
        return range(max(origin, next_ticket - self.tickets), next_ticket)

    def tickets_to_save(self, next_ticket: int, origin: int = 0) -> range:
        """Return the tickets whose rows a checkpoint has: the window, and those before it that frame stacks need."""
        window = self.window(next_ticket, origin)
        return range(max(origin, window.start - self.history_tickets), window.stop)

    def slabs(self, fields: Sequence[Field]) -> list[Slab]:
        """Return the slabs of the rings' arena."""
        time = {"step": self.rows + 1, "unroll": self.slots_per_ring}
        return [
            (PREFIX + field.name, (self.actors, time[field.per], self.columns, *field.shape), field.dtype)
            for field in fields
        ]

    def slots(self, fields: Sequence[Field], arrays: Tree) -> Rings:
        """Return the rings in the arrays of an arena with the slabs of the same fields."""
        return Rings(self, fields, arrays)

    def is_cut(self, ticket: int) -> bool:
        """Whether the ring has rows of the actor before `ticket`. If the actor starts new episodes there, they do not
        continue these rows.
        """
        return ticket >= self.actors

    @property
    def records_history(self) -> bool:
        """Whether a slot has the frames before its first row: no, they are in the ring."""
        return False

    @property
    def purpose(self) -> str:
        """Subject of a message about the required memory, with the arithmetic."""
        slots, (names, numbers) = self.actors * self.slots_per_ring, self._extra
        return (
            f"capacity / (chunk_length x envs_per_actor) + {names} = {self.tickets} + {numbers} tickets, in all "
            f"{slots} slots of {self.length} x {self.columns} rows, need"
        )

    def describe(self, fields: Sequence[Field]) -> str:
        """Return the replay's size and memory; in a second line, which only the log has, how it is made up."""
        size, (names, numbers) = arena_bytes(self.slabs(fields)), self._extra
        return (
            f"replay: {self.tickets * self.ticket_rows:,} transitions, {size / 1e6:,.1f} MB\n"
            f"{self.tickets:,} tickets of {self.length} x {self.columns} rows; {self.actors} x {self.slots_per_ring:,} "
            f"slots including {names} = {numbers}; {size / self.all_rows:,.0f} bytes per row"
        )

    def check(self, batch_size: int, n_step: int) -> None:
        """Raise ConfigError if the window is too small for a batch or for n successive rows."""
        if self.capacity < batch_size:
            raise ConfigError(
                f"capacity is {self.capacity} transitions, but a batch has {batch_size}: "
                f"pass --set capacity={batch_size} or more"
            )
        longest = self.tickets // self.actors * self.length
        if n_step > longest:
            needed = -(-n_step // self.length) * self.actors * self.ticket_rows
            raise ConfigError(
                f"n_step is {n_step}, but with capacity={self.capacity} the replay holds {longest} successive rows of "
                f"an env, {self.tickets} tickets of {self.length} x {self.columns} rows from {self.actors} actors: "
                f"pass --set n_step={longest} or less, or --set capacity={needed} or more"
            )


class Rings:
    """The arrays of all rings, indexed by ticket."""

    def __init__(self, shape: RingShape, fields: Sequence[Field], arrays: Tree) -> None:
        """Use the arrays of an arena with the shape's slabs of the same fields."""
        self.shape = shape
        self.fields = tuple(fields)
        self._steps = {field.name: arrays[PREFIX + field.name] for field in fields if field.per == "step"}
        self._tickets = {field.name: arrays[PREFIX + field.name] for field in fields if field.per == "unroll"}
        self.leaves = [name for name in self._steps if is_leaf(name)]
        self.stacks = {field.name: field.history + 1 for field in fields if field.history}
        """Stacked leaf -> number of frames in its stack."""
        self._frame_age = self.flat(FRAME_AGE) if self.stacks else None

    def open(self, ticket: int) -> Tree:
        """Return the arrays that `ticket` writes: [T + 1, N, ...] (per step) or [N, ...] (per unroll).

        Row 0 contains the observation after the actor's last ticket. In row T only the observation may be written.
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
        """Return a field with one value per ticket: a view [actors, slots, N, *shape]."""
        return self._tickets[name]

    def flat(self, name: str) -> Array:
        """Return a field of all rings by position: a view [actors (R + 1) N, *shape]."""
        ring = self._steps[name]
        return ring.reshape(-1, *ring.shape[3:])

    def frames(self, positions: I64, stack: int) -> I64:
        """Return the positions of the frames in the stacks of rows, [..., stack], oldest first.

        Args:
            positions: Positions of the rows, [...].
            stack: Number of frames in a stack.
        """
        assert self._frame_age is not None
        shape, back = self.shape, np.arange(stack - 1, -1, -1)
        back = np.minimum(back, self._frame_age[positions][..., None])
        wrapped = back > (positions // shape.columns % (shape.rows + 1))[..., None]  # before the start of the ring
        frames: I64 = positions[..., None] + (wrapped * shape.rows - back) * shape.columns
        return frames

    def later(self, positions: I64, steps: int | I64) -> I64:
        """Return the positions of later rows of the same actor; never those of the additional last rows.

        Args:
            positions: Positions of rows.
            steps: How many rows later, at most as many as a ring has.
        """
        shape = self.shape
        wrapped = positions // shape.columns % (shape.rows + 1) + steps >= shape.rows
        later: I64 = positions + steps * shape.columns - wrapped * (shape.rows * shape.columns)
        return later

    def first_position(self, ticket: int) -> int:
        """Return the position of the first row of a ticket, in its first column."""
        shape = self.shape
        return (ticket % shape.actors * (shape.rows + 1) + self._slot(ticket) * shape.length) * shape.columns

    def row_numbers(self, positions: I64) -> I64:
        """Return the row numbers of rows at these positions, which are not in the additional last rows."""
        shape = self.shape
        rows, columns = np.divmod(positions, shape.columns)
        actors, rows = np.divmod(rows, shape.rows + 1)
        slots, rows = np.divmod(rows, shape.length)
        numbers: I64 = ((slots * shape.actors + actors) * shape.length + rows) * shape.columns + columns
        return numbers

    def valid(self, ticket: int) -> NDArray[np.bool_]:
        """Return which rows of a committed ticket are transitions, by row number: a view [T N]."""
        first = self._slot(ticket) * self.shape.length
        flags = self._steps["valid"][ticket % self.shape.actors, first : first + self.shape.length]
        return flags.reshape(-1)

    def all_valid(self) -> NDArray[np.bool_]:
        """Return which rows of all tickets are transitions, by row number: a copy."""
        actors, slots = self.shape.actors, self.shape.slots_per_ring
        flags = self._steps["valid"][:, :-1].reshape(actors, slots, -1)
        return flags.transpose(1, 0, 2).flatten()

    def contiguous_views(self, window: range, names: Sequence[str]) -> Tree:
        """Return contiguous views of the rows of a window and of the row after it, named '<actor>/<number>/<field>'.

        An actor whose rows wrap around the end of its ring has two views per field.
        """
        return {
            f"{actor}/{number}/{name}": self._contiguous_view(name, actor, slots)
            for actor in range(self.shape.actors)
            for number, slots in enumerate(self._slots(window, actor))
            for name in names
        }

    def _contiguous_view(self, name: str, actor: int, slots: range) -> Array:
        if name in self._tickets:
            return self._tickets[name][actor, slots.start : slots.stop]
        length = self.shape.length
        return self._steps[name][actor, slots.start * length : slots.stop * length + 1]

    def _slots(self, window: range, actor: int) -> list[range]:
        """Return the slots of an actor's tickets in a window, as at most two ranges."""
        actors = self.shape.actors
        own = range(window.start + (actor - window.start) % actors, window.stop, actors)
        return ring_ranges(self._slot(own.start), len(own), self.shape.slots_per_ring)


def ring_ranges(first: int, count: int, size: int) -> list[range]:
    """Return the indices of `count` items from `first` on, in a ring of `size`, as at most two ranges."""
    ranges = [range(first, min(first + count, size)), range(first + count - size)]
    return [indices for indices in ranges if indices]
