"""The device buffer: the learned tensors of a lock-free run, in one block of GPU memory that all processes open.

The training loop allocates the buffer and keeps it until all workers have ended, as torch requires for CUDA IPC
("Sharing CUDA tensors" in the documentation of torch.multiprocessing). The death of a worker does not affect it. On a
CPU there is no device buffer: the arena of the shared state has the same arrays.
"""

from __future__ import annotations

from collections.abc import Iterable
from multiprocessing.reduction import ForkingPickler

import torch
from torch import Tensor

from offbeat.core.memory_shape import Slab
from offbeat.memory.arena import arena_bytes, slab_spans


def needs_device_buffer(device: str) -> bool:
    """Whether the learned tensors are in a device buffer instead of the arena, for a learner on this device."""
    return device != "cpu"


class DeviceBuffer:
    """Tensors of zeros in one block of a device's memory."""

    def __init__(self, slabs: Iterable[Slab], device: str) -> None:
        slabs = tuple(slabs)
        self._memory = torch.zeros(arena_bytes(slabs), dtype=torch.uint8, device=device)
        self.tensors = _laid_out(slabs, self._memory)
        """The tensors by name."""

    def handle(self) -> bytes:
        """Return a handle with which one other process can open the buffer. torch counts the open handles."""
        return bytes(ForkingPickler.dumps(self._memory))  # torch has registered how it shares tensors there


def open_buffer(handle: bytes, slabs: Iterable[Slab]) -> dict[str, Tensor]:
    """Return the tensors of a buffer that another process has made with the same slabs, and keeps."""
    return _laid_out(slabs, ForkingPickler.loads(handle))


def _laid_out(slabs: Iterable[Slab], memory: Tensor) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for (name, shape, dtype), span in slab_spans(slabs):
        tensors[name] = memory[span].view(getattr(torch, dtype)).view(shape)
    return tensors
