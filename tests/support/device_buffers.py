"""Buffers of a device's memory, and processes that have them open."""

from __future__ import annotations

import mmap
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch.multiprocessing.reductions import reduce_tensor

from offbeat.core.memory_shape import Slab
from offbeat.runtime.children.child import start_child
from offbeat.runtime.children.child_main import ChildContext, Report
from offbeat.runtime.hogwild import parts as hogwild_parts
from offbeat.runtime.hogwild.device_buffer import DeviceBuffer, open_buffer

_ON_A_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA GPU here")
DEVICES = ["cpu", pytest.param("cuda", marks=[_ON_A_GPU, pytest.mark.gpu])]


@contextmanager
def buffers_on(device: str) -> Iterator[None]:
    """Let lock-free runs keep what they learn in a buffer, on a CPU too: of nameless memory, opened by a handle.

    All that is done on a GPU is then done on a CPU, but for what torch puts into a handle, and makes of it.
    """
    if device != "cpu":
        yield
        return
    ForkingPickler.register(torch.Tensor, _reduced)
    try:
        with patch.object(hogwild_parts, "needs_device_buffer", lambda _device: True):
            yield
    finally:
        ForkingPickler.register(torch.Tensor, reduce_tensor)  # as torch has it


def _reduced(memory: torch.Tensor) -> tuple[Any, tuple[str, int]]:
    fd, size = memory.untyped_storage()._share_fd_cpu_()  # moves it to shared memory, and keeps that open
    return _rebuilt, (f"/proc/{os.getpid()}/fd/{fd}", size)


def _rebuilt(path: str, size: int) -> torch.Tensor:
    with Path(path).open("r+b") as file:
        return torch.frombuffer(mmap.mmap(file.fileno(), size), dtype=torch.uint8)


# --- processes that have a buffer open -----------------------------------------------------------------------


@dataclass(frozen=True)
class LaunchSpec:
    parent: int
    handle: bytes
    slabs: tuple[Slab, ...]


def main(launch: LaunchSpec, child: ChildContext) -> None:
    """Open a buffer, add 1 to all that is in it, and keep it open until this process is killed."""
    tensors = open_buffer(launch.handle, launch.slabs)
    for tensor in tensors.values():
        tensor.add_(1)
    child.report("added", {name: tensor.cpu().numpy() for name, tensor in tensors.items()})
    signal.pause()


class Opener:
    """Such a process."""

    def __init__(self, buffer: DeviceBuffer, slabs: Sequence[Slab]) -> None:
        self._said: list[Report] = []
        launch = LaunchSpec(os.getpid(), buffer.handle(), tuple(slabs))
        self._child = start_child("tests.support.device_buffers", launch, on_report=self._said.append)

    def added(self) -> dict[str, Any]:
        """Return what it sees in the buffer once it has added to it."""
        self._child.take_reports(60)
        assert self._said, self._child.failure
        seen: dict[str, Any] = self._said[0].content
        return seen

    def kill(self) -> None:
        self._child.kill()
