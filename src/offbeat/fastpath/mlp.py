"""A multi-layer perceptron in NumPy, forward and backward, on workspaces that are allocated once.

For networks of a few thousand parameters the cost of an update is the number of operators, not the arithmetic: this
takes about a third of the time of torch's autograd (docs/concepts/performance.md). Acting with it needs no torch.

With x [M, inputs], weight [outputs, inputs], and d [M, outputs] the derivative of a loss by the layer's output:

    output              x weight^T + bias
    input gradient      d weight
    weight gradient     d^T x           bias gradient: the sum of d over the rows
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from offbeat.core.types import Array
from offbeat.models.published import published_layout
from offbeat.models.spec import Activation, PolicySpec

F32 = NDArray[np.float32]
Index = NDArray[np.intp]
ALL = slice(None)


class Layers(NamedTuple):
    """The layers of a multi-layer perceptron, or their gradients, as views of a flat buffer."""

    weights: list[F32]
    """[outputs, inputs] each."""
    biases: list[F32]
    """[outputs] each."""

    @classmethod
    def of(cls, views: Mapping[str, F32], names: Sequence[str]) -> Layers:
        """Return the layers of these names: `<name>.weight` and `<name>.bias`."""
        return cls([views[f"{name}.weight"] for name in names], [views[f"{name}.bias"] for name in names])

    @property
    def sizes(self) -> list[int]:
        """Inputs of the first layer, then the outputs of each."""
        return [self.weights[0].shape[1], *(len(bias) for bias in self.biases)]


class Kernels(Protocol):
    """The operators of a layer. Arrays are contiguous; what is returned is `out`, or another array in its place."""

    def forward(self, x: F32, weight: F32, bias: F32, out: F32, *, relu: bool) -> F32:
        """Return ``x weight^T + bias`` [M, outputs], nothing below 0 if `relu`."""
        ...

    def input_gradient(self, d: F32, weight: F32, out: F32) -> F32:
        """Return ``d weight``, [M, inputs]."""
        ...

    def weight_gradient(self, d: F32, x: F32, out: F32) -> None:
        """Write ``d^T x``, [outputs, inputs], into `out`."""
        ...

    def relu_gradient(self, d: F32, activated: F32) -> None:
        """Set d [M, n] to 0 where ReLU gave 0."""
        ...


class NumpyKernels:
    """Those of NumPy alone, for acting and small networks."""

    def forward(self, x: F32, weight: F32, bias: F32, out: F32, *, relu: bool) -> F32:
        np.matmul(x, weight.T, out=out)
        out += bias
        if relu:
            np.maximum(out, 0, out=out)
        return out

    def input_gradient(self, d: F32, weight: F32, out: F32) -> F32:
        # With one output, as a critic has, NumPy's matmul does without BLAS, and takes ten times as long.
        product = np.multiply if d.shape[1] == 1 else np.matmul
        result: F32 = product(d, weight, out=out)
        return result

    def weight_gradient(self, d: F32, x: F32, out: F32) -> None:
        np.matmul(d.T, x, out=out)

    def relu_gradient(self, d: F32, activated: F32) -> None:
        d *= activated > 0


NUMPY = NumpyKernels()


class MLP:
    """Linear layers with an activation after each but the last. Arrays returned are overwritten by the next call.

    It has workspaces, but no parameters: networks of equal sizes may share one, by turns.
    """

    def __init__(
        self, sizes: Sequence[int], activation: Activation, kernels: Kernels = NUMPY, *, rows: int = 0
    ) -> None:
        """Make workspaces.

        Args:
            sizes: inputs of the first layer, then the outputs of each.
            activation: between the layers.
            kernels: the operators.
            rows: of the inputs; the workspaces grow if more come.
        """
        self._outputs_of, self._relu, self._kernels = tuple(sizes[1:]), activation == "relu", kernels
        self._last = len(self._outputs_of) - 1
        self._inputs: list[F32] = []
        self._rows = self._capacity = -1
        self._resize(rows)

    def forward(self, layers: Layers, x: F32) -> F32:
        """Return [M, outputs] for x [M, inputs], which is not copied: it must stay until after `backward`."""
        if len(x) != self._rows:
            self._resize(len(x))
        self._inputs = inputs = []
        relu, last = self._relu, self._last
        for i, (weight, bias, out) in enumerate(zip(*layers, self._outputs, strict=True)):
            inputs.append(x)
            x = self._kernels.forward(x, weight, bias, out, relu=relu and i < last)
            if i < last and not relu:
                np.tanh(x, out=x)
        return x

    def backward(self, layers: Layers, d: F32, gradients: Layers, rows: slice = ALL) -> None:
        """Write the gradients of the layers from some rows of the last `forward`, for d loss / d output there."""
        for i in range(self._last, -1, -1):
            x = self._inputs[i][rows]
            self._kernels.weight_gradient(d, x, gradients.weights[i])
            np.matmul(self._ones[rows], d, out=gradients.biases[i])  # a sum, in half of the time
            if i:
                d = self._kernels.input_gradient(d, layers.weights[i], self._scratch[i - 1][rows])
                self._chain(d, x)

    def input_gradient(self, layers: Layers, d: F32, rows: Index, inputs: slice) -> F32:
        """Return d loss / d input [K, those inputs] for K rows of the last `forward`, and d [K, outputs] there."""
        for i in range(self._last, 0, -1):
            d = self._kernels.input_gradient(d, layers.weights[i], self._scratch[i - 1][: len(d)])
            self._chain(d, self._inputs[i].take(rows, axis=0))
        result: F32 = d @ layers.weights[0][:, inputs]
        return result

    def _chain(self, d: F32, activated: F32) -> None:
        """Multiply d by the activation's slope in place; `activated` is no longer needed and may be overwritten."""
        if self._relu:
            self._kernels.relu_gradient(d, activated)
        else:
            np.multiply(activated, activated, out=activated)
            np.subtract(1, activated, out=activated)
            np.multiply(d, activated, out=d)

    def _resize(self, rows: int) -> None:
        """Allocate for as many rows as ever came: large buffers cost page faults whenever they are new."""
        if rows > self._capacity:
            self._capacity = rows
            self._buffers = [np.zeros((rows, outputs), np.float32) for outputs in self._outputs_of]
            self._scratch_buffers = [np.zeros((rows, outputs), np.float32) for outputs in self._outputs_of[:-1]]
            self._all_ones = np.ones(rows, np.float32)
        self._rows = rows
        self._outputs = [buffer[:rows] for buffer in self._buffers]
        self._scratch = [buffer[:rows] for buffer in self._scratch_buffers]
        self._ones = self._all_ones[:rows]


class NumpyNetwork:
    """The network of a policy that is a plain MLP: `models.acting.ActingNetwork` in NumPy, so actors need no torch."""

    def __init__(self, spec: PolicySpec, vector: F32) -> None:
        """Read the parameters from a published vector, through views."""
        self._layers = Layers.of(published_layout(spec).views(vector), spec.layer_names())
        self._mlp = MLP(self._layers.sizes, spec.activation)

    def forward(self, vector: F32, observation: Mapping[str, Array], state: F32 | None) -> F32:  # noqa: ARG002
        return self._mlp.forward(self._layers, vector)
