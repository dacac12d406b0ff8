"""Linear layers in torch: by oneDNN where they are wide, which on AMD's processors takes half the time of torch's own.

Its operator is private to torch, and used only where it does what it should (onednn.py). Otherwise, and wherever a
network is exported, the layer is torch's own.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from offbeat.models import onednn


class Initializer(Protocol):
    """Gives layers their first weights."""

    def fill(self, weight: Tensor, bias: Tensor, fan_in: int, gain: float) -> None:
        """Fill weight [outputs, ...] and bias [outputs] of a layer of so many inputs."""

    def seed(self) -> int:
        """Return a seed for what draws its own."""
        ...


class Unfilled:
    """Leaves weights as they are, for networks whose weights come from elsewhere."""

    def fill(self, weight: Tensor, bias: Tensor, fan_in: int, gain: float) -> None:
        """Do nothing."""

    def seed(self) -> int:
        return 0


class Dense(nn.Module):
    """A linear layer."""

    def __init__(self, inputs: int, outputs: int, init: Initializer, gain: float = math.sqrt(2)) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs))
        self._wide = min(inputs, outputs) >= onednn.WIDE
        self._rows = max(4, -(-ONEDNN_PAYS // (inputs * outputs)))
        init.fill(self.weight.data, self.bias.data, inputs, gain)

    def forward(self, x: Tensor) -> Tensor:
        """Return [..., outputs] for x [..., inputs]."""
        if not self._wide or not _suits(x, self._rows):
            return functional.linear(x, self.weight, self.bias)
        output: Tensor = _OneDNNLinear.apply(x, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return output


def is_exported() -> bool:
    """Whether a file is being made of the network: then its operators must be those that any runtime knows."""
    return torch.compiler.is_exporting() or torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]


ONEDNN_PAYS = 2_000_000
"""Multiplications in a product from which on oneDNN, which takes 15 us to prepare itself, is quicker."""


def _suits(x: Tensor, rows: int) -> bool:
    """Whether oneDNN is quicker, as there are so many rows at least, and as good."""
    if is_exported():  # first of all: a question about the number of rows would fix it in the file
        return False
    plain = x.ndim == 2 and x.dtype is torch.float32 and x.device.type == "cpu" and len(x) >= rows
    return plain and not torch.is_autocast_enabled("cpu") and onednn.works()


class _OneDNNLinear(torch.autograd.Function):
    """x weight^T + bias, and its gradients, each one product of oneDNN's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return onednn.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        d = d.contiguous()
        of_inputs = onednn.linear(d, weight.t(), None) if ctx.needs_input_grad[0] else None
        return of_inputs, onednn.linear(d.t(), x.t(), None), d.sum(dim=0)
