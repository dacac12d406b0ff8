"""A multi-layer perceptron in NumPy, forward and backward, on views of flat buffers.

For networks of a few thousand parameters the cost of an update is the number of operators, not the arithmetic:
this takes about a third of the time of torch's autograd (docs/concepts/performance.md), and needs no torch to act.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from offbeat.models.spec import Activation

F32 = NDArray[np.float32]


class NumpyMLP:
    """Linear layers with an activation after each but the last. Arrays returned are overwritten by the next call."""

    def __init__(self, names: Sequence[str], values: Mapping[str, F32], activation: Activation) -> None:
        """Read the layers `names` through views: `<name>.weight` [outputs, inputs] and `<name>.bias`."""
        self._names = tuple(names)
        self._weights = [values[f"{name}.weight"] for name in names]
        self._biases = [values[f"{name}.bias"] for name in names]
        self._tanh = activation == "tanh"
        self._capacity = 0
        self._ones = np.ones(0, np.float32)
        self._outputs: list[F32] = []
        self._scratch: list[F32] = []
        self._inputs: list[F32] = []

    def forward(self, x: F32) -> F32:
        """Return [M, outputs] for x [M, inputs]."""
        self._reserve(len(x))
        self._inputs = []
        last = len(self._weights) - 1
        for i, (weight, bias, buffer) in enumerate(zip(self._weights, self._biases, self._outputs, strict=True)):
            self._inputs.append(x)
            x = np.matmul(x, weight.T, out=buffer[: len(x)])
            x += bias
            if i < last:
                self._activate(x)
        return x

    def _activate(self, x: F32) -> None:
        if self._tanh:
            np.tanh(x, out=x)
        else:
            np.maximum(x, 0, out=x)

    def backward(self, d: F32, gradients: Mapping[str, F32]) -> None:
        """Write the gradients of the last `forward`'s layers, for d [M, outputs] = d loss / d output."""
        for i in range(len(self._weights) - 1, -1, -1):
            x = self._inputs[i]
            np.matmul(d.T, x, out=gradients[f"{self._names[i]}.weight"])
            np.matmul(self._ones[: len(d)], d, out=gradients[f"{self._names[i]}.bias"])  # a sum, in a fifth of the time
            if i:
                # With one output, as a critic has, NumPy's matmul does without BLAS, and takes ten times as long.
                product = np.multiply if d.shape[1] == 1 else np.matmul
                d = product(d, self._weights[i], out=self._scratch[i - 1][: len(d)])
                self._chain(d, x)

    def _chain(self, d: F32, activated: F32) -> None:
        """Multiply d by the activation's slope in place; `activated` is no longer needed and is overwritten."""
        if self._tanh:
            np.multiply(activated, activated, out=activated)
            np.subtract(1, activated, out=activated)
            d *= activated
        else:
            d *= activated > 0

    def _reserve(self, rows: int) -> None:
        """Keep buffers for as many rows as ever came: large ones cost page faults whenever they are new."""
        if rows > self._capacity:
            self._capacity = rows
            self._ones = np.ones(rows, np.float32)
            self._outputs = [np.empty((rows, bias.size), np.float32) for bias in self._biases]
            self._scratch = [np.empty((rows, bias.size), np.float32) for bias in self._biases[:-1]]
