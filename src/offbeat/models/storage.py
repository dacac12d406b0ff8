"""Where that lies which learning changes: in this process alone, or where several learners share it (Hogwild).

An algorithm is made the same way in both cases. It hands each tensor that learning changes to its storage, works on
the one that it gets back, and so never knows whether others do too.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from offbeat.models.normalize import RunningStatistics


class Storage(Protocol):
    """See the module's docstring."""

    shared: bool
    """Whether others change what is kept here too."""
    separate: bool
    """Whether a learner differentiates on a copy of the parameters, which others do not change meanwhile."""

    def register(self, name: str, initial: Tensor) -> Tensor:
        """Return the tensor of this name, as large as `initial`, whose values it has until somebody changes it."""
        ...

    def register_moments(self, name: str, initial: Tensor) -> Tensor:
        """Return the same for an optimizer's moments, which each learner may have for itself."""
        ...

    def statistics(self, name: str, size: int) -> RunningStatistics:
        """Return the running statistics of this name, of so many numbers."""
        ...


class PrivateStorage:
    """Keeps everything in this process, and remembers what it is."""

    shared = separate = False

    def __init__(self) -> None:
        self.registered: dict[str, Tensor] = {}
        self.moments: dict[str, Tensor] = {}
        self.sizes: dict[str, int] = {}
        """Of the statistics."""

    def register(self, name: str, initial: Tensor) -> Tensor:
        self.registered[name] = initial
        return initial

    def register_moments(self, name: str, initial: Tensor) -> Tensor:
        self.moments[name] = initial
        return initial

    def statistics(self, name: str, size: int) -> RunningStatistics:
        self.sizes[name] = size
        return RunningStatistics(size)
