"""Named arrays on one block of memory, laid out from a list of (name, shape, dtype)."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np

from offbeat.types import Tree

ALIGNMENT = 64
"""Bytes: a cache line, so that no two arrays share one."""

Slab = tuple[str, tuple[int, ...], str]
"""Name, shape and dtype of one array."""


def arena_bytes(slabs: Iterable[Slab]) -> int:
    """Return the bytes that the arrays take together."""
    return sum(_aligned(shape, dtype) for _, shape, dtype in slabs)


def private_arena(slabs: Iterable[Slab]) -> Tree:
    """Return zeroed arrays by name, on memory of this process alone."""
    slabs = list(slabs)
    block = np.zeros(arena_bytes(slabs) + ALIGNMENT, np.uint8)
    arrays: Tree = {}
    offset = -block.ctypes.data % ALIGNMENT
    for name, shape, dtype in slabs:
        size = prod(shape) * np.dtype(dtype).itemsize
        arrays[name] = block[offset : offset + size].view(dtype).reshape(shape)
        offset += _aligned(shape, dtype)
    return arrays


def _aligned(shape: tuple[int, ...], dtype: str) -> int:
    return -(-prod(shape) * np.dtype(dtype).itemsize // ALIGNMENT) * ALIGNMENT
