"""The memory of device buffers. Copies to a GPU are tested in tests/gpu."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import numpy as np
import torch

from offbeat.core.types import Tree
from offbeat.workers.staging import CudaBuffers


def test_the_buffers_of_a_gpu_have_memory_for_the_largest_array_of_each_name_and_not_for_each_shape(monkeypatch):
    for name in ("Stream", "Event", "stream"):
        monkeypatch.setattr(torch.cuda, name, MagicMock())
    allocated, empty = list[tuple[int, bool]](), torch.empty

    def counted_empty(size: int, *, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        allocated.append((size, pin_memory))
        return empty(size, **options)

    monkeypatch.setattr(torch, "empty", counted_empty)
    buffers = CudaBuffers("cpu")
    for rows in (3, 5, 4, 0, 3, 5):
        arrays: Tree = {"image": np.full((rows, 2, 3), rows, np.uint8), "reward": np.full(6, rows, np.float32)}
        batch = buffers.load(arrays)
        for name, array in arrays.items():
            assert batch[name].dtype == torch.from_numpy(array).dtype
            np.testing.assert_array_equal(batch[name], array)
    sizes = [3 * 6, 6, 5 * 6]  # two of 3 rows, and one that is larger
    assert allocated == [(size, pinned) for size in sizes for pinned in (True, False)]
