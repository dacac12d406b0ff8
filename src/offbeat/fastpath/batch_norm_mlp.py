"""A multi-layer perceptron with batch renormalisation of each layer's input, forward and backward.

With N rows, x [N, n] the input of a layer, its weight W, bias b, scale and shift, and mean, s, r and d as in
`models.batch_norm`:

    k = scale r / s         m = shift + scale d - k mean        z = (k x + m) W^T + b = x (W k)^T + (b + W m)

So a layer needs no pass over its rows besides those for mean and s. With d z [N, outputs] the derivative of a loss by
z, G = d z^T x and g the sum of d z over the rows:

    d b = g         d W = G k + g m^T       d shift = g W       d scale = (r / s) q + d (g W)
    q = sum over the outputs of W G, minus mean (g W)
    d x = d z (W k) - k / N (g W + (x - mean) q / s^2)

If the mean were large beside s, k x and m would cancel, and digits would be lost. The inputs of the first layer may be
so. Therefore it gets x minus an origin, which is their mean but for rounding; `mean` above is that of the differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from offbeat.core.types import F32
from offbeat.models.batch_norm import EPS, MOST_D, MOST_R, WARMUP
from offbeat.models.mlp import Layers, Operators, multiply_by_derivative
from offbeat.models.spec import Activation


class Moments(NamedTuple):
    """Means and variances of the inputs of each layer of one critic, as views of a flat buffer."""

    means: list[F32]
    """[n] each."""
    variances: list[F32]
    """[n] each."""


class BatchNormMLP:
    """Linear layers with an activation after each except the last. The next call overwrites arrays that were returned.

    An MLP has workspaces, but no parameters.
    """

    def __init__(self, sizes: Sequence[int], activation: Activation, operators: Operators, rows: int) -> None:
        """Allocate workspaces.

        Args:
            sizes: inputs of the first layer, then the outputs of each layer.
            activation: activation of the hidden layers.
            operators: the operators.
            rows: N.
        """
        self._rows, self._relu, self._operators = rows, activation == "relu", operators
        self._last = len(sizes) - 2
        self._folded = Folded(sizes)
        self._k = [np.zeros(size, np.float32) for size in sizes[:-1]]
        self._m, self._r, self._d, self._std = ([np.zeros_like(k) for k in self._k] for _ in range(4))
        self._outputs = [np.zeros((rows, size), np.float32) for size in sizes[1:]]
        self._scratch = [np.zeros((rows, size), np.float32) for size in sizes[:-1]]
        self._first = np.zeros((rows, sizes[0]), np.float32)
        """[N, inputs]: the inputs of the first layer minus their origin."""
        self._origins, self._means = ([np.zeros_like(k) for k in self._k] for _ in range(2))
        """[n] each: the origins, 0 except in the first layer; and the means of the differences."""
        self._products = [np.zeros_like(weight) for weight in self._folded.layers.weights]
        self._ones = np.ones(rows, np.float32)
        self._inputs: list[F32] = []

    def forward(self, layers: Layers, x: F32, running: Moments, updates: float, batch: Moments) -> F32:
        """Return [N, outputs] for x [N, inputs].

        Args:
            layers: the layers, with scales and shifts of each.
            x: the rows.
            running: the running moments.
            updates: the number of their updates.
            batch: is overwritten with the moments of these rows.
        """
        self._inputs, self._batch = [], batch
        x = self._minus_origin(x)
        for i in range(self._last + 1):
            self._inputs.append(x)
            self._measure(i, x)
            self._renormalize(i, layers, running, is_warm=updates >= WARMUP)
            self._folded.fold(i, layers, self._k[i], self._m[i])
            weight, bias = self._folded.layers.weights[i], self._folded.layers.biases[i]
            hidden = i < self._last
            x = self._operators.forward(x, weight, bias, self._outputs[i], relu=self._relu and hidden)
            if hidden and not self._relu:
                np.tanh(x, out=x)
        return x

    def _minus_origin(self, x: F32) -> F32:
        """Return the inputs of the first layer minus their origin."""
        origin = np.matmul(self._ones, x, out=self._origins[0])
        origin /= self._rows
        return np.subtract(x, origin, out=self._first)

    def _measure(self, i: int, x: F32) -> None:
        """Write the moments of the rows of layer i, from x, in the first layer minus the origin."""
        mean, variance, squares = self._means[i], self._batch.variances[i], self._scratch[i]
        np.matmul(self._ones, x, out=mean)  # faster than np.sum
        mean /= self._rows
        centered = np.subtract(x, mean, out=squares) if i else x  # in the first layer the mean is only rounding
        np.multiply(centered, centered, out=squares)
        np.matmul(self._ones, squares, out=variance)
        variance /= self._rows
        np.add(mean, self._origins[i], out=self._batch.means[i])

    def _renormalize(self, i: int, layers: Layers, running: Moments, *, is_warm: bool) -> None:
        """Write s, r, d, k and m of layer i."""
        mean, std, r, d = self._means[i], self._std[i], self._r[i], self._d[i]
        np.sqrt(self._batch.variances[i] + np.float32(EPS), out=std)
        r[...], d[...] = 1, 0
        if is_warm:
            running_std = np.sqrt(running.variances[i] + np.float32(EPS))
            np.clip(std / running_std, 1 / MOST_R, MOST_R, out=r)
            running_mean = running.means[i] - self._origins[i]
            np.clip((mean - running_mean) / running_std, -MOST_D, MOST_D, out=d)
        np.divide(layers.scales[i] * r, std, out=self._k[i])
        self._m[i][...] = layers.shifts[i] + layers.scales[i] * d - self._k[i] * mean

    def backward(self, layers: Layers, d: F32, gradients: Layers) -> None:
        """Write the gradients of the layers; d: d loss / d output of all rows of the last `forward`."""
        for i in range(self._last, -1, -1):
            x, k, mean, std = self._inputs[i], self._k[i], self._means[i], self._std[i]
            weight, of_weight, of_bias = layers.weights[i], gradients.weights[i], gradients.biases[i]
            self._operators.weight_gradient(d, x, of_weight)
            np.matmul(self._ones, d, out=of_bias)
            of_shift = np.matmul(of_bias, weight, out=gradients.shifts[i])
            product = np.multiply(weight, of_weight, out=self._products[i])
            q = np.add.reduce(product, axis=0) - mean * of_shift
            gradients.scales[i][...] = self._r[i] / std * q + self._d[i] * of_shift
            of_weight *= k
            of_weight += np.multiply.outer(of_bias, self._m[i])
            if i:
                d = self._operators.input_gradient(d, self._folded.layers.weights[i], self._scratch[i])
                slope = k * q / (-self._rows * std * std)
                offset = k * of_shift / -self._rows - slope * mean
                self._add_moment_gradients(d, x, slope, offset)
                multiply_by_derivative(self._operators, d, x, relu=self._relu)

    @staticmethod
    def _add_moment_gradients(d: F32, x: F32, slope: F32, offset: F32) -> None:
        """Add slope x + offset to d, in place."""
        torch.from_numpy(d).addcmul_(torch.from_numpy(x), torch.from_numpy(slope)).add_(torch.from_numpy(offset))


class Folded:
    """Layers without normalisation that compute the same as normalised ones with given k and m."""

    def __init__(self, sizes: Sequence[int]) -> None:
        """Allocate layers; `sizes` is as in `BatchNormMLP`."""
        shapes = list(zip(sizes[1:], sizes[:-1], strict=True))
        self.layers = Layers(
            [np.zeros(shape, np.float32) for shape in shapes], [np.zeros(shape[0], np.float32) for shape in shapes]
        )

    def fold(self, i: int, layers: Layers, k: F32, m: F32) -> None:
        """Write layer i."""
        np.multiply(layers.weights[i], k, out=self.layers.weights[i])
        np.add(layers.biases[i], layers.weights[i] @ m, out=self.layers.biases[i])

    def fold_all(self, layers: Layers, running: Moments) -> None:
        """Write all layers, normalised by the running moments. The first one gets its rows minus the running mean."""
        for i, (mean, variance) in enumerate(zip(*running, strict=True)):
            k = layers.scales[i] / np.sqrt(variance + np.float32(EPS))
            self.fold(i, layers, k, layers.shifts[i] - k * mean if i else layers.shifts[0])
