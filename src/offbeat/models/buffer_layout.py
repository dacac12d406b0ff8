"""The layout of named arrays in one flat float32 buffer, for NumPy and torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

ALIGNMENT = 16
"""Alignment of arrays in float32 elements: 64 bytes, the size of a cache line and of an AVX-512 register."""


@dataclass(frozen=True)
class Entry:
    """One array in the buffer."""

    name: str
    shape: tuple[int, ...]
    offset: int
    """Index of the first element in the buffer."""

    @property
    def stop(self) -> int:
        return self.offset + prod(self.shape)


@dataclass(frozen=True)
class BufferLayout:
    """Entries in order, each aligned; the gaps between them stay zero."""

    entries: tuple[Entry, ...]
    size: int
    """Elements of the whole buffer, a multiple of the alignment."""

    @classmethod
    def of(cls, shapes: Iterable[tuple[str, tuple[int, ...]]]) -> BufferLayout:
        entries: list[Entry] = []
        offset = 0
        for name, shape in shapes:
            entries.append(Entry(name, tuple(shape), offset))
            offset += -(-prod(shape) // ALIGNMENT) * ALIGNMENT
        return cls(tuple(entries), offset)

    def views(self, buffer: Any, prefix: str = "") -> dict[str, Any]:
        """Return prefix + name -> view of `buffer`, a flat NumPy array or torch tensor of `size` elements."""
        return {prefix + e.name: buffer[e.offset : e.stop].reshape(e.shape) for e in self.entries}
