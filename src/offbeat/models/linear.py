"""The products of a linear layer and its activations, on arrays of the caller's, for networks of some hundred units.

With x [M, inputs], weight [outputs, inputs], and d [M, outputs] the derivative of a loss by the layer's output:

    output              x weight^T + bias
    input gradient      d weight
    weight gradient     d^T x           bias gradient: the sum of d over the rows

NumPy gives them to OpenBLAS, which on AVX-512 comes near to what a core can do, but with its older kernels (AVX2) takes
nearly twice as long. oneDNN, which torch brings along, is quick with both, and adds bias and ReLU on the way; but each
call costs it some 15 us, and its operator is private to torch. So the wide products are oneDNN's where OpenBLAS has no
AVX-512 kernels and the operator does what it should; all others are NumPy's. Measured in
benchmarks/results/sac-update.md. The choice depends on the machine and its libraries, never on timing, so a run that is
repeated on one machine has the same bits.

Sums have one order only where BLAS and torch have one thread each (`threads.limit`).
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from offbeat.core.threads import blas_kernels
from offbeat.models.spec import Activation

F32 = NDArray[np.float32]
Index = NDArray[np.intp]

WIDE = 48
"""Products with fewer rows, inputs or outputs than this are NumPy's, as oneDNN would still be preparing itself; but few
inputs do not matter on the way forward, where NumPy takes three operators."""
AVX512_KERNELS = ("SkylakeX", "Cooperlake", "SapphireRapids")
"""OpenBLAS's names of its kernels with AVX-512."""
ALL = slice(None)


class Products(Protocol):
    """Who computes. Arrays are contiguous; what is returned is `out`, or another array in its place."""

    def forward(self, x: F32, weight: F32, bias: F32, out: F32, *, relu: bool) -> F32:
        """Return ``x weight^T + bias`` [M, outputs], nothing below 0 if `relu`."""
        ...

    def input_gradient(self, d: F32, weight: F32, out: F32) -> F32:
        """Return ``d weight``, [M, inputs]."""
        ...

    def weight_gradient(self, d: F32, x: F32, out: F32) -> None:
        """Write ``d^T x``, [outputs, inputs], into `out`."""
        ...


class NumpyProducts:
    """Whatever NumPy was built with."""

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


class OneDNNProducts(NumpyProducts):
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
    result: F32 = torch.ops.mkldnn._linear_pointwise.default(  # noqa: SLF001
        torch.from_numpy(x),
        torch.from_numpy(weight),
        None if bias is None else torch.from_numpy(bias),
        "relu" if relu else "none",
        [],
        "",
    ).numpy()
    return result


@cache
def products() -> Products:
    """Return whose products are the quickest here."""
    if blas_kernels() not in AVX512_KERNELS and onednn_works():
        return OneDNNProducts()
    return NumpyProducts()


@cache
def onednn_works() -> bool:
    """Whether torch has the private operator, and it does what NumPy does in a trial."""
    try:
        return all(_agree(relu=relu) for relu in (False, True))
    except (AttributeError, RuntimeError, TypeError, NotImplementedError):  # absent, or another one by that name
        return False


def _agree(*, relu: bool) -> bool:
    """Whether oneDNN's and NumPy's products are the same but for rounding."""
    random = np.random.default_rng(0)
    x, d, weight = (
        random.standard_normal((WIDE + i, WIDE + j)).astype(np.float32) for i, j in ((0, 1), (0, 2), (2, 1))
    )
    bias = random.standard_normal(WIDE + 2).astype(np.float32)
    results = []
    for who in (NumpyProducts(), OneDNNProducts()):
        of_weights = np.empty_like(weight)
        who.weight_gradient(d, x, of_weights)
        results.append(
            (
                who.forward(x, weight, bias, np.empty_like(d), relu=relu),
                who.input_gradient(d, weight, np.empty_like(x)),
                of_weights,
            )
        )
    same: list[bool] = [np.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in zip(*results, strict=True)]
    return all(same)


class Layers(NamedTuple):
    """The layers of a multi-layer perceptron, or their gradients, as views of a flat buffer."""

    weights: list[F32]
    """[outputs, inputs] each."""
    biases: list[F32]
    """[outputs] each."""

    @property
    def sizes(self) -> list[int]:
        """Inputs of the first layer, then the outputs of each."""
        return [self.weights[0].shape[1], *(len(bias) for bias in self.biases)]


class Pass:
    """Forward and back through a network of some sizes, on a number of rows. Returned arrays are overwritten by the
    next call.
    """

    def __init__(self, sizes: list[int], rows: int, activation: Activation, kernels: Products) -> None:
        self._relu, self._kernels = activation == "relu", kernels
        self._outputs = [np.zeros((rows, outputs), np.float32) for outputs in sizes[1:]]
        self._scratch = [np.zeros((rows, outputs), np.float32) for outputs in sizes[1:-1]]
        self._ones = np.ones(rows, np.float32)
        self._inputs: list[F32] = []

    def forward(self, layers: Layers, x: F32) -> F32:
        """Return [M, outputs] for x [M, inputs], which is not copied: it must stay until after `backward`."""
        self._inputs = []
        last = len(layers.weights) - 1
        for i, (weight, bias, out) in enumerate(zip(*layers, self._outputs, strict=True)):
            self._inputs.append(x)
            x = self._kernels.forward(x, weight, bias, out, relu=self._relu and i < last)
            if i < last and not self._relu:
                np.tanh(x, out=x)
        return x

    def backward(self, layers: Layers, d: F32, gradients: Layers, rows: slice = ALL) -> None:
        """Write the gradients of the layers from some rows of the last `forward`, for d loss / d output there."""
        for i in range(len(layers.weights) - 1, -1, -1):
            x = self._inputs[i][rows]
            self._kernels.weight_gradient(d, x, gradients.weights[i])
            np.matmul(self._ones[rows], d, out=gradients.biases[i])  # a sum, in half of the time
            if i:
                d = self._kernels.input_gradient(d, layers.weights[i], self._scratch[i - 1][rows])
                self._chain(d, x)

    def input_gradient(self, layers: Layers, d: F32, rows: Index, inputs: slice) -> F32:
        """Return d loss / d input [K, those inputs] for K rows of the last `forward`, and d [K, outputs] there."""
        for i in range(len(layers.weights) - 1, 0, -1):
            d = self._kernels.input_gradient(d, layers.weights[i], self._scratch[i - 1][: len(d)])
            self._chain(d, self._inputs[i].take(rows, axis=0))
        result: F32 = d @ layers.weights[0][:, inputs]
        return result

    def _chain(self, d: F32, activated: F32) -> None:
        """Multiply d by the activation's slope in place; `activated` is no longer needed and may be overwritten."""
        if self._relu:
            tensor = torch.from_numpy(d)
            torch.ops.aten.threshold_backward.grad_input(tensor, torch.from_numpy(activated), 0, grad_input=tensor)
        else:
            np.multiply(activated, activated, out=activated)
            np.subtract(1, activated, out=activated)
            np.multiply(d, activated, out=d)
