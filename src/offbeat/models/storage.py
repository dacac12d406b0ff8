"""Storage of the tensors that learning changes: private to this process, or shared by several learners (Hogwild).

An algorithm is created in the same way in both cases. It registers each tensor that learning changes with its storage
and uses the tensor that `register` returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from offbeat.core.errors import ConfigError
from offbeat.models.normalize import RunningStatistics

SAVABLE = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.float32, torch.float64),
)
"""Dtypes of tensors that a checkpoint can store."""


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
        """Return the tensor of this name, with the shape and the initial values of `initial`.

        Raises:
            ConfigError: another tensor has the name, or no checkpoint can store the dtype.
        """
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
        if name in self.registered:
            raise ConfigError(f"the algorithm registers two tensors as {name!r}: give each a name of its own")
        if initial.dtype not in SAVABLE:
            raise ConfigError(
                f"the algorithm registers {name!r}, a tensor of {initial.dtype}, which no checkpoint can store: "
                "make it of another dtype, such as torch.float32"
            )
        self.registered[name] = initial
        return initial

    def register_moments(self, name: str, initial: Tensor) -> Tensor:
        self.moments[name] = initial
        return initial

    def statistics(self, name: str, size: int) -> RunningStatistics:
        self.sizes[name] = size
        return RunningStatistics(size)
