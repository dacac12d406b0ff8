"""Running mean and variance in float64: of each component of observations, and of returns.

Statistics change only between learning steps, with the valid rows of the batch in ticket order, so they are the same
in every runtime. Only a mean and a scale in float32 are published.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

EPSILON = 1e-8


class RunningStatistics:
    """Count, mean and variance of all rows so far, merged batch by batch (Chan et al., 1979)."""

    def __init__(self, size: int) -> None:
        self.count = 0.0
        self.mean = np.zeros(size)
        self.squares = np.zeros(size)
        """Sum of squared deviations from the mean."""

    def update(self, rows: NDArray[Any]) -> None:
        """Add rows [M, size]; M may be 0. If any number is not finite, no row is added."""
        if not len(rows) or not np.isfinite(rows).all():
            return
        mean = rows.mean(axis=0, dtype=np.float64)
        centered = rows - mean
        self.merge(len(rows), mean, np.einsum("ij,ij->j", centered, centered))

    def merge(self, count: float, mean: NDArray[np.float64], squares: NDArray[np.float64]) -> None:
        """Add `count` > 0 rows with this mean and this sum of squared deviations, [size] each."""
        total = self.count + count
        shift = mean - self.mean
        self.squares = self.squares + (squares + shift**2 * (self.count * count / total))
        self.mean = self.mean + shift * (count / total)
        self.count = total

    @property
    def variance(self) -> NDArray[np.float64]:
        """[size]; 1 before the first row."""
        return self.squares / self.count if self.count else np.ones_like(self.squares)

    def published(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the mean and the scale, 1 / standard deviation, in float32, [size] each."""
        scale = 1.0 / np.sqrt(self.variance + EPSILON)
        return self.mean.astype(np.float32), scale.astype(np.float32)

    def state(self) -> dict[str, Any]:
        return {"count": self.count, "mean": self.mean.copy(), "squares": self.squares.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        self.count = float(state["count"])
        self.mean = np.array(state["mean"], np.float64)
        self.squares = np.array(state["squares"], np.float64)
