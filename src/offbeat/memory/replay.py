"""Replay memory: a ring of rows for each actor, written ticket by ticket, sampled as one.

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from offbeat.errors import ConfigError, RunFailed
from offbeat.memory.arena import Slab, arena_bytes
from offbeat.memory.nstep import n_steps
from offbeat.memory.priorities import Exponents, Priorities
from offbeat.pace import ReplayPace
from offbeat.types import Array, Field, Tree

I64 = NDArray[np.int64]

PREFIX = "replay/"
_NOT_SAMPLED = frozenset({"episode_return", "episode_length"})
_FLAGS = frozenset({"terminated", "truncated", "valid"})
"""They are read when sampling, but are no part of a sample."""
_COMPUTED = _FLAGS | {"reward"}
"""What is not taken as it is: the rewards of n steps are summed up."""


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

    remedy: ClassVar[str] = "type a smaller capacity"

    def __post_init__(self) -> None:
        beside, one = self.beside * self.ticket_rows, f"chunk_length x envs_per_actor = {self.length} x {self.columns}"
        if self.capacity < beside:
            raise ConfigError(
                f"capacity is {self.capacity} transitions, but max_ahead + actors = {self.pace.max_ahead} + "
                f"{self.actors} tickets of {one} rows, {beside} together, may be in the making beside them, more than "
                f"could be sampled: type --set capacity={beside} or more, or a smaller chunk_length or max_ahead"
            )
        if self.capacity < self.pace.warmup:
            raise ConfigError(
                f"warmup is {self.pace.warmup} transitions, but capacity is {self.capacity}: the first of them would "
                f"be gone before the first update. Type --set capacity={self.pace.warmup} or more, or "
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
        writes into the slot of the ticket `actors` after it, which therefore must not be in the window.
        """
        return self.pace.max_ahead + self.actors

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
        slots = self.actors * self.slots_per_ring
        return (
            f"capacity / (chunk_length x envs_per_actor) + max_ahead + actors = {self.tickets} + "
            f"{self.pace.max_ahead} + {self.actors} tickets, in all {slots} slots of {self.length} x {self.columns} "
            "rows, need"
        )

    def describe(self, fields: Sequence[Field]) -> str:
        """Return the arithmetic in words."""
        size = arena_bytes(self.slabs(fields))
        return (
            f"replay: {self.tickets * self.ticket_rows:,} transitions can be sampled, {self.tickets:,} tickets of "
            f"{self.length} x {self.columns} rows; {self.actors} x {self.slots_per_ring:,} slots with those of "
            f"max_ahead + actors = {self.pace.max_ahead} + {self.actors}; {size / self.cells:,.0f} bytes a row, "
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
                f"type --set capacity={batch_size} or more"
            )
        longest = self.tickets // self.actors * self.length
        if n_step > longest:
            needed = -(-n_step // self.length) * self.actors * self.ticket_rows
            raise ConfigError(
                f"n_step is {n_step}, but with capacity={self.capacity} the replay keeps {longest} successive rows of "
                f"a column, {self.tickets} tickets of {self.length} x {self.columns} rows from {self.actors} actors: "
                f"type --set n_step={longest} or less, or --set capacity={needed} or more"
            )


class Rings:
    """The arrays of all rings, addressed by ticket."""

    def __init__(self, shape: RingShape, fields: Sequence[Field], arrays: Tree) -> None:
        """Address the arrays of an arena that holds the shape's slabs of the same fields."""
        self.shape = shape
        self.fields = tuple(fields)
        self._steps = {field.name: arrays[PREFIX + field.name] for field in fields if field.per == "step"}
        self._tickets = {field.name: arrays[PREFIX + field.name] for field in fields if field.per == "unroll"}
        self.leaves = [name for name in self._steps if name.split("/")[0] == "observation"]

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
            f"{actor}/{number}/{name}": self._steps[name][actor, rows.start : rows.stop + 1]
            for actor in range(self.shape.actors)
            for number, rows in enumerate(self._rows(window, actor))
            for name in names
        }

    def _rows(self, window: range, actor: int) -> list[range]:
        """Return where the rows of an actor's tickets in a window lie in its ring."""
        actors, length = self.shape.actors, self.shape.length
        own = range(window.start + (actor - window.start) % actors, window.stop, actors)
        slots = around(self._slot(own.start), len(own), self.shape.slots_per_ring)
        return [range(piece.start * length, piece.stop * length) for piece in slots]


def around(first: int, count: int, size: int) -> list[range]:
    """Return the places of `count` items from `first` on, on a ring of `size`: none, one or two ranges."""
    pieces = [range(first, min(first + count, size)), range(first + count - size)]
    return [piece for piece in pieces if piece]


class Samples(NamedTuple):
    """What one update sees. The arrays are written anew by the call of `sample` after the next."""

    arrays: Tree
    """name -> [M, ...]: each leaf of the observation, and as next/<leaf> the one after the last step taken; action;
    reward, of n steps, discounted; discount, of the value that follows (0 after a termination); what the algorithm
    recorded; and with priorities weight."""
    cells: I64
    """Which rows they are, [M]."""
    tickets: I64
    """Which tickets they are from, [M]."""
    born: I64
    """The updates that the weights had had which acted them, [M]: sample_age is the updates until now, less these."""


class Replay:
    """What the learner does with the rings: take in ticket after ticket, and sample the window as one."""

    def __init__(
        self, rings: Rings, *, batch_size: int, n_step: int, gamma: float, priorities: Exponents | None = None
    ) -> None:
        """Begin empty, at ticket 0.

        Args:
            rings: what the actors write.
            batch_size: transitions in a sample, M.
            n_step: env steps of reward in a transition; less where the episode, or the window, ends.
            gamma: discount per env step.
            priorities: None samples all valid rows equally often.

        Raises:
            ConfigError: the window cannot give such samples.
        """
        shape = rings.shape
        shape.check(batch_size, n_step)
        self._rings, self._shape, self._exponents = rings, shape, priorities
        self.batch_size, self.leaves = batch_size, rings.leaves
        self.prioritized = priorities is not None
        self._n_step, self._gamma = n_step, gamma
        self._kept = [f.name for f in rings.fields if f.per == "step" and f.name not in _NOT_SAMPLED]
        self._flat = {name: rings.flat(name) for name in self._kept}
        computed = ["discount", "weight"] if priorities else ["discount"]
        self._buffers = [_Buffers(batch_size, self._flat, rings.leaves, computed) for _ in range(2)]
        slots = np.arange(shape.actors * shape.slots_per_ring)
        ring, slot = slots % shape.actors, slots // shape.actors
        rows = ring * (shape.rows + 1) + slot * shape.length - slots * shape.length
        self._shift: I64 = rows * shape.columns
        """From a cell to its place, by slot."""
        self._tickets, self._born = np.zeros_like(slots), np.zeros_like(slots)
        """Of what was last taken in from each slot."""
        self.begin(0)

    def begin(self, origin: int) -> None:
        """Be empty, with `origin` as the next ticket: so a run goes on whose replay was not saved."""
        self.origin = self.taken_in = origin
        """Tickets origin .. taken_in - 1 have been taken in."""
        self._priorities = Priorities(self._exponents, self._shape.cells) if self._exponents else None
        self._rows: _Rows = self._priorities or _Uniform(self._shape.tickets * self._shape.ticket_rows)

    @property
    def window(self) -> range:
        """The tickets that can be sampled."""
        return self._shape.window(self.taken_in, self.origin)

    @property
    def valid(self) -> int:
        """Transitions that can be sampled."""
        return self._rows.count

    def ticket(self, ticket: int) -> Tree:
        """Return the arrays of a committed ticket: views [T, N, ...] (per step) or [N, ...] (per unroll)."""
        return self._rings.ticket(ticket)

    def take_in(self, ticket: int, born: int) -> None:
        """Let a committed ticket be sampled, and the oldest no more that is one too many.

        Args:
            ticket: the next one; each is taken in, in order.
            born: the updates that the weights had had that acted it.

        Raises:
            ValueError: it is not the next one.
        """
        if ticket != self.taken_in:
            raise ValueError(f"ticket {ticket} is taken in, but {self.taken_in} is the next")
        oldest = self.window.start
        self.taken_in += 1
        if self.window.start > oldest:
            self._rows.leave(self._first_cell(oldest), self._rings.valid(oldest))
        slot = ticket % len(self._tickets)
        self._tickets[slot], self._born[slot] = ticket, born
        self._rows.enter(self._first_cell(ticket), self._rings.valid(ticket))

    def _first_cell(self, ticket: int) -> int:
        return ticket % len(self._tickets) * self._shape.ticket_rows

    def sample(self, random: np.random.Generator) -> Samples:
        """Draw transitions from the window, with replacement: valid rows, equally often or by their priorities.

        Raises:
            RunFailed: there is no valid row.
        """
        if not self.valid:
            raise RunFailed(
                f"tickets {self.window.start} to {self.window.stop - 1}, which can be sampled, have no transition: all "
                "their rows are reset rows or without a decision. Type a larger capacity"
            )
        self._buffers.reverse()
        buffers = self._buffers[0]
        cells, tickets, born = buffers.samples[1:]
        self._rows.draw(random, cells)
        np.floor_divide(cells, self._shape.ticket_rows, out=buffers.slots)
        self._tickets.take(buffers.slots, 0, tickets, "clip")
        self._born.take(buffers.slots, 0, born, "clip")
        self._shift.take(buffers.slots, 0, buffers.places, "clip")
        buffers.places += cells
        if self._n_step == 1:
            self._take_one_step(buffers)
        else:
            self._take_n_steps(buffers)
        buffers.gather()
        if self._priorities:
            buffers.samples.arrays["weight"][:] = self._priorities.weights(cells)
        return buffers.samples

    def _take_one_step(self, buffers: _Buffers) -> None:
        """Write reward, discount and where the following observation is."""
        arrays = buffers.samples.arrays
        self._flat["reward"].take(buffers.places, 0, arrays["reward"], "clip")
        self._flat["terminated"].take(buffers.places, 0, buffers.flags, "clip")
        np.logical_not(buffers.flags, out=buffers.flags)
        np.multiply(buffers.flags, np.float32(self._gamma), out=arrays["discount"])
        np.add(buffers.places, self._shape.columns, out=buffers.following)

    def _take_n_steps(self, buffers: _Buffers) -> None:
        """Write the same of n steps, which stop where the rows of the actor's newest ticket in the window do."""
        shape, places = self._shape, buffers.places
        _, cells, tickets, _ = buffers.samples
        steps = np.arange(self._n_step)[:, None]
        passed = places // shape.columns % (shape.rows + 1) + steps >= shape.rows
        rows = places + steps * shape.columns - passed * (shape.rows * shape.columns)  # [n, M]
        newer = (self.taken_in - 1 - tickets) // shape.actors
        left = (newer + 1) * shape.length - cells // shape.columns % shape.length
        names = ("reward", "terminated", "truncated", "valid")
        reward, terminated, truncated, valid = (self._flat[name].take(rows, 0, mode="clip") for name in names)
        taken = n_steps(reward, terminated, truncated, valid, left, self._gamma)
        buffers.samples.arrays["reward"][:] = taken.reward
        buffers.samples.arrays["discount"][:] = taken.discount
        np.add(rows[taken.steps - 1, np.arange(len(places))], shape.columns, out=buffers.following)

    def update_priorities(self, samples: Samples, errors: Array) -> None:
        """Give sampled rows the priorities of their errors [M]; rows that have left the window keep none.

        Raises:
            ValueError: an error is not finite, or all rows are sampled equally often.
        """
        if self._priorities is None:
            raise ValueError("rows that are sampled equally often have no priorities")
        kept = samples.tickets >= self.window.start
        self._priorities.update(samples.cells[kept], errors[kept])

    # --- what a checkpoint keeps --------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps beside `arrays`."""
        state = {"origin": self.origin, "taken_in": self.taken_in, "born": self._born[self._window_slots()]}
        return state | ({"highest_priority": self._priorities.highest} if self._priorities else {})

    def arrays(self) -> Tree:
        """Return views, each contiguous, of all rows of the window, and of their priorities."""
        return self._rings.stretches(self.window, self._kept) | self._kept_priorities()

    def _kept_priorities(self) -> Tree:
        if self._priorities is None:
            return {}
        pieces = enumerate(self._window_cells())
        return {f"priorities/{number}": self._priorities.kept(cells) for number, cells in pieces}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over `state()`; `load` must follow, or `begin` where the rows were not kept.

        Raises:
            ConfigError: it is that of a replay of another shape.
        """
        self.begin(int(state["origin"]))
        self.taken_in = int(state["taken_in"])
        slots = self._window_slots()
        if len(slots) != len(state["born"]) or (self._priorities is None) != ("highest_priority" not in state):
            raise _other_layout()
        self._tickets[slots], self._born[slots] = self.window, state["born"]
        if self._priorities:
            self._priorities.highest = float(state["highest_priority"])

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Take over `arrays()`, after `restore`.

        Raises:
            ConfigError: they are those of a replay of another shape, or of other fields.
        """
        views = self.arrays()
        kinds = [{name: (part.shape, part.dtype) for name, part in tree.items()} for tree in (views, arrays)]
        if kinds[0] != kinds[1]:
            raise _other_layout()
        for name, view in views.items():
            view[...] = arrays[name]
        if self._priorities:
            self._priorities.rebuild()
        else:
            valid = self._rings.valid_cells()
            for cells in self._window_cells():
                self._rows.enter(cells.start, valid[cells.start : cells.stop])

    def _window_slots(self) -> I64:
        window = self.window
        return np.arange(window.start, window.stop) % len(self._tickets)

    def _window_cells(self) -> list[range]:
        """Return the cells of the window, oldest first."""
        rows, window = self._shape.ticket_rows, self.window
        return around(self._first_cell(window.start), len(window) * rows, self._shape.cells)


def _other_layout() -> ConfigError:
    return ConfigError(
        "the replay in this checkpoint has another layout: resume with the actors, envs_per_actor, chunk_length, "
        "capacity, max_ahead and prioritized that it was saved with"
    )


class _Rows(Protocol):
    """What can be drawn: cells, told by the first of them and which are valid."""

    count: int

    def enter(self, first: int, valid: NDArray[np.bool_]) -> None: ...

    def leave(self, first: int, valid: NDArray[np.bool_]) -> None: ...

    def draw(self, random: np.random.Generator, cells: I64) -> None: ...


class _Uniform:
    """The valid cells of the window in a queue, as they enter and leave in order: each draw is one number."""

    def __init__(self, room: int) -> None:
        self._cells = np.zeros(room, np.int64)
        self._oldest = 0
        self.count = 0

    def enter(self, first: int, valid: NDArray[np.bool_]) -> None:
        cells = first + np.flatnonzero(valid)
        self._cells.put(np.arange(len(cells)) + (self._oldest + self.count), cells, mode="wrap")
        self.count += len(cells)

    def leave(self, first: int, valid: NDArray[np.bool_]) -> None:  # noqa: ARG002
        gone = int(np.count_nonzero(valid))
        self._oldest = (self._oldest + gone) % len(self._cells)
        self.count -= gone

    def draw(self, random: np.random.Generator, cells: I64) -> None:
        drawn = random.integers(self._oldest, self._oldest + self.count, len(cells))
        self._cells.take(drawn, 0, cells, "wrap")


class _Buffers:
    """The arrays of one sample, allocated once."""

    def __init__(self, size: int, flat: Mapping[str, Array], leaves: Sequence[str], computed: Sequence[str]) -> None:
        self.slots, self.places, self.following = (np.zeros(size, np.int64) for _ in range(3))
        self.flags = np.zeros(size, np.bool_)
        arrays = {name: np.zeros((size, *rows.shape[1:]), rows.dtype) for name, rows in flat.items()}
        nexts = {f"next/{name}": np.zeros_like(arrays[name]) for name in leaves}
        self._gathered = [(flat[name], arrays[name]) for name in flat if name not in _COMPUTED]
        self._gathered_next = [(flat[name], nexts[f"next/{name}"]) for name in leaves]
        shown = {name: array for name, array in arrays.items() if name not in _FLAGS}
        cells, tickets, born = (np.zeros(size, np.int64) for _ in range(3))
        others = {name: np.zeros(size, np.float32) for name in computed}
        self.samples = Samples(shown | nexts | others, cells, tickets, born)

    def gather(self) -> None:
        """Write what is taken as it is from the rings: of the sampled rows, and of those after their last steps."""
        for rows, array in self._gathered:
            rows.take(self.places, 0, array, "clip")  # in range: clip only keeps NumPy from a buffer of its own
        for rows, array in self._gathered_next:
            rows.take(self.following, 0, array, "clip")
