"""A multi-layer perceptron in NumPy, forward and backward, on workspaces that are allocated once.

For networks of a few thousand parameters, the time of an update depends on the number of operators more than on the
arithmetic: this module takes about a third of the time of torch's autograd (docs/concepts/why-fast.md). Actors that
use it do not import torch.

With x [M, inputs], weight [outputs, inputs], and d [M, outputs] the derivative of a loss by the layer's output:

    output              x weight^T + bias
    input gradient      d weight
    weight gradient     d^T x           bias gradient: the sum of d over the rows
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import local
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from offbeat.core.types import F32, Array
from offbeat.models.published import published_layout
from offbeat.models.spec import Activation, PolicySpec

Index = NDArray[np.intp]
Rows = slice | Index
ALL = slice(None)
MinibatchArrays = Mapping[str, NDArray[Any]]
"""A minibatch: name -> [M, ...]."""


class Layers(NamedTuple):
    """The layers of a multi-layer perceptron, or their gradients, as views of a flat buffer."""

    weights: list[F32]
    """[outputs, inputs] each."""
    biases: list[F32]
    """[outputs] each."""
    scales: Sequence[F32] = ()
    """[outputs] of each hidden layer, the factors of its layer normalisation, if it has one."""
    shifts: Sequence[F32] = ()
    """[outputs] of each hidden layer, what its layer normalisation adds."""

    @classmethod
    def of(cls, views: Mapping[str, F32], names: Sequence[str]) -> Layers:
        """Return the layers of these names: `<name>.weight` and `<name>.bias`."""
        return cls([views[f"{name}.weight"] for name in names], [views[f"{name}.bias"] for name in names])

    @property
    def sizes(self) -> list[int]:
        """Inputs of the first layer, then the outputs of each layer."""
        return [self.weights[0].shape[1], *(len(bias) for bias in self.biases)]


class Operators(Protocol):
    """The operators of a layer. Arrays are contiguous. A returned array is `out` or a new one."""

    def forward(self, x: F32, weight: F32, bias: F32, out: F32, *, relu: bool) -> F32:
        """Return ``x weight^T + bias``, [M, outputs], and apply ReLU if `relu`."""
        ...

    def input_gradient(self, d: F32, weight: F32, out: F32) -> F32:
        """Return ``d weight``, [M, inputs]."""
        ...

    def weight_gradient(self, d: F32, x: F32, out: F32) -> None:
        """Write ``d^T x``, [outputs, inputs], into `out`."""
        ...

    def relu_gradient(self, d: F32, activated: F32) -> None:
        """Set d [M, n] to 0 where `activated`, the output of ReLU, is 0."""
        ...


class NumpyOperators:
    """Operators in NumPy only, for acting and for small networks."""

    def forward(self, x: F32, weight: F32, bias: F32, out: F32, *, relu: bool) -> F32:
        np.matmul(x, weight.T, out=out)
        out += bias
        if relu:
            np.maximum(out, 0, out=out)
        return out

    def input_gradient(self, d: F32, weight: F32, out: F32) -> F32:
        # With one output, as in a critic, np.matmul does not use BLAS and takes ten times as long.
        product = np.multiply if d.shape[1] == 1 else np.matmul
        result: F32 = product(d, weight, out=out)
        return result

    def weight_gradient(self, d: F32, x: F32, out: F32) -> None:
        np.matmul(d.T, x, out=out)

    def relu_gradient(self, d: F32, activated: F32) -> None:
        d *= activated > 0


NUMPY = NumpyOperators()


def multiply_by_derivative(operators: Operators, d: F32, activated: F32, *, relu: bool) -> None:
    """Multiply d by the derivative of ReLU or tanh, in place; `activated`, its output, may be overwritten."""
    if relu:
        operators.relu_gradient(d, activated)
    else:
        np.multiply(activated, activated, out=activated)
        np.subtract(1, activated, out=activated)
        np.multiply(d, activated, out=d)


class MLP:
    """Linear layers with an activation after each except the last. The next call overwrites arrays that were returned.

    An MLP has workspaces, but no parameters: networks of the same sizes may use the same MLP, one after the other.
    """

    def __init__(
        self, sizes: Sequence[int], activation: Activation, operators: Operators = NUMPY, *, rows: int = 0
    ) -> None:
        """Allocate workspaces.

        Args:
            sizes: inputs of the first layer, then the outputs of each layer.
            activation: activation of the hidden layers.
            operators: the operators.
            rows: expected number of rows of the inputs; the workspaces grow if there are more.
        """
        self._outputs_of, self._relu, self._operators = tuple(sizes[1:]), activation == "relu", operators
        self._last = len(self._outputs_of) - 1
        self._inputs: list[F32] = []
        self._rows = self._capacity = -1
        self._resize(rows)

    def forward(self, layers: Layers, x: F32) -> F32:
        """Return [M, outputs] for x [M, inputs]. x is not copied, and must not change before `backward`."""
        if len(x) != self._rows:
            self._resize(len(x))
        self._inputs = inputs = []
        relu, last = self._relu, self._last
        for i, (weight, bias, out) in enumerate(zip(layers.weights, layers.biases, self._outputs, strict=True)):
            inputs.append(x)
            x = self._operators.forward(x, weight, bias, out, relu=relu and i < last)
            if i < last and not relu:
                np.tanh(x, out=x)
        return x

    def backward(self, layers: Layers, d: F32, gradients: Layers, rows: slice = ALL) -> None:
        """Write the gradients of the layers for some rows of the last `forward`; d: d loss / d output of these rows."""
        for i in range(self._last, -1, -1):
            x = self._inputs[i][rows]
            self._operators.weight_gradient(d, x, gradients.weights[i])
            np.matmul(self._ones[rows], d, out=gradients.biases[i])  # faster than np.sum
            if i:
                d = self._operators.input_gradient(d, layers.weights[i], self._scratch[i - 1][rows])
                self._activation_gradient(d, x)
                d = self._norm_gradient(i - 1, layers, d, rows, gradients)

    def input_gradient(self, layers: Layers, d: F32, rows: Index, inputs: slice) -> F32:
        """Return d loss / d input for some rows and some inputs of the last `forward`.

        Args:
            layers: the layers of that `forward`.
            d: d loss / d output, [K, outputs], of these rows.
            rows: indices of the rows, [K].
            inputs: range of the inputs.
        """
        for i in range(self._last, 0, -1):
            d = self._operators.input_gradient(d, layers.weights[i], self._scratch[i - 1][: len(d)])
            self._activation_gradient(d, self._inputs[i].take(rows, axis=0))
            d = self._norm_gradient(i - 1, layers, d, rows)
        result: F32 = d @ layers.weights[0][:, inputs]
        return result

    def _activation_gradient(self, d: F32, activated: F32) -> None:
        multiply_by_derivative(self._operators, d, activated, relu=self._relu)

    def _norm_gradient(self, i: int, layers: Layers, d: F32, rows: Rows, gradients: Layers | None = None) -> F32:  # noqa: ARG002
        """Return d loss / d output of the linear layer i, for some rows. Here its outputs are not normalised.

        Args:
            i: the hidden layer.
            layers: the layers of the last `forward`.
            d: d loss / d input of the layer's activation, of these rows.
            rows: the rows.
            gradients: gets the gradients of the normalisation's parameters; None: they are not needed.
        """
        return d

    def _resize(self, rows: int) -> None:
        """Use workspaces of this number of rows; allocate only if it is the largest so far, as new memory is slow."""
        if rows > self._capacity:
            self._capacity = rows
            self._buffers = [np.zeros((rows, outputs), np.float32) for outputs in self._outputs_of]
            self._scratch_buffers = [np.zeros((rows, outputs), np.float32) for outputs in self._outputs_of[:-1]]
            self._all_ones = np.ones(rows, np.float32)
        self._rows = rows
        self._outputs = [buffer[:rows] for buffer in self._buffers]
        self._scratch = [buffer[:rows] for buffer in self._scratch_buffers]
        self._ones = self._all_ones[:rows]


class ThreadMLP(local):
    """An MLP for each thread. The arguments are those of `MLP`."""

    def __init__(self, sizes: Sequence[int], activation: Activation) -> None:
        """Allocate the workspaces of the calling thread. Python calls this again in each other thread."""
        self.mlp = MLP(sizes, activation)


class NumpyNetwork:
    """An `acting.ActingNetwork` in NumPy, for policies with a plain MLP. Actors that use it do not import torch."""

    def __init__(self, spec: PolicySpec, vector: F32) -> None:
        """Read the parameters from a published vector, through views."""
        self._layers = Layers.of(published_layout(spec).views(vector), spec.layer_names())
        self._of_thread = ThreadMLP(self._layers.sizes, spec.activation)

    def forward(self, inputs: F32, observation: Mapping[str, Array], state: F32 | None) -> F32:  # noqa: ARG002
        return self._of_thread.mlp.forward(self._layers, inputs)
