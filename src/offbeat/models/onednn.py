"""oneDNN's linear layer, which torch has as a private operator: used only where a trial shows that it is right."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

WIDE = 48
"""Rows, inputs or outputs of a product below which oneDNN does not pay, as each call costs it some 15 us. Few inputs do
not matter on the way forward, as it adds bias and ReLU there."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool = False) -> Tensor:
    """Return ``x weight^T + bias`` [M, outputs] in float32 for x [M, inputs] and weight [outputs, inputs].

    With `relu` nothing is below 0.
    """
    activation = "relu" if relu else "none"
    result: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, activation, [], "")  # noqa: SLF001
    return result


@cache
def works() -> bool:
    """Whether torch has the operator, and it gives what torch's own layer gives in a trial."""
    try:
        return all(_agree(relu=relu) for relu in (False, True))
    except (AttributeError, RuntimeError, TypeError, NotImplementedError):  # absent, or another one by that name
        return False


def _agree(*, relu: bool) -> bool:
    """Whether both give the same but for rounding, with and without a bias, of transposed arrays too."""
    random = torch.Generator().manual_seed(0)
    rows, inputs, outputs = WIDE, WIDE + 1, WIDE + 2
    x, d, weight = (
        torch.randn(*shape, generator=random) for shape in ((rows, inputs), (rows, outputs), (outputs, inputs))
    )
    bias = torch.randn(outputs, generator=random)
    output = functional.linear(x, weight, bias)
    pairs = (
        (linear(x, weight, bias, relu=relu), output.relu() if relu else output),
        (linear(d, weight.t(), None), d @ weight),
        (linear(d.t(), x.t(), None), d.t() @ x),
    )
    return all(torch.allclose(result, expected, rtol=1e-4, atol=1e-4) for result, expected in pairs)
