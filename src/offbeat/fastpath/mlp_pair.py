"""A policy and its critic, two MLPs with the same hidden layers, forward and backward together.

A small network's update is bound by the number of calls. The hidden layers of the two networks have the same shapes, so
one call of NumPy computes both: their weights are seen as one array [2, outputs, inputs], a view of the flat buffer in
which they lie, and their activations are [2, M, outputs]. Only the heads differ: the policy has P outputs, the critic
one. The formulas are those of `mlp`, and so are the bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from offbeat.core.types import F32
from offbeat.models.buffer_layout import BufferLayout
from offbeat.models.mlp import NUMPY, multiply_by_derivative
from offbeat.models.spec import Activation


class PairLayers:
    """The layers of two MLPs, or their gradients, as views of a flat buffer. Axis 0: the policy, the critic."""

    def __init__(self, buffer: F32, layout: BufferLayout, policy: Sequence[str], critic: Sequence[str]) -> None:
        """Find the layers by their names in the layout of the buffer, the heads last."""
        *bodies, heads = zip(policy, critic, strict=True)
        views = layout.views(buffer)
        self.weights = [_pair(buffer, layout, *(f"{name}.weight" for name in names)) for names in bodies]
        """[2, outputs, inputs] for each hidden layer."""
        self.biases = [_pair(buffer, layout, *(f"{name}.bias" for name in names)) for names in bodies]
        """[2, outputs] for each hidden layer."""
        self.policy_weight, self.critic_weight = (views[f"{name}.weight"] for name in heads)  # [P, n], [1, n]
        self.policy_bias, self.critic_bias = (views[f"{name}.bias"] for name in heads)  # [P], [1]


def _pair(buffer: F32, layout: BufferLayout, first: str, second: str) -> F32:
    """Return two arrays of the same shape as one view [2, *shape]."""
    entries = {entry.name: entry for entry in layout.entries}
    one, other = entries[first], entries[second]
    if one.shape != other.shape:
        raise ValueError(f"{first} is {one.shape}, but {second} is {other.shape}: they must have the same shape")
    array: F32 = buffer[one.offset : one.stop].reshape(one.shape)
    step = (other.offset - one.offset) * buffer.itemsize
    return np.lib.stride_tricks.as_strided(array, (2, *one.shape), (step, *array.strides))


class MLPPair:
    """The forward and backward passes. The next call overwrites arrays that were returned."""

    def __init__(self, layers: PairLayers, gradients: PairLayers, activation: Activation) -> None:
        """Read the parameters of `layers`, and write into `gradients`."""
        self._layers, self._gradients, self._relu = layers, gradients, activation == "relu"
        self._weights_t = [weight.transpose(0, 2, 1) for weight in layers.weights]
        self._biases = [bias[:, None] for bias in layers.biases]
        self._rows = self._capacity = -1
        self._resize(0)

    def forward(self, x: F32) -> tuple[F32, F32]:
        """Return the policy's outputs, [M, P], and the critic's, [M], for inputs [M, inputs].

        x is not copied, and must not change before `backward`.
        """
        if len(x) != self._rows:
            self._resize(len(x))
        self._x = activated = x
        for weight_t, bias, out in zip(self._weights_t, self._biases, self._hidden, strict=True):
            np.matmul(activated, weight_t, out=out)
            np.add(out, bias, out=out)
            if self._relu:
                np.maximum(out, 0, out=out)
            else:
                np.tanh(out, out=out)
            activated = out
        of_policy, of_critic = self._inputs_of_heads()
        np.matmul(of_policy, self._layers.policy_weight.T, out=self._output)
        self._output += self._layers.policy_bias
        np.matmul(of_critic, self._layers.critic_weight[0], out=self._values)
        self._values += self._layers.critic_bias
        return self._output, self._values

    def outputs(self) -> tuple[F32, F32]:
        """Return the results of the last `forward` again."""
        return self._output, self._values

    def _inputs_of_heads(self) -> tuple[F32, F32]:
        if not self._hidden:
            return self._x, self._x
        of_policy, of_critic = self._hidden[-1]
        return of_policy, of_critic

    def backward(self, d_output: F32, d_values: F32) -> None:
        """Write all gradients for the rows of the last `forward`.

        Args:
            d_output: d loss / d output of the policy, [M, P].
            d_values: d loss / d output of the critic, [M].
        """
        gradients, ones = self._gradients, self._ones
        of_policy, of_critic = self._inputs_of_heads()
        np.matmul(d_output.T, of_policy, out=gradients.policy_weight)
        np.matmul(ones, d_output, out=gradients.policy_bias)
        np.matmul(d_values, of_critic, out=gradients.critic_weight[0])
        gradients.critic_bias[0] = ones.dot(d_values)
        if not self._hidden:
            return
        d = self._scratch[-1]
        # With one output, np.matmul does not use BLAS and takes twice as long as np.dot.
        np.dot(d_output, self._layers.policy_weight, out=d[0])
        np.dot(d_values[:, None], self._layers.critic_weight, out=d[1])
        for i in range(len(self._hidden) - 1, -1, -1):
            multiply_by_derivative(NUMPY, d, self._hidden[i], relu=self._relu)
            x = self._hidden[i - 1] if i else self._x
            np.matmul(d.transpose(0, 2, 1), x, out=gradients.weights[i])
            np.matmul(ones, d, out=gradients.biases[i])  # faster than np.sum
            if i:
                d = np.matmul(d, self._layers.weights[i], out=self._scratch[i - 1])

    def _resize(self, rows: int) -> None:
        """Use workspaces of this number of rows; allocate only if it is the largest so far, as new memory is slow."""
        sizes = [bias.shape[1] for bias in self._layers.biases]
        if rows > self._capacity:
            self._capacity = rows
            self._buffers = [np.zeros((2, 2 * rows * size), np.float32) for size in sizes]
            self._all_outputs = np.zeros((rows, len(self._layers.policy_bias)), np.float32)
            self._all_values, self._all_ones = np.zeros(rows, np.float32), np.ones(rows, np.float32)
        self._rows = rows
        # Arrays are contiguous for any number of rows.
        halves = [
            buffer[:, : 2 * rows * size].reshape(2, 2, rows, size)
            for buffer, size in zip(self._buffers, sizes, strict=True)
        ]
        self._hidden, self._scratch = [half[0] for half in halves], [half[1] for half in halves]
        self._output, self._values = self._all_outputs[:rows], self._all_values[:rows]
        self._ones = self._all_ones[:rows]
