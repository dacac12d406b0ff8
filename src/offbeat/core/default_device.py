"""Lets tensors that name no device be on the CPU, whatever default device of torch the caller has set."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cpu_by_default() -> Iterator[None]:
    """Let the CPU be torch's default device while entered, in this thread: each thread has its own.

    The networks and their inputs are made on the CPU, and what the learner needs is then moved to its device.
    """
    if "torch" not in sys.modules:
        yield
        return
    import torch

    if torch.get_default_device().type == "cpu":  # a context would slow down all calls of torch
        yield
        return
    with torch.device("cpu"):
        yield
