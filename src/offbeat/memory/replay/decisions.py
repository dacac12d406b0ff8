"""Targets in envs with rows without a decision: how far the step of a decision goes, and when it is complete.

    rows of a column:   decision | no decision | no decision | decision | no decision: the end | reset row
                        ^------------- a step -------------^  ^------------ a step ----------^

The *step* of a decision ends before the next decision of the column, or with the row in which the episode ends. Its
reward is the sum of the rewards of its rows, and its next observation is in the row after it. So there is one discount
per decision, and n steps are n decisions.

A decision is *complete* as soon as the row that ends its episode, or the row after its step, has been taken in. Until
then it is *open*, and it is not sampled. Only the last decision of a column can be open. A wait that leaves the window
before it ends was never sampled.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from offbeat.core.types import F64, I64, NO_DECISION, Flags
from offbeat.memory.replay.rings import Rings


class Completed(NamedTuple):
    """Earlier decisions that a ticket has completed."""

    positions: I64
    tickets: I64


class DecisionSteps(NamedTuple):
    """The sums over the n steps that start at each of M decisions."""

    reward: F64
    """Sum of gamma^i R_i over the steps taken, [M]; R_i is the reward of a step."""
    discount: F64
    """Factor of the value after the last step, [M]: gamma^steps, or 0 if that step terminated the episode."""
    last: I64
    """Position of the last row of the last step, [M]: the next observation is in the row after it."""
    rows: I64
    """Number of rows of the steps, [M]."""


NONE = Completed(np.zeros(0, np.int64), np.zeros(0, np.int64))


class CompleteRows(Protocol):
    """Says which rows of the tickets that were taken in can be sampled."""

    def reset(self) -> None:
        """Start empty."""

    def take_in(self, ticket: int) -> Completed:
        """Take in the next ticket of an actor; return the decisions of earlier tickets that it completes.

        These may have left the window.
        """

    def restore(self, window: range) -> None:
        """Restore the state after the tickets of a window have been taken in."""

    def complete(self, ticket: int) -> Flags:
        """Return which rows of a ticket that was taken in can be sampled, by row number: [T N]."""

    def all_complete(self) -> Flags:
        """Return which rows of all tickets can be sampled, by row number: a copy."""


class ValidRows:
    """All valid rows, in envs without rows without a decision."""

    def __init__(self, rings: Rings) -> None:
        self.complete, self.all_complete = rings.valid, rings.all_valid

    def reset(self) -> None:
        """Do nothing: the rings have all that is needed."""

    def take_in(self, ticket: int) -> Completed:  # noqa: ARG002
        return NONE

    def restore(self, window: range) -> None:
        """Do nothing."""


class Decisions:
    """The complete decisions, in envs with rows without a decision. Knows which ones are open, and computes targets."""

    def __init__(self, rings: Rings) -> None:
        """Start without an open decision.

        Args:
            rings: Rings that the actors write, with the field `NO_DECISION`.
        """
        self._rings, self._shape = rings, rings.shape
        names = ("reward", "terminated", "truncated", "valid", NO_DECISION)
        self._reward, self._terminated, self._truncated, self._valid, self._no_decision = map(rings.flat, names)
        actors, columns = self._shape.actors, self._shape.columns
        self._open, self._open_tickets = np.zeros((2, actors, columns), np.int64)
        """[actors, N]: position and ticket of the open decision of each column; -1 if there is none."""
        self._columns = np.arange(columns)
        self.reset()

    def reset(self) -> None:
        """Forget all open decisions."""
        self._open[:] = self._open_tickets[:] = -1

    def take_in(self, ticket: int) -> Completed:
        actor = ticket % self._shape.actors
        settled, rows = self._last_rows(ticket)
        late = settled & (self._open[actor] >= 0)
        completed = Completed(self._open[actor, late], self._open_tickets[actor, late])
        self._set_open(ticket, settled, rows)
        return completed

    def restore(self, window: range) -> None:
        self.reset()
        for actor in range(self._shape.actors):
            unknown = np.ones(self._shape.columns, np.bool_)
            newest = window.stop - 1 - (window.stop - 1 - actor) % self._shape.actors
            for ticket in range(newest, window.start - 1, -self._shape.actors):
                settled, rows = self._last_rows(ticket)
                self._set_open(ticket, settled & unknown, rows)
                unknown &= ~settled
                if not unknown.any():
                    break

    def complete(self, ticket: int) -> Flags:
        flags = self._rings.valid(ticket).copy()
        actor = ticket % self._shape.actors
        numbers = self._rings.row_numbers(self._open[actor, self._open_tickets[actor] == ticket])
        flags[numbers % self._shape.ticket_rows] = False
        return flags

    def is_open(self, positions: I64) -> Flags:
        """Return which of these positions are those of open decisions."""
        rows, columns = np.divmod(positions, self._shape.columns)
        flags: Flags = self._open[rows // (self._shape.rows + 1), columns] == positions
        return flags

    def all_complete(self) -> Flags:
        flags = self._rings.all_valid()
        flags[self._rings.row_numbers(self._open[self._open >= 0])] = False
        return flags

    # --- targets --------------------------------------------------------------------------------------------

    def steps(self, positions: I64, n: int, gamma: float, left: I64 | None = None) -> DecisionSteps:
        """Sum the rewards of n steps.

        A step is the last one if it ends the episode, or if the next decision is open or has another episode before it.

        Args:
            positions: Positions of complete decisions, [M].
            n: Largest number of steps.
            gamma: Discount per decision.
            left: A decision is only followed by another one less than this number of rows after it, [M]; None: by any.
        """
        size = len(positions)
        reward, discount, rows = np.zeros(size), np.ones(size), np.zeros(size, np.int64)
        last, index, start = positions.copy(), np.arange(size), positions
        for _ in range(n):
            step_reward, step_last, step_rows = self._one_step(start)
            reward[index] += discount[index] * step_reward
            rows[index] += step_rows
            last[index] = step_last
            discount[index] *= np.where(self._terminated[step_last], 0.0, gamma)
            after = self._rings.later(step_last, 1)
            continues = ~self._ends(step_last) & self._valid[after] & ~self.is_open(after)
            if left is not None:
                continues &= rows[index] < left[index]
            index, start = index[continues], after[continues]
        return DecisionSteps(reward, discount, last, rows)

    def _one_step(self, positions: I64) -> tuple[F64, I64, I64]:
        """Return the reward of the step of each decision, the position of its last row, and its number of rows."""
        reward, last = self._reward[positions].astype(np.float64), positions.copy()
        rows = np.ones(len(positions), np.int64)
        waiting = np.flatnonzero(~self._ends(positions))
        for _ in range(self._shape.rows):
            after = self._rings.later(last[waiting], 1)
            continues = self._no_decision[after]
            waiting, after = waiting[continues], after[continues]
            if not len(waiting):
                break
            reward[waiting] += self._reward[after]
            rows[waiting] += 1
            last[waiting] = after
            waiting = waiting[~self._ends(after)]
        return reward, last, rows

    def _ends(self, positions: I64) -> Flags:
        """Return whether the episode ends in these rows."""
        flags: Flags = self._terminated[positions] | self._truncated[positions]
        return flags

    # --- open decisions -------------------------------------------------------------------------------------

    def _last_rows(self, ticket: int) -> tuple[Flags, I64]:
        """Return which columns have a row that completes earlier decisions, [N], and the row of the ticket with the
        decision that it leaves open, [N], -1 if there is none.

        All rows complete earlier decisions, except rows without a decision in which no episode ends. A decision is open
        if it is the last of these rows, and its episode does not end in it.
        """
        rows = self._rings.ticket(ticket)
        ended = rows["terminated"] | rows["truncated"]
        completes = ~rows[NO_DECISION] | ended
        last = len(completes) - 1 - completes[::-1].argmax(axis=0)
        settled: Flags = np.logical_or.reduce(completes, axis=0)
        is_open: Flags = settled & rows["valid"][last, self._columns] & ~ended[last, self._columns]
        return settled, np.where(is_open, last, -1)

    def _set_open(self, ticket: int, settled: Flags, rows: I64) -> None:
        """Note the open decisions of `settled` columns: `rows` of a ticket, -1 if there is none."""
        actor = ticket % self._shape.actors
        positions = self._rings.first_position(ticket) + rows * self._shape.columns + self._columns
        self._open[actor, settled] = np.where(rows < 0, -1, positions)[settled]
        self._open_tickets[actor, settled] = np.where(rows < 0, -1, ticket)[settled]
