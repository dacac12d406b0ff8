"""Linear layers in torch. Wide ones use oneDNN, which on AMD processors takes half the time of torch's operator.

The oneDNN operator is private to torch and is used only if it passes a test (onednn.py). Otherwise, and in an export,
the layer uses torch's operator.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from offbeat.models import onednn


class Initializer(Protocol):
    """Initialises the weights of layers."""

    def fill(self, weight: Tensor, bias: Tensor, fan_in: int, gain: float) -> None:
        """Fill weight [outputs, ...] and bias [outputs] of a layer with `fan_in` inputs."""

    def seed(self) -> int:
        """Return a seed for modules that initialise their own weights."""
        ...


class Unfilled:
    """Does not initialise weights, for networks whose weights are loaded."""

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
        self._least_rows = max(4, -(-ONEDNN_MULTIPLICATIONS // (inputs * outputs)))
        init.fill(self.weight.data, self.bias.data, inputs, gain)

    def forward(self, x: Tensor) -> Tensor:
        """Return [..., outputs] for x [..., inputs]."""
        if not self._wide or not _uses_onednn(x, self._least_rows):
            return functional.linear(x, self.weight, self.bias)
        output: Tensor = _OneDNNLinear.apply(x, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return output


def is_exported() -> bool:
    """Whether the network is being exported: then only standard operators may be used."""
    return torch.compiler.is_exporting() or torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]


ONEDNN_MULTIPLICATIONS = 2_000_000
"""Smallest number of multiplications in a matrix product for which oneDNN, with 15 us of overhead, is faster."""


def _uses_onednn(x: Tensor, least_rows: int) -> bool:
    """Whether oneDNN supports the product, and is faster because x has at least `least_rows` rows."""
    if is_exported():  # first: a check of the number of rows would make it a constant of the exported file
        return False
    suits = x.ndim == 2 and x.dtype is torch.float32 and x.device.type == "cpu" and len(x) >= least_rows
    return suits and not torch.is_autocast_enabled("cpu") and onednn.works()


class _OneDNNLinear(torch.autograd.Function):
    """x weight^T + bias, and its gradients; oneDNN computes each product."""

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
