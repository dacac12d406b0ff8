"""Storage of the tensors that learning changes: private to this process, or shared by several learners (Hogwild).

An algorithm is created in the same way in both cases. It registers each tensor that learning changes with its storage
and uses the tensor that `register` returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from offbeat.models.normalize import RunningStatistics


class Storage(Protocol):
    """See the module's docstring."""

    shared: bool
    """Whether other learners change the tensors too."""
    separate: bool
    """Whether a learner computes gradients with its own copy of the parameters."""

    @property
    def registered(self) -> Mapping[str, Tensor]:
        """The tensors of `register` that an algorithm saves itself, by name."""
        ...

    def register(self, name: str, initial: Tensor) -> Tensor:
        """Return the tensor of this name, with the shape and the initial values of `initial`."""
        ...

    def register_moments(self, name: str, initial: Tensor) -> Tensor:
        """Return the tensor of an optimizer's moment, as `register` does. It may be private to each learner."""
        ...

    def statistics(self, name: str, size: int) -> RunningStatistics:
        """Return the running statistics of this name, with `size` components."""
        ...


class PrivateStorage:
    """Keeps the tensors in this process, and lists them by name."""

    shared = separate = False

    def __init__(self) -> None:
        self.registered: dict[str, Tensor] = {}
        self.moments: dict[str, Tensor] = {}
        self.sizes: dict[str, int] = {}
        """Number of components of each running statistics, by name."""

    def register(self, name: str, initial: Tensor) -> Tensor:
        self.registered[name] = initial
        return initial

    def register_moments(self, name: str, initial: Tensor) -> Tensor:
        self.moments[name] = initial
        return initial

    def statistics(self, name: str, size: int) -> RunningStatistics:
        self.sizes[name] = size
        return RunningStatistics(size)
