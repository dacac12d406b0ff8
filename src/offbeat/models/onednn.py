"""oneDNN's linear layer, a private operator of torch. It is used only if a test shows that its results are correct."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

WIDE = 48
"""Smallest number of inputs or outputs for which oneDNN is faster, as each call has about 15 us of overhead."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return ``x weight^T + bias`` [M, outputs] in float32 for x [M, inputs] and weight [outputs, inputs]."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")  # noqa: SLF001
    return result


@cache
def works() -> bool:
    """Whether torch has the operator, and its results agree with torch's own layer in a test."""
    try:
        return _agrees()
    except (AttributeError, RuntimeError, TypeError, NotImplementedError):  # no such operator, or another signature
        return False


def _agrees() -> bool:
    """Whether the operator and torch's layer agree up to rounding, with and without a bias, also on transposed
    tensors.
    """
    random = torch.Generator().manual_seed(0)
    rows, inputs, outputs = WIDE, WIDE + 1, WIDE + 2
    x, d, weight = (
        torch.randn(*shape, generator=random) for shape in ((rows, inputs), (rows, outputs), (outputs, inputs))
    )
    bias = torch.randn(outputs, generator=random)
    pairs = (
        (linear(x, weight, bias), functional.linear(x, weight, bias)),
        (linear(d, weight.t(), None), d @ weight),
        (linear(d.t(), x.t(), None), d.t() @ x),
    )
    return all(torch.allclose(result, expected, rtol=1e-4, atol=1e-4) for result, expected in pairs)
