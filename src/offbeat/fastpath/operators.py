"""The operators of wide layers, from the library that is fastest on this machine.

NumPy computes matrix products with OpenBLAS. torch's own products are those of MKL, in most of its packages for x86.
On Intel's processors with AVX-512 MKL is faster, most of all if a dimension is small. On others NumPy's products are
faster for SAC, and there is no difference for TD3.

The measurements are in sac-update.md, sac-update-avx2.md and sac-update-xeon.md in benchmarks/results. The choice
depends on the processor and the libraries, never on timing, so a run that is repeated on one machine has the same bits.

The order of sums is only fixed if BLAS and torch have one thread each (`threads.set_thread_count`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import torch

from offbeat.core.types import F32
from offbeat.models.mlp import Operators


class BlasOperators:
    """Matrix products with NumPy's BLAS, elementwise operators with torch."""

    def multiply(self, a: F32, b: F32, out: F32) -> None:
        """Write the product of two matrices into `out`."""
        np.matmul(a, b, out=out)

    def forward(self, x: F32, weight: F32, bias: F32, out: F32, *, relu: bool) -> F32:
        if len(weight) == 1:  # a matrix-vector product takes a quarter of the time
            np.matmul(x, weight[0], out=out[:, 0])
        else:
            self.multiply(x, weight.T, out)
        tensor = torch.from_numpy(out).add_(torch.from_numpy(bias))
        if relu:
            tensor.relu_()  # a quarter of the time of np.maximum
        return out

    def input_gradient(self, d: F32, weight: F32, out: F32) -> F32:
        if len(weight) == 1:  # here np.matmul would not use BLAS and take ten times as long
            torch.mul(torch.from_numpy(d), torch.from_numpy(weight), out=torch.from_numpy(out))
        else:
            self.multiply(d, weight, out)
        return out

    def weight_gradient(self, d: F32, x: F32, out: F32) -> None:
        if d.shape[1] == 1:
            np.matmul(d[:, 0], x, out=out[0])
        else:
            self.multiply(d.T, x, out)

    def relu_gradient(self, d: F32, activated: F32) -> None:
        tensor = torch.from_numpy(d)
        torch.ops.aten.threshold_backward.grad_input(tensor, torch.from_numpy(activated), 0, grad_input=tensor)


class MKLOperators(BlasOperators):
    """Matrix products with torch, which are those of MKL if torch has it. The bias is added by a call of its own:
    torch.addmm would write it into all rows first, which takes longer.
    """

    def multiply(self, a: F32, b: F32, out: F32) -> None:
        torch.mm(torch.from_numpy(a), torch.from_numpy(b), out=torch.from_numpy(out))


def _processor_has_avx512() -> bool:
    """Return whether this processor has AVX-512, and torch uses it (its variable ATEN_CPU_CAPABILITY can forbid it)."""
    return torch.backends.cpu.get_cpu_capability() == "AVX512"


def _processor_is_intels() -> bool:
    """Return whether this processor is one of Intel's; False where torch cannot tell."""
    capabilities: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return str(capabilities.get("cpu_name", "")).startswith("Intel")


@cache
def fastest_operators() -> Operators:
    """Return the fastest operators on this machine."""
    has_mkl = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    return MKLOperators() if has_mkl and _processor_is_intels() and _processor_has_avx512() else BlasOperators()
