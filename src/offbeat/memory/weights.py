"""Published weights: one flat float32 vector per version, as many kept as a ticket in flight may ask for.

Version v is what the learner had after v learning steps. No lock guards it, and yet it is never read torn: while
ticket k is not committed, learning step k // S cannot end, so the newest version that can be written meanwhile is
k // S; its actor reads none older than k // S - D; and the ring keeps D + 1. (With a replay S is 1, and D max_ahead.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from offbeat.core.memory_shape import Slab
from offbeat.core.types import Tree

F32 = NDArray[np.float32]


class Weights:
    """A ring of versions."""

    def __init__(self, arrays: Tree) -> None:
        """Address the arrays of an arena that holds `weight_slabs`."""
        self._vectors, self._stamps = arrays["weights/vectors"], arrays["weights/stamps"]
        self._progress = arrays["weights/progress"]

    def open(self, version: int) -> F32:
        """Return the vector to write `version` into; it takes the place of the oldest."""
        place = version % len(self._stamps)
        self._stamps[place] = 0
        vector: F32 = self._vectors[place]
        return vector

    def commit(self, version: int, progress: float = 0.0) -> None:
        """Let `version` be read: it has been written whole.

        Args:
            version: the one that was opened.
            progress: of the training, 0 to 1, in the learning step that made it: what envs are told that it acts in.
        """
        self._progress[version % len(self._stamps)] = progress
        self._stamps[version % len(self._stamps)] = version + 1

    def read(self, version: int) -> F32:
        """Return a view of a kept version's vector.

        Raises:
            KeyError: that version is not kept.
        """
        place = version % len(self._stamps)
        if self._stamps[place] != version + 1:
            raise KeyError(f"version {version} is not kept, only {sorted(self.versions())}")
        vector: F32 = self._vectors[place]
        return vector

    def progress(self, version: int) -> float:
        """Return what a kept version was committed with."""
        return float(self._progress[version % len(self._stamps)])

    @property
    def newest(self) -> int:
        """The newest version that can be read."""
        return int(self._stamps.max()) - 1

    def versions(self) -> dict[int, F32]:
        """Return the kept versions."""
        versions = sorted(int(stamp) - 1 for stamp in self._stamps if stamp)
        return {version: self._vectors[version % len(self._stamps)] for version in versions}


def weight_slabs(size: int, kept: int) -> list[Slab]:
    """Return what the weights' arena consists of: a vector, progress, and a stamp for each version that is kept.

    A stamp is version + 1, or 0 where none is whole.
    """
    return [
        ("weights/vectors", (kept, size), "float32"),
        ("weights/progress", (kept,), "float64"),
        ("weights/stamps", (kept,), "int64"),
    ]
