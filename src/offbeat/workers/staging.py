"""Staging: moves the data of a learning step or an update to the learner's device.

Each kind of device has its class of `DeviceBuffers`. On a CPU batches are views of the memory that actors write, and
nothing is copied. On a GPU each set of buffers has its own memory, so a batch can be copied while another is used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from offbeat.algorithms.base import Batch
from offbeat.core.types import Tree


class DeviceBuffers(ABC):
    """The memory on the learner's device for one batch at a time: `load`, `use`, then `release`, then `load` again."""

    copies: ClassVar[bool]
    """Whether `load` copies, so that loading ahead in a thread saves time."""

    def __init__(self, device: str) -> None:
        """Make empty buffers on a torch device."""
        self._device = torch.device(device)

    @abstractmethod
    def load(self, arrays: Tree) -> Batch:
        """Copy arrays to the device; return tensors. Any thread may call it, but not before `release`."""

    def use(self) -> None:  # noqa: B027 - nothing to wait for
        """Let the calling thread use the tensors that `load` returned: copies may still run in the background."""

    def release(self) -> None:  # noqa: B027
        """Note that the calling thread has started all that reads or writes the tensors."""


class HostBuffers(DeviceBuffers):
    """For a CPU: the tensors share the memory of the arrays."""

    copies = False

    def load(self, arrays: Tree) -> Batch:
        return {name: torch.from_numpy(array) for name, array in arrays.items()}


class CudaBuffers(DeviceBuffers):
    """For a GPU: copies through pinned memory, on a stream of its own, while the GPU computes."""

    copies = True

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        self._copied, self._used = (torch.cuda.Event() for _ in range(2))  # type: ignore[no-untyped-call]
        self._memory: dict[str, tuple[Tensor, Tensor]] = {}
        """By field: flat pinned memory, and flat memory on the device, for its largest array so far. They are kept,
        because allocation is slow. Only sequences with waits have arrays of several sizes."""

    def load(self, arrays: Tree) -> Batch:
        self._copied.synchronize()  # the pinned memory has been read
        batch = {}
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(self._used)
            for name, array in arrays.items():
                host = torch.from_numpy(array)
                pinned, batch[name] = self._buffers(name, host)
                batch[name].copy_(pinned.copy_(host), non_blocking=True)
            self._copied.record(self._stream)
        return batch

    def use(self) -> None:
        torch.cuda.current_stream(self._device).wait_event(self._copied)

    def release(self) -> None:
        self._used.record(torch.cuda.current_stream(self._device))

    def _buffers(self, name: str, host: Tensor) -> tuple[Tensor, Tensor]:
        """Return the pinned memory and the device's memory for an array."""
        size = host.numel()
        if name not in self._memory or len(self._memory[name][0]) < size:
            pinned = torch.empty(size, dtype=host.dtype, pin_memory=True)
            self._memory[name] = pinned, torch.empty(size, dtype=host.dtype, device=self._device)
        pinned, on_device = self._memory[name]
        return pinned[:size].view(host.shape), on_device[:size].view(host.shape)


BUFFERS: dict[str, type[DeviceBuffers]] = {"cpu": HostBuffers, "cuda": CudaBuffers}
"""Type of a torch device -> its buffers. Another kind of device is added here."""


class Staging:
    """Makes the buffers of a learner's device."""

    def __init__(self, device: str) -> None:
        """Use a torch device."""
        self._device, self._buffers = device, BUFFERS[torch.device(device).type]

    @property
    def copies(self) -> bool:
        """Whether data is copied to the device."""
        return self._buffers.copies

    def buffers(self) -> DeviceBuffers:
        """Return new buffers for one batch."""
        return self._buffers(self._device)

    def moved(self, arrays: Tree) -> Batch:
        """Return small arrays of varying size on the device, copied synchronously."""
        return {name: torch.from_numpy(array).to(self._device) for name, array in arrays.items()}
