"""From the slots to the device that learns: views on a CPU, copies through pinned memory to a GPU."""

from __future__ import annotations

import torch
from torch import Tensor

from offbeat.algorithms.base import Batch
from offbeat.core.types import Tree


class Staging:
    """Hands a batch's arrays to torch."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._pinned: dict[str, Tensor] = {}
        """Page-locked copies, one a field, which a GPU fetches by itself. Allocating one takes long, so they stay."""

    def tensors(self, arrays: Tree) -> Batch:
        """Return the batch on the device: on a CPU the very same memory."""
        if self._device == "cpu":
            return {name: torch.from_numpy(array) for name, array in arrays.items()}
        return {name: self._sent(name, torch.from_numpy(array)) for name, array in arrays.items()}

    def moved(self, arrays: Tree) -> Batch:
        """Return arrays on the device that are not of one size each time, and not many: they are waited for."""
        return {name: torch.from_numpy(array).to(self._device) for name, array in arrays.items()}

    def _sent(self, name: str, tensor: Tensor) -> Tensor:
        if name not in self._pinned:
            self._pinned[name] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        # The last copy from here has ended long ago: every update has waited for its loss.
        return self._pinned[name].copy_(tensor).to(self._device, non_blocking=True)
