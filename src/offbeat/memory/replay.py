"""The replay: what the learner does with the rings that actors write (rings.py): take in tickets, and sample rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from offbeat.errors import ConfigError, RunFailed
from offbeat.memory.nstep import n_steps
from offbeat.memory.priorities import Exponents, Priorities
from offbeat.memory.rings import Rings, around
from offbeat.types import Array, Tree

I64 = NDArray[np.int64]

_NOT_SAMPLED = frozenset({"episode_return", "episode_length", "info"})
_FLAGS = frozenset({"terminated", "truncated", "valid"})
"""They are read when sampling, but are no part of a sample."""
_COMPUTED = _FLAGS | {"reward"}
"""What is not taken as it is: the rewards of n steps are summed up."""


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
        self._kept = kept_fields(rings)
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
        self._enter(self._kept_priorities())

    def find(self, priorities: Mapping[str, Array]) -> None:
        """Take over the rows that the rings hold, after `restore`, with those of `arrays()` that are priorities."""
        for name, view in self._kept_priorities().items():
            view[...] = priorities[name]
        self._enter(priorities)

    def follow(self, origin: int, taken_in: int, born: int) -> None:
        """Take over the rows that the rings hold, of tickets from `origin` on, after who took them in has died.

        All of them are as urgent as new ones, and count as born after `born` updates.
        """
        self.begin(origin)
        self.taken_in = taken_in
        slots = self._window_slots()
        self._tickets[slots], self._born[slots] = self.window, born
        self._enter({})

    def _enter(self, priorities: Mapping[str, Array]) -> None:
        """Let the rows of the window be drawn: by the priorities that were just written, if there are some."""
        if self._priorities and priorities:
            self._priorities.rebuild()
            return
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


def kept_fields(rings: Rings) -> list[str]:
    """Return the fields of which a checkpoint keeps the rows."""
    return [field.name for field in rings.fields if field.per == "step" and field.name not in _NOT_SAMPLED]


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
