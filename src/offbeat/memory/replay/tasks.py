"""A replay that samples by task: rows of several tasks, and for each of these tasks a context.

A ticket has one task, and successive tickets of an actor in the same task are a visit (`core/visits.py`). The rows of a
sample are from all visits of a task that are in the window. Its context is from the *prior rows* of one visit: of the
newest one whose prior rows have all been taken in. So a context is what an actor knows of a task after it has acted
with the prior, and it is as new as possible.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from offbeat.core.errors import RunFailed
from offbeat.core.types import I64, NOT_ENDED
from offbeat.core.visits import TASK, Visits
from offbeat.memory.replay.base import Samples
from offbeat.memory.replay.priorities import CellSampler
from offbeat.memory.replay.rings import Rings
from offbeat.memory.replay.transitions import TransitionReplay
from offbeat.memory.replay.window import TicketWindow

CONTEXT = "context/"
"""Prefix of the arrays of the context in samples."""


class MetaBatch(NamedTuple):
    """How many samples an update has."""

    tasks: int
    """Tasks of an update. They differ, as long as rows of this many tasks have been taken in."""
    rows: int
    """Rows of each task."""
    context: int
    """Context rows of each task."""


class TaskSampler(CellSampler):
    """Samples cells by task. Tickets are added and removed in their order."""

    def __init__(self, window: TicketWindow, tasks: NDArray[np.int64], visits: Visits, ticket_cells: int) -> None:
        """Start empty.

        Args:
            window: knows the ticket of each place.
            tasks: [actors, slots, N]: the task of each ticket, that actors write.
            visits: how tickets are divided into visits.
            ticket_cells: number of cells of a ticket.
        """
        self._window, self._task, self._visits, self._ticket_cells = window, tasks, visits, ticket_cells
        self._row_cells = ticket_cells // visits.length
        """Number of cells of a row: the columns."""
        self._rows = defaultdict[int, deque[I64]](deque)
        """The cells of each task that can be sampled, by ticket, oldest first."""
        self._joined: dict[int, I64] = {}
        """The same, joined, for the tasks that have not changed since they were sampled."""
        self._open = defaultdict[int, list[I64]](list)
        """The cells of the prior rows of each visit whose prior rows have not all been taken in, by ticket."""
        self.contexts: dict[int, I64] = {}
        """The cells of the newest context of each task that has one."""
        self.count = 0

    def task_of(self, place: int) -> int:
        """Return the task of the ticket in a place."""
        actors = len(self._task)
        return int(self._task[place % actors, place // actors, 0])

    def enter(self, first: int, valid: NDArray[np.bool_]) -> None:
        for start in range(0, len(valid), self._ticket_cells):
            self._enter_ticket(first + start, valid[start : start + self._ticket_cells])

    def _enter_ticket(self, first: int, valid: NDArray[np.bool_]) -> None:
        """Add the cells of one ticket, from `first` on."""
        place, cells = first // self._ticket_cells, first + np.flatnonzero(valid)
        task = self.task_of(place)
        self._rows[task].append(cells)
        self._joined.pop(task, None)
        self.count += len(cells)
        visit = self._visits.of(int(self._window.tickets[place]))
        stop = first + self._visits.prior_rows_of(visit.part) * self._row_cells
        if stop == first:
            return
        parts = self._open[visit.number]
        parts.append(cells[cells < stop])
        if visit.part == self._visits.prior_tickets - 1:
            self._close_context(task, visit.number)

    def _close_context(self, task: int, visit: int) -> None:
        """Make the prior rows of a visit the context of its task. A visit without its first tickets has no context."""
        parts = self._open.pop(visit)
        context = np.concatenate(parts)
        if len(parts) == self._visits.prior_tickets and len(context):
            self.contexts[task] = context

    def leave(self, first: int, valid: NDArray[np.bool_]) -> None:  # noqa: ARG002
        task = self.task_of(first // self._ticket_cells)
        removed = self._rows[task].popleft()
        self._joined.pop(task, None)
        self.count -= len(removed)

    def draw_tasks(self, random: np.random.Generator, count: int) -> list[int]:
        """Return tasks that have a context, in random order, no task twice if there are enough."""
        known = sorted(self.contexts)
        return [known[index] for index in np.resize(random.permutation(len(known)), count)]

    def sample_rows(self, random: np.random.Generator, tasks: list[int], cells: I64) -> None:
        """Fill `cells` with equally many cells of each task, task by task."""
        for task, part in zip(tasks, cells.reshape(len(tasks), -1), strict=True):
            if task not in self._joined:
                self._joined[task] = np.concatenate(self._rows[task])
            _draw(random, self._joined[task], part)

    def sample_context(self, random: np.random.Generator, tasks: list[int], cells: I64) -> None:
        """Fill `cells` with equally many cells of the context of each task, task by task."""
        for task, part in zip(tasks, cells.reshape(len(tasks), -1), strict=True):
            _draw(random, self.contexts[task], part)

    def sample(self, random: np.random.Generator, cells: I64) -> None:
        """Fill `cells` with cells of one random task."""
        self.sample_rows(random, self.draw_tasks(random, 1), cells)


def _draw(random: np.random.Generator, cells: I64, out: I64) -> None:
    """Fill `out` with random ones of `cells`, with replacement."""
    cells.take(random.integers(len(cells), size=len(out)), 0, out)


class TaskReplay(TransitionReplay):
    """See the module's docstring."""

    def __init__(
        self, rings: Rings, *, visited_tasks: int, meta_batch: MetaBatch, gamma: float, visits: Visits, buffers: int = 2
    ) -> None:
        """Start empty, at ticket 0.

        Args:
            rings: rings that the actors write, with the field `TASK`.
            visited_tasks: number of tasks that are visited.
            meta_batch: how many samples an update has.
            gamma: discount per env step.
            visits: how tickets are divided into visits.
            buffers: number of calls of `sample` after which the arrays of a sample are overwritten.
        """
        self._meta_batch, self._visits, self._tasks = meta_batch, visits, rings.per_ticket(TASK)
        self._returns = np.full((2, visited_tasks), np.nan)
        """[prior or posterior, task]: mean return of the last ticket in which episodes ended; NaN if there is none."""
        super().__init__(rings, batch_size=meta_batch.tasks * meta_batch.rows, n_step=1, gamma=gamma, buffers=buffers)
        self._context_buffers = self.new_buffers(meta_batch.tasks * meta_batch.context)

    def reset(self, origin: int) -> None:
        super().reset(origin)
        self._returns[:] = np.nan

    def new_sampler(self) -> TaskSampler:
        self._by_task = TaskSampler(self._window, self._tasks, self._visits, self._ticket_cells)
        return self._by_task

    def take_in(self, ticket: int, behavior_updates: int) -> int:
        completed = super().take_in(ticket, behavior_updates)
        rows, part = self.ticket(ticket), self._visits.of(ticket).part
        prior_rows = self._visits.prior_rows_of(part)
        for kind, own in enumerate((slice(prior_rows), slice(prior_rows, None))):
            returns = rows["episode_return"][own][rows["episode_length"][own] != NOT_ENDED]
            if len(returns):
                self._returns[kind, rows[TASK][0]] = returns.mean()
        return completed

    def sample(self, random: np.random.Generator) -> Samples:
        """Sample rows and contexts of several tasks.

        Returns:
            The samples of the rows, task by task. Their arrays have the context of each task too, with the prefix
            `CONTEXT`, [tasks x context, ...], in the same order of tasks.

        Raises:
            RunFailed: no task has a context yet.
        """
        if not self._by_task.contexts:
            sampled = self._window.sampled
            raise RunFailed(
                f"the replay has no context of any task: tickets {sampled.start} to {sampled.stop - 1} have no visit "
                "whose prior_steps rows have all been taken in. Pass a larger warmup"
            )
        tasks = self._by_task.draw_tasks(random, self._meta_batch.tasks)
        buffers = next(self._context_buffers)
        self._by_task.sample_context(random, tasks, buffers.samples.cells)
        context = self.samples_of(buffers).arrays
        buffers = next(self._buffers)
        self._by_task.sample_rows(random, tasks, buffers.samples.cells)
        rows = self.samples_of(buffers)
        return rows._replace(arrays=rows.arrays | {CONTEXT + name: array for name, array in context.items()})

    def metrics(self) -> dict[str, float]:
        sizes = [len(cells) for cells in self._by_task.contexts.values()]
        metrics = {"tasks_with_context": float(len(sizes))}
        if sizes:
            metrics |= {"context_size_min": float(min(sizes)), "context_size_mean": float(np.mean(sizes))}
        for name, returns in zip(("prior", "posterior"), self._returns, strict=True):
            known = returns[~np.isnan(returns)]
            if len(known):
                metrics |= {
                    f"{name}_return_mean": float(known.mean()),
                    f"{name}_return_min": float(known.min()),
                    f"{name}_return_max": float(known.max()),
                }
        return metrics

    def state(self) -> dict[str, Any]:
        return {**super().state(), "task_returns": self._returns.copy()}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self._returns[:] = state["task_returns"]
