"""The versions of the weights in Ray's object store: each is put there once, and each node fetches it once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from offbeat.memory.weights import Weights


class PublishedVersions:
    """References to versions of the weights of all policies."""

    def __init__(self, weights: Sequence[Weights], versions: int, require_store: Callable[[], None]) -> None:
        """Start without a reference.

        Args:
            weights: the published weights of each policy.
            versions: number of versions that tickets in flight may need.
            require_store: raises an error if the object store does not exist any more: Ray would end this process.
        """
        self._weights, self._versions, self._require_store = weights, versions, require_store
        self._references: dict[int, Any] = {}
        self.size = 0
        """Bytes of a version."""

    def reference(self, version: int) -> tuple[Any, bool]:
        """Return the reference of a version, and whether it was put into the object store just now.

        References that no later ticket needs are dropped. Ray keeps the object until the last actor has read it.
        """
        if is_new := version not in self._references:
            vectors = [weights.read(version) for weights in self._weights]
            self._references[version] = self._put(vectors[0] if len(vectors) == 1 else np.concatenate(vectors))
            for old in [old for old in self._references if old <= max(self._references) - self._versions]:
                del self._references[old]
        return self._references[version], is_new

    def progress(self, version: int) -> float:
        """Return the training progress of a version."""
        return self._weights[0].progress(version)

    def _put(self, vector: np.ndarray[Any, np.dtype[np.float32]]) -> Any:
        import ray

        self._require_store()
        self.size = vector.nbytes
        return ray.put(vector)
