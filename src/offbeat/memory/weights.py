"""Published weights: a ring of versions, each a flat float32 vector.

Version v has the weights after v learning steps. Actors read them without a lock and without torn reads: until ticket k
is committed, learning step j in which it is first used cannot finish, so the newest version that can be written is j.
The actor of ticket k reads no version older than j - D, and the ring has D + 1 versions. (For a replay, D is
max_ahead.)
"""

from __future__ import annotations

from offbeat.core.memory_shape import Slab
from offbeat.core.types import F32, Tree


class Weights:
    """A ring of versions."""

    def __init__(self, arrays: Tree) -> None:
        """Use the arrays of an arena with the `weight_slabs`."""
        self._vectors, self._stamps = arrays["weights/vectors"], arrays["weights/stamps"]
        self._progress = arrays["weights/progress"]

    def open(self, version: int) -> F32:
        """Return the vector to write `version` to. It replaces the oldest version."""
        index = version % len(self._stamps)
        self._stamps[index] = 0
        vector: F32 = self._vectors[index]
        return vector

    def commit(self, version: int, progress: float = 0.0) -> None:
        """Make `version` readable after it has been written completely.

        Args:
            version: The opened version.
            progress: Training progress, 0 to 1, at this version. It is passed to the envs of actors that use it.
        """
        self._progress[version % len(self._stamps)] = progress
        self._stamps[version % len(self._stamps)] = version + 1

    def read(self, version: int) -> F32:
        """Return a view of a version's vector.

        Raises:
            KeyError: the ring does not have this version.
        """
        index = version % len(self._stamps)
        if self._stamps[index] != version + 1:
            raise KeyError(f"version {version} is not available, only {sorted(self.versions())}")
        vector: F32 = self._vectors[index]
        return vector

    def progress(self, version: int) -> float:
        """Return the training progress of a version."""
        return float(self._progress[version % len(self._stamps)])

    @property
    def newest(self) -> int:
        """The newest version that can be read."""
        return int(self._stamps.max()) - 1

    def versions(self) -> dict[int, F32]:
        """Return all available versions, oldest first."""
        versions = sorted(int(stamp) - 1 for stamp in self._stamps if stamp)
        return {version: self._vectors[version % len(self._stamps)] for version in versions}


def weight_slabs(size: int, versions: int) -> list[Slab]:
    """Return the slabs of the weights' arena: a vector, the training progress and a stamp per version.

    A stamp is version + 1, or 0 while the vector is not complete.

    Args:
        size: Number of weights.
        versions: Number of versions in the ring.
    """
    return [
        ("weights/vectors", (versions, size), "float32"),
        ("weights/progress", (versions,), "float64"),
        ("weights/stamps", (versions,), "int64"),
    ]
