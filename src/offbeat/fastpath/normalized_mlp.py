"""A multi-layer perceptron with layer normalisation (arXiv:1607.06450) of its hidden layers, forward and backward.

With z [M, n] the output of a linear layer, mean and variance over its n units, the activation f, and d f for the
derivative of a loss by f:

    s = 1 / sqrt(variance + eps)        x = (z - mean) s        y = f(scale x + shift)
    d z = s (d x - mean(d x) - x mean(d x x))                   d x = scale d (scale x + shift)

torch computes these with one operator forward and one backward.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from offbeat.fastpath.mlp import ALL, F32, MLP, Index, Layers
from offbeat.models.critics import NORM_EPS

Rows = slice | Index


class NormalizedMLP(MLP):
    """Linear layers; after each except the last, layer normalisation and an activation."""

    _statistics: list[tuple[Tensor, Tensor, Tensor]]
    """Of each hidden layer in the last `forward`: z [M, n], mean and 1 / standard deviation [M, 1]."""

    def forward(self, layers: Layers, x: F32) -> F32:
        if len(x) != self._rows:
            self._resize(len(x))
        self._inputs, self._statistics = [], []
        for i, (weight, bias, out) in enumerate(zip(layers.weights, layers.biases, self._outputs, strict=True)):
            self._inputs.append(x)
            x = self._kernels.forward(x, weight, bias, out, relu=False)
            if i < self._last:
                x = self._normalize(i, layers, x)
        return x

    def _normalize(self, i: int, layers: Layers, z: F32) -> F32:
        """Return the activated outputs of hidden layer i, [M, n], from those of its linear layer."""
        linear = torch.from_numpy(z)
        y, mean, inverse_std = torch.native_layer_norm(
            linear, z.shape[1:], torch.from_numpy(layers.scales[i]), torch.from_numpy(layers.shifts[i]), NORM_EPS
        )
        self._statistics.append((linear, mean, inverse_std))
        activated: F32 = (y.relu_() if self._relu else y.tanh_()).numpy()
        return activated

    def backward(self, layers: Layers, d: F32, gradients: Layers, rows: slice = ALL) -> None:
        for i in range(self._last, -1, -1):
            x = self._inputs[i][rows]
            self._kernels.weight_gradient(d, x, gradients.weights[i])
            np.matmul(self._ones[rows], d, out=gradients.biases[i])
            if i:
                d = self._kernels.input_gradient(d, layers.weights[i], self._scratch[i - 1][rows])
                self._activation_gradient(d, x)
                d, *of_norm = self._norm_gradients(i - 1, layers, d, rows, parameters=True)
                gradients.scales[i - 1][...], gradients.shifts[i - 1][...] = of_norm

    def input_gradient(self, layers: Layers, d: F32, rows: Index, inputs: slice) -> F32:
        for i in range(self._last, 0, -1):
            d = self._kernels.input_gradient(d, layers.weights[i], self._scratch[i - 1][: len(d)])
            self._activation_gradient(d, self._inputs[i].take(rows, axis=0))
            (d,) = self._norm_gradients(i - 1, layers, d, rows, parameters=False)
        result: F32 = d @ layers.weights[0][:, inputs]
        return result

    def _norm_gradients(self, i: int, layers: Layers, d: F32, rows: Rows, *, parameters: bool) -> list[F32]:
        """Return d loss / d z of some rows of hidden layer i, and if `parameters`, the gradients of scale and shift.

        Args:
            i: the hidden layer.
            layers: the layers of the last `forward`.
            d: d loss / d (scale x + shift) of these rows.
            rows: the rows.
            parameters: whether to return them.
        """
        z, mean, inverse_std = (part[rows] for part in self._statistics[i])
        scale, shift = torch.from_numpy(layers.scales[i]), torch.from_numpy(layers.shifts[i])
        wanted = [True, parameters, parameters]
        found: tuple[Tensor | None, ...] = torch.ops.aten.native_layer_norm_backward(
            torch.from_numpy(d), z, z.shape[1:], mean, inverse_std, scale, shift, wanted
        )
        return [gradient.numpy() for gradient in found if gradient is not None]
