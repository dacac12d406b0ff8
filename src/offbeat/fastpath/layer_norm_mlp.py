"""A multi-layer perceptron with layer normalisation (arXiv:1607.06450) of its hidden layers, forward and backward.

With z [M, n] the output of a linear layer, mean and variance over its n units, the activation f, and d f for the
derivative of a loss by f:

    s = 1 / sqrt(variance + eps)        x = (z - mean) s        y = f(scale x + shift)
    d z = s (d x - mean(d x) - x mean(d x x))                   d x = scale d (scale x + shift)

torch computes these with one operator forward and one backward.
"""

from __future__ import annotations

import torch
from torch import Tensor

from offbeat.core.types import F32
from offbeat.models.critics import NORM_EPS
from offbeat.models.mlp import MLP, Layers, Rows


class LayerNormMLP(MLP):
    """Linear layers; after each except the last, layer normalisation and an activation."""

    _statistics: list[tuple[Tensor, Tensor, Tensor]]
    """Of each hidden layer in the last `forward`: z [M, n], mean and 1 / standard deviation [M, 1]."""

    def forward(self, layers: Layers, x: F32) -> F32:
        if len(x) != self._rows:
            self._resize(len(x))
        self._inputs, self._statistics = [], []
        for i, (weight, bias, out) in enumerate(zip(layers.weights, layers.biases, self._outputs, strict=True)):
            self._inputs.append(x)
            x = self._operators.forward(x, weight, bias, out, relu=False)
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

    def _norm_gradient(self, i: int, layers: Layers, d: F32, rows: Rows, gradients: Layers | None = None) -> F32:
        z, mean, inverse_std = (part[rows] for part in self._statistics[i])
        scale, shift = torch.from_numpy(layers.scales[i]), torch.from_numpy(layers.shifts[i])
        wanted = [True, gradients is not None, gradients is not None]
        found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.native_layer_norm_backward(
            torch.from_numpy(d), z, z.shape[1:], mean, inverse_std, scale, shift, wanted
        )
        of_z, of_scale, of_shift = found
        if gradients is not None:
            gradients.scales[i][...], gradients.shifts[i][...] = of_scale.numpy(), of_shift.numpy()
        result: F32 = of_z.numpy()
        return result
