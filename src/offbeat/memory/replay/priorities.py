"""Samplers of a replay's cells: uniform, or prioritized by the last error (arXiv:1511.05952).

The priority of a cell is p = (|error| + `FLOOR`)^alpha. Until a cell is sampled for the first time, it has the highest
priority so far. Cells that cannot be sampled have priority 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from offbeat.core.types import F64, I64

FLOOR = 1e-6
"""Added to each error, so that cells with error 0 can still be sampled (the paper's epsilon)."""
FIRST = 1.0
"""Priority of new cells as long as there are no errors."""


class CellSampler(Protocol):
    """Samples cells: rows of the rings, or columns of tickets."""

    count: int
    """Number of cells that can be sampled."""

    def enter(self, first: int, valid: NDArray[np.bool_]) -> None:
        """Add the cells `first`, `first` + 1, ... for which `valid` is true."""

    def leave(self, first: int, valid: NDArray[np.bool_]) -> None:
        """Remove the cells that `enter` added with the same arguments; the oldest cells are removed first."""

    def sample(self, random: np.random.Generator, cells: I64) -> None:
        """Fill `cells` with sampled cells."""


class UniformSampler:
    """Samples cells uniformly. The cells are in a queue: they must be added and removed in the same order."""

    def __init__(self, capacity: int) -> None:
        self._cells = np.zeros(capacity, np.int64)
        self._oldest = 0
        self.count = 0

    def enter(self, first: int, valid: NDArray[np.bool_]) -> None:
        cells = first + np.flatnonzero(valid)
        self._cells.put(np.arange(len(cells)) + (self._oldest + self.count), cells, mode="wrap")
        self.count += len(cells)

    def leave(self, first: int, valid: NDArray[np.bool_]) -> None:  # noqa: ARG002
        removed = int(np.count_nonzero(valid))
        self._oldest = (self._oldest + removed) % len(self._cells)
        self.count -= removed

    def sample(self, random: np.random.Generator, cells: I64) -> None:
        indices = random.integers(self._oldest, self._oldest + self.count, len(cells))
        self._cells.take(indices, 0, cells, "wrap")


class TreeSampler:
    """Samples cells uniformly. They may be added in any order; which ones are sampled does not depend on the order."""

    def __init__(self, cells: int) -> None:
        self._tree = SumTree(cells)
        self.highest = FIRST
        """Priority of new cells."""
        self.count = 0
        """Number of cells that can be sampled."""

    def enter(self, first: int, valid: NDArray[np.bool_]) -> None:
        """Add the cells `first`, `first` + 1, ... for which `valid` is true, with the highest priority so far."""
        self._tree.fill(first, np.where(valid, self.highest, 0.0))
        self.count += int(np.count_nonzero(valid))

    def add(self, cells: I64) -> None:
        """Add cells, no two of them equal, with the highest priority so far. Those that are present are not changed."""
        new = cells[self._tree.leaves[cells] == 0]
        self._tree.set(new, np.full(len(new), self.highest))
        self.count += len(new)

    def leave(self, first: int, valid: NDArray[np.bool_]) -> None:
        """Remove the cells `first`, `first` + 1, ... for which `valid` is true: all that are present."""
        self._tree.fill(first, np.zeros(len(valid)))
        self.count -= int(np.count_nonzero(valid))

    def sample(self, random: np.random.Generator, cells: I64) -> None:
        """Fill `cells` with sampled cells."""
        cells[:] = self._tree.find(random.random(len(cells)))


@dataclass(frozen=True)
class Exponents:
    """Exponents of prioritized sampling."""

    priority: float
    """alpha of the paper: 0 samples uniformly, 1 in proportion to the error."""
    importance: float
    """beta of the paper: 0 does not correct the sampling bias, 1 corrects it fully."""


class PrioritizedSampler(TreeSampler):
    """Samples cells in proportion to their priorities. `highest` is the highest priority so far."""

    def __init__(self, exponents: Exponents, cells: int) -> None:
        super().__init__(cells)
        self._exponents = exponents

    def sample(self, random: np.random.Generator, cells: I64) -> None:
        """Fill `cells` with one sample from each of `len(cells)` equal parts of the sum of priorities."""
        size = len(cells)
        cells[:] = self._tree.find((np.arange(size) + random.random(size)) / size)

    def weights(self, cells: I64) -> NDArray[np.float32]:
        """Return the importance weights of sampled cells, normalized to a maximum of 1.

        (N P_i)^-beta / max_j (N P_j)^-beta, with j over the sampled cells, is (min_j p_j / p_i)^beta: N and the sum
        of the priorities cancel out.
        """
        priorities = self._tree.leaves[cells]
        weights: NDArray[np.float64] = (priorities.min() / priorities) ** self._exponents.importance
        return weights.astype(np.float32)

    def update(self, cells: I64, errors: NDArray[Any]) -> None:
        """Set the priorities of sampled cells from the absolute values of their errors.

        Raises:
            ValueError: an error is not finite. The highest priority would then stay infinite or NaN.
        """
        priorities = (np.abs(errors.astype(np.float64)) + FLOOR) ** self._exponents.priority
        highest = float(priorities.max(initial=self.highest))
        if not np.isfinite(highest):
            raise ValueError("errors must be finite, because priorities are computed from them")
        self.highest = highest
        self._tree.set(cells, priorities)

    def view(self, cells: range) -> F64:
        """Return a view of the priorities of a range of cells. Call `rebuild` after writing to it."""
        return self._tree.leaves[cells.start : cells.stop]

    def rebuild(self) -> None:
        """Use the priorities that were written to the views of `view`."""
        self._tree.rebuild()
        self.count = int(np.count_nonzero(self._tree.leaves))


class SumTree:
    """A tree of sums over an array, with a search for the position where the running sum exceeds a target.

    Each level has the sums of `FAN` neighbors of the level below. A sum is always recomputed from its parts, so
    rounding errors do not accumulate. All operations process many leaves at once, level by level.
    """

    FAN = 16
    TOP = 4096
    """Maximum size of the top level, which is searched as a whole."""

    def __init__(self, leaves: int) -> None:
        self._levels = [np.zeros((-(-leaves // self.FAN), self.FAN))]  # [groups, FAN], the leaves first
        while self._levels[-1].size > self.TOP:
            self._levels.append(np.zeros((-(-len(self._levels[-1]) // self.FAN), self.FAN)))
        self.leaves: F64 = self._levels[0].reshape(-1)[:leaves]
        """View of the leaves. Change them with `set` or `fill`, or write to this view and then call `rebuild`."""

    def set(self, indices: I64, values: F64) -> None:
        """Write leaves at any indices. Of duplicate indices the last one counts."""
        self.leaves[indices] = values
        for level, above in zip(self._levels, self._levels[1:], strict=False):
            indices = indices // self.FAN
            above.reshape(-1)[indices] = level.take(indices, 0).sum(axis=1)

    def fill(self, first: int, values: F64) -> None:
        """Write successive leaves, from `first` on."""
        stop = first + len(values)
        self.leaves[first:stop] = values
        for level, above in zip(self._levels, self._levels[1:], strict=False):
            first, stop = first // self.FAN, -(-stop // self.FAN)
            above.reshape(-1)[first:stop] = level[first:stop].sum(axis=1)

    def rebuild(self) -> None:
        """Recompute all sums after leaves have been written."""
        self.fill(0, self.leaves)

    def find(self, shares: F64) -> I64:
        """Return the leaf at which the running sum of all leaves exceeds each share, in [0, 1], of the total.

        At least one leaf must be positive. A leaf of 0 is never found, in spite of rounding: within each group the
        target is clipped below the last running sum, so it is first exceeded at a positive leaf.
        """
        running = _running_sums(self._levels[-1].reshape(1, -1))[0]
        targets = np.minimum(shares * running[-1], np.nextafter(running[-1], 0))
        found: I64 = running[1:].searchsorted(targets, side="right")
        before = running[found]
        for level in reversed(self._levels[:-1]):
            running = _running_sums(level.take(found, 0))  # [M, FAN + 1]
            targets = np.minimum(targets - before, np.nextafter(running[:, -1], 0))
            child = (running[:, 1:] > targets[:, None]).argmax(axis=1)  # the first
            before = running[np.arange(len(found)), child]
            found = found * self.FAN + child
        return found


def _running_sums(groups: F64) -> F64:
    """Return each group's running sums, starting with 0: [groups, FAN] -> [groups, FAN + 1]."""
    running = np.zeros((len(groups), groups.shape[1] + 1))
    np.cumsum(groups, axis=1, out=running[:, 1:])
    return running
