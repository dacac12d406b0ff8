"""Prioritized sampling: rows drawn in proportion to what their last error was (arXiv:1511.05952).

A row's priority is p = (|error| + `FLOOR`)^alpha, and the highest so far while it has not been sampled yet. Rows
that are not to be sampled have priority 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

FLOOR = 1e-6
"""Added to each error, so that a row whose error was 0 can still be sampled (the paper's epsilon)."""
FIRST = 1.0
"""The priority of the first rows, before there is any error to compare them with."""


@dataclass(frozen=True)
class Exponents:
    """How far sampling goes with the errors."""

    priority: float
    """alpha of the paper: 0 samples uniformly, 1 in proportion to the error."""
    importance: float
    """beta of the paper: 0 leaves the bias as it is, 1 takes all of it away."""


class Priorities:
    """A priority for each cell of a replay, and the rows drawn by them."""

    def __init__(self, exponents: Exponents, cells: int) -> None:
        self._exponents = exponents
        self._tree = SumTree(cells)
        self.highest = FIRST
        """So far, of all rows."""
        self.count = 0
        """Rows that can be drawn."""

    def enter(self, first: int, valid: NDArray[np.bool_]) -> None:
        """Let the valid ones of the cells from `first` on be drawn, with the highest priority so far."""
        self._tree.fill(first, np.where(valid, self.highest, 0.0))
        self.count += int(np.count_nonzero(valid))

    def leave(self, first: int, valid: NDArray[np.bool_]) -> None:
        """Let none of these cells be drawn any more; they had been entered with the same flags."""
        self._tree.fill(first, np.zeros(len(valid)))
        self.count -= int(np.count_nonzero(valid))

    def draw(self, random: np.random.Generator, cells: I64) -> None:
        """Write as many drawn cells as `cells` has room for, one from each of equal shares of the sum of priorities."""
        size = len(cells)
        cells[:] = self._tree.find((np.arange(size) + random.random(size)) / size)

    def weights(self, cells: I64) -> NDArray[np.float32]:
        """Return the importance weights of drawn cells, the largest of them 1.

        (N P_i)^-beta / max_j (N P_j)^-beta, with j over the drawn cells, is (min_j p_j / p_i)^beta: neither N nor
        the sum of the priorities is left in it.
        """
        priorities = self._tree.leaves[cells]
        weights: NDArray[np.float64] = (priorities.min() / priorities) ** self._exponents.importance
        return weights.astype(np.float32)

    def update(self, cells: I64, errors: NDArray[Any]) -> None:
        """Give drawn cells the priorities of their errors, whose sign does not count.

        Raises:
            ValueError: an error is not finite; its priority would be above all others for ever.
        """
        priorities = (np.abs(errors.astype(np.float64)) + FLOOR) ** self._exponents.priority
        highest = float(priorities.max(initial=self.highest))
        if not np.isfinite(highest):
            raise ValueError("an error that is not finite makes no priority")
        self.highest = highest
        self._tree.set(cells, priorities)

    def view(self, cells: range) -> F64:
        """Return a view of the priorities of a range of cells; `rebuild` follows when it is written."""
        return self._tree.leaves[cells.start : cells.stop]

    def rebuild(self) -> None:
        """Take over the priorities written into the views that `view` returns."""
        self._tree.rebuild()
        self.count = int(np.count_nonzero(self._tree.leaves))


class SumTree:
    """Numbers, and a search for where their running sum passes a target.

    Each level has the sums of `FAN` neighbours of the one below. A sum is always made anew from its parts, never
    by adding a difference to it: so it is exact, however long the tree is used. All is done for many leaves at once,
    level by level.
    """

    FAN = 16
    TOP = 4096
    """Leaves, or sums, that are searched as one: no further level is needed above them."""

    def __init__(self, leaves: int) -> None:
        self._levels = [np.zeros((-(-leaves // self.FAN), self.FAN))]  # [groups, FAN], the leaves first
        while self._levels[-1].size > self.TOP:
            self._levels.append(np.zeros((-(-len(self._levels[-1]) // self.FAN), self.FAN)))
        self.leaves: F64 = self._levels[0].reshape(-1)[:leaves]
        """Read them here; they are written by `set` and `fill`, or followed by `rebuild`."""

    def set(self, where: I64, values: F64) -> None:
        """Write leaves at any places; the last counts where one comes twice."""
        self.leaves[where] = values
        for level, above in zip(self._levels, self._levels[1:], strict=False):
            where = where // self.FAN
            above.reshape(-1)[where] = level.take(where, 0).sum(axis=1)

    def fill(self, first: int, values: F64) -> None:
        """Write leaves side by side, from `first` on."""
        stop = first + len(values)
        self.leaves[first:stop] = values
        for level, above in zip(self._levels, self._levels[1:], strict=False):
            first, stop = first // self.FAN, -(-stop // self.FAN)
            above.reshape(-1)[first:stop] = level[first:stop].sum(axis=1)

    def rebuild(self) -> None:
        """Make all sums anew, after leaves have been written."""
        self.fill(0, self.leaves)

    def find(self, shares: F64) -> I64:
        """Return the leaf at which the running sum of all leaves exceeds each share, in [0, 1], of the total.

        At least one leaf must be above 0. However sums are rounded, no leaf of 0 is ever found: within each group a
        target is kept below the group's last running sum, and is first exceeded where that sum grows.
        """
        running = _running(self._levels[-1].reshape(1, -1))[0]
        targets = np.minimum(shares * running[-1], np.nextafter(running[-1], 0))
        found: I64 = running[1:].searchsorted(targets, side="right")
        before = running[found]
        for level in reversed(self._levels[:-1]):
            running = _running(level.take(found, 0))  # [M, FAN + 1]
            targets = np.minimum(targets - before, np.nextafter(running[:, -1], 0))
            child = (running[:, 1:] > targets[:, None]).argmax(axis=1)  # the first
            before = running[np.arange(len(found)), child]
            found = found * self.FAN + child
        return found


def _running(groups: F64) -> F64:
    """Return each group's running sum, beginning with 0: [groups, FAN] -> [groups, FAN + 1]."""
    running = np.zeros((len(groups), groups.shape[1] + 1))
    np.cumsum(groups, axis=1, out=running[:, 1:])
    return running
