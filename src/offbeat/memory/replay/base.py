"""The base class of replays: taking in tickets, sampling from the window of the newest ones, and checkpoints.

Actors write into rings (`rings.py`), and the learner takes in their tickets in order. `TransitionReplay`
(`transitions.py`) samples single rows, `SequenceReplay` (`sequences.py`) samples sequences of rows.

A *cell* is the index of one item that can be sampled: of a row for `TransitionReplay`, of one column of a ticket for
`SequenceReplay`. Cells are numbered place by place (`rings.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from offbeat.core.errors import ConfigError, RunFailed
from offbeat.core.types import ENV_STEP, I64, NO_DECISION, Array, Tree
from offbeat.memory.replay.decisions import Completed, CompleteRows, Decisions, ValidRows
from offbeat.memory.replay.priorities import CellSampler, Exponents, PrioritizedSampler, TreeSampler, UniformSampler
from offbeat.memory.replay.rings import Rings
from offbeat.memory.replay.window import TicketWindow

PRIORITIES = "priorities/"
"""Prefix of the names of the arrays with priorities."""
_NOT_SAMPLED = frozenset({"episode_return", "episode_length", "behavior_version", "info", ENV_STEP})


class Samples(NamedTuple):
    """The samples of one update.

    `TransitionReplay` overwrites the arrays in a later call of `sample`: see its `buffers`.
    """

    arrays: Tree
    """name -> [M, ...]:

    - each leaf of the observation (with its frame stack) under its name, and under next/ + its name the leaf of the
      observation after the last of the n steps;
    - action, and the fields that the algorithm recorded;
    - reward: discounted sum over the n steps; discount: factor of the next value, 0 after a termination;
      in envs with rows without a decision, the steps are those of `decisions.py`;
    - weight: importance weight, only with priorities.

    `SequenceReplay.sample` lists the arrays of sequences."""
    cells: I64
    """Cell of each sample, [M]."""
    tickets: I64
    """Ticket of each sample, [M]."""
    behavior_updates: I64
    """Number of updates of the policy that collected each sample, [M]. The age of a sample is counted from here."""


class Replay(ABC):
    """Takes in tickets in order, samples from the window of the newest ones, and saves its state."""

    def __init__(self, rings: Rings, *, ticket_cells: int, skipped: int, exponents: Exponents | None) -> None:
        """Start empty, at ticket 0.

        Args:
            rings: Rings that the actors write.
            ticket_cells: Number of cells of a ticket: its rows, or its columns.
            skipped: Number of tickets at the start of the window that are not sampled.
            exponents: Exponents of prioritized sampling; None samples uniformly.
        """
        self._rings, self._shape, self._exponents = rings, rings.shape, exponents
        self._ticket_cells = ticket_cells
        self.leaves, self.prioritized = rings.leaves, exponents is not None
        self._checkpoint_fields = checkpoint_fields(rings)
        steps = (field.name for field in rings.fields if field.per == "step" and field.name in self._checkpoint_fields)
        self._flat = {name: rings.flat(name) for name in steps}
        marked = any(field.name == NO_DECISION for field in rings.fields)
        self._decisions = Decisions(rings) if marked else None
        """Only in envs with rows without a decision."""
        self._complete_rows: CompleteRows = self._decisions or ValidRows(rings)
        self._window = TicketWindow(rings.shape, skipped)
        self._tickets, self._behavior_updates = self._window.tickets, self._window.behavior_updates
        self.reset(0)

    def reset(self, origin: int) -> None:
        """Empty the replay; `origin` is the next ticket. Used to resume a run whose replay was not saved."""
        self._window.reset(origin, origin)
        self.size = 0
        """Number of transitions that can be sampled: valid rows, without decisions that are still open."""
        self._complete_rows.reset()
        cells = len(self._tickets) * self._ticket_cells
        self._priorities = PrioritizedSampler(self._exponents, cells) if self._exponents else None
        # With decisions, transitions may be completed in another order than that of their rows.
        in_any_order = self._priorities or (TreeSampler(cells) if self._decisions else None)
        self._sampler: CellSampler = in_any_order or self.new_sampler()
        """The same as `_priorities` with priorities."""

    def new_sampler(self) -> CellSampler:
        """Return a new sampler, for transitions that are completed in the order of their rows."""
        return UniformSampler(self._shape.tickets * self._ticket_cells)

    @property
    def window(self) -> range:
        """The tickets whose rows samples may read."""
        return self._window.readable

    @property
    def origin(self) -> int:
        """The first ticket that was taken in since `reset`."""
        return self._window.origin

    @property
    def next_ticket(self) -> int:
        """The ticket to take in next: tickets origin .. next_ticket - 1 have been taken in."""
        return self._window.next_ticket

    @property
    @abstractmethod
    def transitions(self) -> float:
        """Number of transitions in a batch of samples; with sequences, the mean number."""

    def metrics(self) -> dict[str, float]:
        """Return metrics of what the replay holds."""
        return {}

    def ticket(self, ticket: int) -> Tree:
        """Return the arrays of a committed ticket: views [T, N, ...] (per step) or [N, ...] (per unroll)."""
        return self._rings.ticket(ticket)

    def take_in(self, ticket: int, behavior_updates: int) -> int:
        """Make a committed ticket available for sampling. If the window is full, its oldest ticket leaves it.

        Args:
            ticket: The next ticket.
            behavior_updates: Number of updates of the policy that collected the ticket.

        Returns:
            The number of transitions that the ticket completes. These are its valid rows; in envs with rows without a
            decision some of them are open at first (`decisions.py`), and those of earlier tickets are completed.

        Raises:
            ValueError: `ticket` is not the next one.
        """
        removed = self._window.append(ticket, behavior_updates)
        if removed is not None:
            rows = self._complete_rows.complete(removed)
            self._sampler.leave(self._window.place(removed) * self._ticket_cells, self._can_be_sampled(rows))
            self.size -= int(np.count_nonzero(rows))
        earlier = self._complete_rows.take_in(ticket)
        rows = self._complete_rows.complete(ticket)
        completed = int(np.count_nonzero(rows))
        if ticket in self._window.sampled:
            self._sampler.enter(self._window.place(ticket) * self._ticket_cells, self._can_be_sampled(rows))
            self.size += completed
        return completed + (self._add(earlier) if len(earlier.tickets) else 0)

    def _add(self, earlier: Completed) -> int:
        """Make decisions of earlier tickets available for sampling; return how many of them are in the window."""
        assert isinstance(self._sampler, TreeSampler)
        window = self._window
        row_numbers = self._rings.row_numbers(earlier.positions[earlier.tickets >= window.sampled.start])
        self._sampler.add(self._cells_of(row_numbers))
        self.size += len(row_numbers)
        return int(np.count_nonzero(earlier.tickets >= window.readable.start))

    def _cells_of(self, row_numbers: I64) -> I64:
        """Return the cells in which rows are: rows themselves, or columns of tickets."""
        return row_numbers // self._shape.ticket_rows * self._ticket_cells + row_numbers % self._ticket_cells

    @abstractmethod
    def _can_be_sampled(self, complete: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which cells of whole tickets can be sampled; `complete` marks the rows that are transitions."""

    @abstractmethod
    def sample(self, random: np.random.Generator) -> Samples:
        """Sample from the window with replacement, uniformly or by priorities.

        Raises:
            RunFailed: the window has no transition.
        """

    def _sample_cells(self, random: np.random.Generator, cells: I64) -> None:
        """Fill `cells` with sampled cells."""
        if not self.size:
            sampled = self._window.sampled
            raise RunFailed(
                f"the replay has no transition: in tickets {sampled.start} to {sampled.stop - 1} all rows are reset "
                "rows or rows without a decision, or decisions before a wait that has not ended. Pass a larger capacity"
            )
        self._sampler.sample(random, cells)

    def update_priorities(self, samples: Samples, errors: Array) -> None:
        """Set the priorities of samples from their errors [M]. Samples that have left the window are ignored.

        Raises:
            ValueError: an error is not finite, or sampling is uniform.
        """
        if self._priorities is None:
            raise ValueError("sampling is uniform: there are no priorities")
        present = samples.tickets >= self._window.sampled.start
        self._priorities.update(samples.cells[present], errors[present])

    # --- checkpoints --------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the state that a checkpoint needs in addition to `arrays`."""
        window = self._window
        updates = window.behavior_updates[window.places]  # "born" in checkpoints
        state = {"origin": window.origin, "taken_in": window.next_ticket, "born": updates}
        return state | ({"highest_priority": self._priorities.highest} if self._priorities else {})

    def arrays(self) -> Tree:
        """Return contiguous views of the rows of the window, of earlier rows that its frame stacks need, and of
        priorities.
        """
        needed = self._shape.tickets_to_save(self.next_ticket, self.origin)
        return self._rings.contiguous_views(needed, self._checkpoint_fields) | self._priority_views()

    def _priority_views(self) -> Tree:
        if self._priorities is None:
            return {}
        ranges, cells = enumerate(self._window.place_ranges(self.window)), self._ticket_cells
        return {
            f"{PRIORITIES}{number}": self._priorities.view(range(places.start * cells, places.stop * cells))
            for number, places in ranges
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore `state()`. Call `load` next, or `reset` if the rows were not saved.

        Raises:
            ConfigError: the state is of a replay of another shape.
        """
        origin, next_ticket = int(state["origin"]), int(state["taken_in"])
        self.reset(origin)
        tickets = len(self._shape.window(next_ticket, origin))
        if tickets != len(state["born"]) or (self._priorities is None) != ("highest_priority" not in state):
            raise _other_topology()
        self._window.reset(origin, next_ticket, state["born"])
        if self._priorities:
            self._priorities.highest = float(state["highest_priority"])

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore `arrays()`, after `restore`.

        Raises:
            ConfigError: the arrays are of a replay of another shape, or of other fields.
        """
        views = self.arrays()
        here, saved = ({name: (part.shape, part.dtype) for name, part in tree.items()} for tree in (views, arrays))
        if here != saved:
            raise _other_topology()
        for name, view in views.items():
            view[...] = arrays[name]
        self._enter_window(priorities=True)

    def attach(self, priorities: Mapping[str, Array]) -> None:
        """Use the rows that are already in the rings, after `restore`. `priorities` is the part of `arrays()` with the
        priorities.
        """
        for name, view in self._priority_views().items():
            view[...] = priorities[name]
        self._enter_window(priorities=True)

    def recover(self, origin: int, next_ticket: int, behavior_updates: int) -> None:
        """Use the rows that are already in the rings, after the learner that took them in has died.

        All rows get the highest priority and the same `behavior_updates`.

        Args:
            origin: First ticket that had been taken in.
            next_ticket: The next ticket.
            behavior_updates: Number of updates that is assumed for the policy that collected the rows.
        """
        self.reset(origin)
        self._window.reset(origin, next_ticket, behavior_updates)
        self._enter_window(priorities=False)

    def _enter_window(self, *, priorities: bool) -> None:
        """Make the whole window available for sampling; `priorities`: whether those of its cells have been written."""
        self._complete_rows.restore(self._window.readable)
        rows, flags = self._shape.ticket_rows, self._complete_rows.all_complete()
        written = self._priorities if priorities else None
        for places in self._window.place_ranges(self._window.sampled):
            complete = flags[places.start * rows : places.stop * rows]
            self.size += int(np.count_nonzero(complete))
            if not written:
                self._sampler.enter(places.start * self._ticket_cells, self._can_be_sampled(complete))
        if written:
            written.rebuild()


def priorities_in(arrays: Tree) -> Tree:
    """Return copies of the priorities among the arrays of a replay."""
    return {name: np.array(array) for name, array in arrays.items() if name.startswith(PRIORITIES)}


def checkpoint_fields(rings: Rings) -> list[str]:
    """Return the names of the fields that a checkpoint contains."""
    return [field.name for field in rings.fields if field.name not in _NOT_SAMPLED]


def _other_topology() -> ConfigError:
    return ConfigError(
        "the replay in this checkpoint has another topology: resume with the same actors, envs_per_actor, "
        "chunk_length, capacity, max_ahead and prioritized"
    )
