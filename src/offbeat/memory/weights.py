"""Published weights: one flat float32 vector per version, as many kept as a ticket in flight may ask for.

Version v is what the learner had after v learning steps. It is written whole and read whole.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from offbeat.memory.arena import private_arena

F32 = NDArray[np.float32]


class Weights:
    """A ring of versions."""

    def __init__(self, size: int, kept: int) -> None:
        arrays = private_arena([("vectors", (kept, size), "float32"), ("versions", (kept,), "int64")])
        self._vectors, self._versions = arrays["vectors"], arrays["versions"]
        self._versions[:] = -1

    def open(self, version: int) -> F32:
        """Return the vector to write `version` into; it takes the place of the oldest."""
        place = version % len(self._versions)
        self._versions[place] = -1
        vector: F32 = self._vectors[place]
        return vector

    def commit(self, version: int) -> None:
        """Let `version` be read: it has been written whole."""
        self._versions[version % len(self._versions)] = version

    def read(self, version: int) -> F32:
        """Return a view of a kept version's vector.

        Raises:
            KeyError: that version is not kept.
        """
        place = version % len(self._versions)
        if self._versions[place] != version:
            raise KeyError(f"version {version} is not kept, only {sorted(self.kept())}")
        vector: F32 = self._vectors[place]
        return vector

    def kept(self) -> dict[int, F32]:
        """Return the kept versions."""
        return {int(v): self._vectors[v % len(self._versions)] for v in sorted(self._versions) if v >= 0}
