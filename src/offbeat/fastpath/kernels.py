"""The operators of wide layers: whichever library has the fastest for this machine.

NumPy gives products to OpenBLAS, which on AVX-512 comes near to what a core can do, but with its older kernels (AVX2)
takes nearly twice as long. oneDNN, which torch brings along, is fast with both, and adds bias and ReLU on the way; but
each call costs it some 15 us, and its operator is private to torch. So wide products are oneDNN's where OpenBLAS has no
AVX-512 kernels and the operator does what it should; all others are NumPy's. Measured in
benchmarks/results/sac-update.md. The choice depends on the machine and its libraries, never on timing, so a run that is
repeated on one machine has the same bits.

Sums have one order only where BLAS and torch have one thread each (`threads.limit`).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from offbeat.core.threads import blas_kernels
from offbeat.fastpath.mlp import F32, Kernels
from offbeat.models import onednn
from offbeat.models.onednn import WIDE

AVX512_KERNELS = ("SkylakeX", "Cooperlake", "SapphireRapids")
"""OpenBLAS's names of its kernels with AVX-512."""


class BlasKernels:
    """Products by what NumPy was built with, the rest by torch."""

    def forward(self, x: F32, weight: F32, bias: F32, out: F32, *, relu: bool) -> F32:
        if len(weight) == 1:  # a product of matrix and vector: a quarter of the time
            np.matmul(x, weight[0], out=out[:, 0])
        else:
            np.matmul(x, weight.T, out=out)
        tensor = torch.from_numpy(out).add_(torch.from_numpy(bias))
        if relu:
            tensor.relu_()  # a quarter of the time of np.maximum
        return out

    def input_gradient(self, d: F32, weight: F32, out: F32) -> F32:
        if len(weight) == 1:  # NumPy's matmul would do without BLAS, and take ten times as long
            torch.mul(torch.from_numpy(d), torch.from_numpy(weight), out=torch.from_numpy(out))
        else:
            np.matmul(d, weight, out=out)
        return out

    def weight_gradient(self, d: F32, x: F32, out: F32) -> None:
        if d.shape[1] == 1:
            np.matmul(d[:, 0], x, out=out[0])
        else:
            np.matmul(d.T, x, out=out)

    def relu_gradient(self, d: F32, activated: F32) -> None:
        tensor = torch.from_numpy(d)
        torch.ops.aten.threshold_backward.grad_input(tensor, torch.from_numpy(activated), 0, grad_input=tensor)


class OneDNNKernels(BlasKernels):
    """oneDNN for what is wide."""

    def forward(self, x: F32, weight: F32, bias: F32, out: F32, *, relu: bool) -> F32:
        if min(len(x), len(weight)) < WIDE:
            return super().forward(x, weight, bias, out, relu=relu)
        return _linear(x, weight, bias, relu=relu)

    def input_gradient(self, d: F32, weight: F32, out: F32) -> F32:
        if _narrow(d, weight):
            return super().input_gradient(d, weight, out)
        return _linear(d, weight.T, None, relu=False)

    def weight_gradient(self, d: F32, x: F32, out: F32) -> None:
        if _narrow(d, x):
            super().weight_gradient(d, x, out)
        else:
            np.copyto(out, _linear(d.T, x.T, None, relu=False))


def _narrow(a: F32, b: F32) -> bool:
    return bool(min(*a.shape, *b.shape) < WIDE)


def _linear(x: F32, weight: F32, bias: F32 | None, *, relu: bool) -> F32:
    tensors = torch.from_numpy(x), torch.from_numpy(weight), None if bias is None else torch.from_numpy(bias)
    result: F32 = onednn.linear(*tensors, relu=relu).numpy()
    return result


@cache
def fastest_kernels() -> Kernels:
    """Return those that are the fastest on this machine."""
    if blas_kernels() not in AVX512_KERNELS and onednn.works():
        return OneDNNKernels()
    return BlasKernels()
