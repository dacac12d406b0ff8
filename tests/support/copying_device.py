"""A stand-in for a GPU: it has memory of its own, into which batches are copied, and nobody may use it too early."""

from __future__ import annotations

import time
from typing import ClassVar

import torch
from torch import Tensor

from offbeat.algorithms.base import Batch
from offbeat.core.errors import RunFailed
from offbeat.core.types import Tree
from offbeat.workers.staging import DeviceBuffers


class CopyingBuffers(DeviceBuffers):
    """Copies each batch into memory of its own, in which nothing can be recognised any more after `release`."""

    copies = True

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self._batch: dict[str, Tensor] = {}

    def load(self, arrays: Tree) -> Batch:
        assert not self._batch, "these buffers are in use"
        self._batch = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
        return dict(self._batch)

    def release(self) -> None:
        for tensor in self._batch.values():
            tensor.fill_(float("nan") if tensor.is_floating_point() else 1)
        self._batch = {}


class FailingBuffers(CopyingBuffers):
    """Fails, or hangs, at a load."""

    loads: ClassVar[int] = 0
    """Number of loads of all buffers so far."""
    fails_at: ClassVar[int] = 3
    hangs_s: ClassVar[float] = 0.0
    """Seconds that it hangs instead, if above 0."""

    def load(self, arrays: Tree) -> Batch:
        FailingBuffers.loads += 1
        if FailingBuffers.loads == self.fails_at:
            if not self.hangs_s:
                raise RunFailed("the device is full")
            time.sleep(self.hangs_s)
        return super().load(arrays)
