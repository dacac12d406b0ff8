"""The replay: what the learner does with the rings that actors write (rings.py): take in tickets, and sample them.

`Replay` samples rows, each a transition by itself; `SequenceReplay` (sequences.py) rows that follow one another. Both
are an `AnyReplay`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from offbeat.core.errors import ConfigError, RunFailed
from offbeat.core.types import FRAME_AGE, Array, Tree
from offbeat.memory.replay.n_step import n_steps
from offbeat.memory.replay.priorities import Exponents, Priorities
from offbeat.memory.replay.rings import Rings, around

I64 = NDArray[np.int64]

_NOT_SAMPLED = frozenset({"episode_return", "episode_length", "behavior_version", "info"})
_FLAGS = frozenset({"terminated", "truncated", "valid", FRAME_AGE})
"""They are read when sampling, but are no part of a sample."""
_COMPUTED = _FLAGS | {"reward"}
"""What is not taken as it is: the rewards of n steps are summed up."""


class Samples(NamedTuple):
    """What one update sees. The arrays are written anew by the call of `sample` after the next."""

    arrays: Tree
    """name -> [M, ...]: each leaf of the observation, as a policy sees it, stacked or not, and as next/<leaf> the one
    after the last step taken; action;
    reward, of n steps, discounted; discount, of the value that follows (0 after a termination); what the algorithm
    recorded; and with priorities weight. Of sequences: see `SequenceReplay.sample`."""
    cells: I64
    """Which of all that can be drawn they are, [M]: rows, or columns of a ticket."""
    tickets: I64
    """Which tickets they are from, [M]."""
    born: I64
    """The updates that the weights had had which acted them, [M]: sample_age is the updates until now, less these."""


class AnyReplay(ABC):
    """What all replays do alike: take in ticket after ticket, draw from the window as one, and be kept."""

    def __init__(self, rings: Rings, *, cells: int, lead: int, priorities: Exponents | None) -> None:
        """Begin empty, at ticket 0.

        Args:
            rings: what the actors write.
            cells: what can be drawn of a ticket at most: its rows, or its columns.
            lead: tickets at the beginning of the window of which nothing is drawn.
            priorities: None draws all equally often.
        """
        self._rings, self._shape, self._exponents = rings, rings.shape, priorities
        self._cells, self._lead = cells, lead
        self.leaves, self.prioritized = rings.leaves, priorities is not None
        self._checkpoint_fields = checkpoint_fields(rings)
        steps = (field.name for field in rings.fields if field.per == "step" and field.name in self._checkpoint_fields)
        self._flat = {name: rings.flat(name) for name in steps}
        slots = self._shape.actors * self._shape.slots_per_ring
        self._tickets, self._born = np.zeros(slots, np.int64), np.zeros(slots, np.int64)
        """Of what was last taken in from each slot."""
        self.reset(0)

    def reset(self, origin: int) -> None:
        """Be empty, with `origin` as the next ticket: so a run goes on whose replay was not saved."""
        self.origin = self.taken_in = origin
        """Tickets origin .. taken_in - 1 have been taken in."""
        self.valid = 0
        """Transitions that can be sampled."""
        self._priorities = Priorities(self._exponents, len(self._tickets) * self._cells) if self._exponents else None
        self._drawn: _Drawn = self._priorities or _Uniform(self._shape.tickets * self._cells)

    @property
    def window(self) -> range:
        """The tickets whose rows samples may see."""
        return self._shape.window(self.taken_in, self.origin)

    @property
    def _from(self) -> range:
        """The tickets that are drawn from."""
        window = self.window
        return range(window.start + self._lead, window.stop)

    @property
    @abstractmethod
    def transitions(self) -> float:
        """That a sample has: of sequences, on average."""

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
        oldest = self._from.start
        self.taken_in += 1
        if self._from.start > oldest:
            valid = self._rings.valid(oldest)
            self._drawn.leave(self._first_cell(oldest), self._drawable(valid))
            self.valid -= int(np.count_nonzero(valid))
        slot = ticket % len(self._tickets)
        self._tickets[slot], self._born[slot] = ticket, born
        if ticket in self._from:
            valid = self._rings.valid(ticket)
            self._drawn.enter(self._first_cell(ticket), self._drawable(valid))
            self.valid += int(np.count_nonzero(valid))

    def _first_cell(self, ticket: int) -> int:
        return ticket % len(self._tickets) * self._cells

    @abstractmethod
    def _drawable(self, valid: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which cells can be drawn, where these rows of whole tickets are transitions, cell by cell."""

    @abstractmethod
    def sample(self, random: np.random.Generator) -> Samples:
        """Draw from the window, with replacement: equally often or by priorities.

        Raises:
            RunFailed: there is no transition.
        """

    def _frames(self, places: I64, stack: int) -> I64:
        """Return where the frames are that the rows at `places` [...] see, [..., stack], oldest first."""
        shape, back = self._shape, np.arange(stack - 1, -1, -1)
        back = np.minimum(back, self._flat[FRAME_AGE][places][..., None])
        passed = back > (places // shape.columns % (shape.rows + 1))[..., None]  # the ring's beginning: on from its end
        frames: I64 = places[..., None] + (passed * shape.rows - back) * shape.columns
        return frames

    def _draw(self, random: np.random.Generator, cells: I64) -> None:
        """Write as many drawn cells as `cells` has room for."""
        if not self.valid:
            raise RunFailed(
                f"tickets {self._from.start} to {self._from.stop - 1}, which can be sampled, have no transition: all "
                "their rows are reset rows or without a decision. Pass a larger capacity"
            )
        self._drawn.draw(random, cells)

    def update_priorities(self, samples: Samples, errors: Array) -> None:
        """Give what was sampled the priorities of its errors [M]; what has left the window keeps none.

        Raises:
            ValueError: an error is not finite, or all is sampled equally often.
        """
        if self._priorities is None:
            raise ValueError("all is sampled equally often: there are no priorities")
        kept = samples.tickets >= self._from.start
        self._priorities.update(samples.cells[kept], errors[kept])

    # --- what a checkpoint keeps --------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps beside `arrays`."""
        state = {"origin": self.origin, "taken_in": self.taken_in, "born": self._born[self._window_slots()]}
        return state | ({"highest_priority": self._priorities.highest} if self._priorities else {})

    def arrays(self) -> Tree:
        """Return views, each contiguous, of all rows of the window and of those that its stacks reach back to, and of
        priorities.
        """
        window = self.window
        reached = range(max(self.origin, window.start - self._shape.leading), window.stop)
        return self._rings.stretches(reached, self._checkpoint_fields) | self._priority_views()

    def _priority_views(self) -> Tree:
        if self._priorities is None:
            return {}
        pieces, cells = enumerate(self._slots(self.window)), self._cells
        return {
            f"priorities/{number}": self._priorities.view(range(slots.start * cells, slots.stop * cells))
            for number, slots in pieces
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over `state()`; `load` must follow, or `reset` where the rows were not kept.

        Raises:
            ConfigError: it is that of a replay of another shape.
        """
        self.reset(int(state["origin"]))
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
        self._enter_window(self._priority_views())

    def find(self, priorities: Mapping[str, Array]) -> None:
        """Take over the rows that the rings hold, after `restore`, with those of `arrays()` that are priorities."""
        for name, view in self._priority_views().items():
            view[...] = priorities[name]
        self._enter_window(priorities)

    def recover(self, origin: int, taken_in: int, born: int) -> None:
        """Take over the rows that the rings hold, of tickets from `origin` on, after who took them in has died.

        All of them are as urgent as new ones, and count as born after `born` updates.
        """
        self.reset(origin)
        self.taken_in = taken_in
        slots = self._window_slots()
        self._tickets[slots], self._born[slots] = self.window, born
        self._enter_window({})

    def _enter_window(self, priorities: Mapping[str, Array]) -> None:
        """Let all of the window be drawn: by the priorities that were just written, if there are some."""
        rows, flags = self._shape.ticket_rows, self._rings.valid_cells()
        rebuilt = self._priorities is not None and bool(priorities)
        for slots in self._slots(self._from):
            valid = flags[slots.start * rows : slots.stop * rows]
            self.valid += int(np.count_nonzero(valid))
            if not rebuilt:
                self._drawn.enter(slots.start * self._cells, self._drawable(valid))
        if self._priorities and rebuilt:
            self._priorities.rebuild()

    def _window_slots(self) -> I64:
        window = self.window
        return np.arange(window.start, window.stop) % len(self._tickets)

    def _slots(self, tickets: range) -> list[range]:
        """Return the slots of tickets that follow one another, oldest first."""
        size = len(self._tickets)
        return around(tickets.start % size, len(tickets), size)


class Replay(AnyReplay):
    """Rows, each a transition by itself."""

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
        super().__init__(rings, cells=shape.ticket_rows, lead=0, priorities=priorities)
        self._batch_size, self._n_step, self._gamma = batch_size, n_step, gamma
        computed = ["discount", "weight"] if priorities else ["discount"]
        self._buffers = [_Buffers(batch_size, self._flat, rings, computed) for _ in range(2)]
        slots = np.arange(shape.actors * shape.slots_per_ring)
        ring, slot = slots % shape.actors, slots // shape.actors
        rows = ring * (shape.rows + 1) + slot * shape.length - slots * shape.length
        self._shift: I64 = rows * shape.columns
        """From a cell to its place, by slot."""

    @property
    def transitions(self) -> float:
        return float(self._batch_size)

    def _drawable(self, valid: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return valid

    def sample(self, random: np.random.Generator) -> Samples:
        self._buffers.reverse()
        buffers = self._buffers[0]
        cells, tickets, born = buffers.samples[1:]
        self._draw(random, cells)
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
        for name, stack in self._rings.stacks.items():
            for places, prefix in ((buffers.places, ""), (buffers.following, "next/")):
                self._flat[name].take(self._frames(places, stack), 0, buffers.samples.arrays[prefix + name], "clip")
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


def checkpoint_fields(rings: Rings) -> list[str]:
    """Return the fields that a checkpoint keeps."""
    return [field.name for field in rings.fields if field.name not in _NOT_SAMPLED]


def _other_layout() -> ConfigError:
    return ConfigError(
        "the replay in this checkpoint has another layout: resume with the actors, envs_per_actor, chunk_length, "
        "capacity, max_ahead and prioritized that it was saved with"
    )


class _Drawn(Protocol):
    """What can be drawn: cells, told by the first of them and which can."""

    count: int

    def enter(self, first: int, valid: NDArray[np.bool_]) -> None: ...

    def leave(self, first: int, valid: NDArray[np.bool_]) -> None: ...

    def draw(self, random: np.random.Generator, cells: I64) -> None: ...


class _Uniform:
    """The cells that can be drawn in a queue, as they enter and leave in order: each draw is one number."""

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

    def __init__(self, size: int, flat: Mapping[str, Array], rings: Rings, computed: Sequence[str]) -> None:
        self.slots, self.places, self.following = (np.zeros(size, np.int64) for _ in range(3))
        self.flags = np.zeros(size, np.bool_)
        stacked = {name: (stack,) for name, stack in rings.stacks.items()}
        arrays = {
            name: np.zeros((size, *stacked.get(name, ()), *rows.shape[1:]), rows.dtype) for name, rows in flat.items()
        }
        nexts = {f"next/{name}": np.zeros_like(arrays[name]) for name in rings.leaves}
        self._gathered = [(flat[name], arrays[name]) for name in flat if name not in _COMPUTED | stacked.keys()]
        self._gathered_next = [(flat[name], nexts[f"next/{name}"]) for name in rings.leaves if name not in stacked]
        shown = {name: array for name, array in arrays.items() if name not in _FLAGS}
        cells, tickets, born = (np.zeros(size, np.int64) for _ in range(3))
        others = {name: np.zeros(size, np.float32) for name in computed}
        self.samples = Samples(shown | nexts | others, cells, tickets, born)

    def gather(self) -> None:
        """Write what is taken as it is from the rings: of the sampled rows, and of those after their last steps.

        Stacks are not: they lie there frame by frame.
        """
        for rows, array in self._gathered:
            rows.take(self.places, 0, array, "clip")  # in range: clip only keeps NumPy from a buffer of its own
        for rows, array in self._gathered_next:
            rows.take(self.following, 0, array, "clip")
