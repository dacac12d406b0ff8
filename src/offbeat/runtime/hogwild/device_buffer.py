"""What lock-free workers learn, on a GPU: tensors on one buffer of its memory, which every process of the run has open.

The training loop makes the buffer and keeps it until all workers are gone, which is what torch asks of a process whose
tensors others open by CUDA IPC ("Sharing CUDA tensors" in the documentation of torch.multiprocessing). A worker that
dies takes nothing of it along. On a CPU there is no such buffer: the arena of the shared state holds the same arrays.
"""

from __future__ import annotations

from collections.abc import Iterable
from multiprocessing.reduction import ForkingPickler

import torch
from torch import Tensor

from offbeat.core.memory_shape import Slab
from offbeat.memory.arena import arena_bytes, slab_spans


def needs_device_buffer(device: str) -> bool:
    """Whether what is learned on a device lies in a buffer of that device's, apart from the arena."""
    return device != "cpu"


class DeviceBuffer:
    """Zeroed tensors on one buffer of a device's memory."""

    def __init__(self, slabs: Iterable[Slab], device: str) -> None:
        slabs = tuple(slabs)
        self._memory = torch.zeros(arena_bytes(slabs), dtype=torch.uint8, device=device)
        self.tensors = _laid_out(slabs, self._memory)
        """By name."""

    def handle(self) -> bytes:
        """Return what another process opens the buffer with: one process, as torch counts those that have it open."""
        return bytes(ForkingPickler.dumps(self._memory))  # torch has registered there how it shares a tensor


def open_buffer(handle: bytes, slabs: Iterable[Slab]) -> dict[str, Tensor]:
    """Return the tensors of a buffer that another process has made from the same slabs, and keeps."""
    return _laid_out(slabs, ForkingPickler.loads(handle))


def _laid_out(slabs: Iterable[Slab], memory: Tensor) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for (name, shape, dtype), place in slab_spans(slabs):
        tensors[name] = memory[place].view(getattr(torch, dtype)).view(shape)
    return tensors
