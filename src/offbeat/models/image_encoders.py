"""Encoders: networks from images to a vector of features.

Convolutions store their weights as [outputs, height, width, inputs], so that weights and images are both in
channels-last layout without a copy: on a CPU, an update takes a third less time (benchmarks/results/images.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from offbeat.core.errors import ConfigError
from offbeat.core.types import Leaf
from offbeat.models.dense import Dense, Initializer


class Images(nn.Module):
    """Converts uint8 images of any layout, [M, (stack,) ...], to floats in [0, 1], [M, channels, height, width]."""

    def __init__(self, leaf: Leaf) -> None:
        super().__init__()
        height, width = leaf.sides
        self.channels = leaf.stack * (leaf.size // (height * width))
        self.size = height, width
        self._given_channels_last = leaf.channels_last

    def forward(self, images: Tensor) -> Tensor:
        pixels = self._channels_last(images).to(torch.float32).mul_(1 / 255)
        return pixels.reshape(images.shape[0], *self.size, self.channels).permute(0, 3, 1, 2)

    def _channels_last(self, images: Tensor) -> Tensor:
        """Return the images, still uint8, in channels-last layout. To move floats would take three times as long."""
        if self._given_channels_last:
            return images if images.ndim == 4 else images.movedim(1, 3)
        return torch.stack(images.reshape(images.shape[0], self.channels, -1).unbind(1), dim=-1)


class Convolution(nn.Module):
    """A 2-D convolution with weights in channels-last layout, as its images."""

    def __init__(
        self, inputs: int, outputs: int, size: int, init: Initializer, *, stride: int = 1, padding: int = 0
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, size, size, inputs))
        self.bias = nn.Parameter(torch.empty(outputs))
        self._stride, self._padding = stride, padding
        init.fill(self.weight.data, self.bias.data, inputs * size * size, math.sqrt(2))

    def forward(self, x: Tensor) -> Tensor:
        """Return [M, outputs, height, width] for x [M, inputs, ...]."""
        return functional.conv2d(x, self.weight.permute(0, 3, 1, 2), self.bias, self._stride, self._padding)


def _flat(x: Tensor) -> Tensor:
    """Return a view [M, height * width * channels] of [M, channels, height, width] in channels-last layout."""
    return x.permute(0, 2, 3, 1).flatten(1)


class Layer(NamedTuple):
    """A convolution of a CNN, without padding."""

    channels: int
    size: int
    """Height and width of its kernel, in pixels."""
    stride: int


class CNN(nn.Module):
    """Convolutions and a layer of units, each with ReLU. The subclasses say which."""

    name: ClassVar[str]
    """Its name in settings."""
    layers: ClassVar[tuple[Layer, ...]]
    features: ClassVar[int]
    """Units of the last layer."""

    def __init__(self, leaf: Leaf, init: Initializer) -> None:
        """Create the encoder for one leaf of images.

        Raises:
            ConfigError: the images are too small.
        """
        super().__init__()
        self._images = Images(leaf)
        self._require_large(leaf)
        channels, (height, width) = self._images.channels, self._images.size
        for number, layer in enumerate(self.layers, start=1):
            convolution = Convolution(channels, layer.channels, layer.size, init, stride=layer.stride)
            self.add_module(f"conv{number}", convolution)
            channels = layer.channels
            height, width = ((side - layer.size) // layer.stride + 1 for side in (height, width))
        self.dense = Dense(channels * height * width, self.features, init)

    def _require_large(self, leaf: Leaf) -> None:
        height, width = leaf.sides
        least = 1
        for layer in reversed(self.layers):
            least = (least - 1) * layer.stride + layer.size
        if min(height, width) < least:
            flat = ", or --set encoder=flat" if leaf.stack == 1 else ""
            raise ConfigError(
                f"{leaf.name} has images of {height} x {width} pixels, but {self.name} needs {least} x {least} at "
                f"least: pass --set encoder=impala_resnet{flat}"
            )

    def forward(self, images: Tensor) -> Tensor:
        """Return [M, features] for images [M, (stack,) ...] of bytes."""
        x = self._images(images)
        for number in range(1, len(self.layers) + 1):
            x = functional.relu(getattr(self, f"conv{number}")(x))
        return functional.relu(self.dense(_flat(x)))


class SimpleCNN(CNN):
    """Two convolutions and a layer of 256 units, with ReLU (Mnih et al. 2013, arXiv:1312.5602)."""

    name = "simple_cnn"
    layers = (Layer(16, size=8, stride=4), Layer(32, size=4, stride=2))
    features = 256


class NatureCNN(CNN):
    """Three convolutions and a layer of 512 units, with ReLU (Mnih et al. 2015, doi:10.1038/nature14236)."""

    name = "nature_cnn"
    layers = (Layer(32, size=8, stride=4), Layer(64, size=4, stride=2), Layer(64, size=3, stride=1))
    features = 512


class _Residual(nn.Module):
    """Two convolutions, each after a ReLU, with a residual connection."""

    def __init__(self, channels: int, init: Initializer) -> None:
        super().__init__()
        self.conv1 = Convolution(channels, channels, 3, init, padding=1)
        self.conv2 = Convolution(channels, channels, 3, init, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.conv2(functional.relu(self.conv1(functional.relu(x))))
        return x + output


class ImpalaResNet(nn.Module):
    """Three sections of a convolution, a max-pooling and two residual blocks; then a layer of 256 units.

    Espeholt et al. 2018, arXiv:1802.01561, figure 3.
    """

    features = 256

    def __init__(self, leaf: Leaf, init: Initializer) -> None:
        super().__init__()
        self._images = Images(leaf)
        channels, (height, width) = self._images.channels, self._images.size
        sections = []
        for outputs in (16, 32, 32):
            blocks = (_Residual(outputs, init), _Residual(outputs, init))
            sections.append(nn.Sequential(Convolution(channels, outputs, 3, init, padding=1), _MaxPool(), *blocks))
            channels, height, width = outputs, (height + 1) // 2, (width + 1) // 2
        self.sections = nn.ModuleList(sections)
        self.dense = Dense(channels * height * width, self.features, init)

    def forward(self, images: Tensor) -> Tensor:
        """Return [M, 256] for images [M, (stack,) ...] of bytes."""
        x = self._images(images)
        for section in self.sections:
            x = section(x)
        return functional.relu(self.dense(_flat(functional.relu(x))))


class _MaxPool(nn.Module):
    """Max-pooling of 3 x 3 pixels with stride 2."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.max_pool2d(x, 3, stride=2, padding=1)


# --- the encoders of a policy -------------------------------------------------------------------------------

IMAGE_ENCODERS: Mapping[str, Callable[[Leaf, Initializer], CNN | ImpalaResNet]] = {
    SimpleCNN.name: SimpleCNN,
    NatureCNN.name: NatureCNN,
    "impala_resnet": ImpalaResNet,
}


class Encoders(nn.Module):
    """One encoder for each leaf that needs one; their features are joined."""

    def __init__(self, leaves: tuple[Leaf, ...], name: str, init: Initializer) -> None:
        super().__init__()
        self._names = [leaf.name for leaf in leaves]
        encoders = [IMAGE_ENCODERS[name](leaf, init) for leaf in leaves]
        self.of_leaf = nn.ModuleList(encoders)
        self.features = sum(encoder.features for encoder in encoders)

    def forward(self, encoded: Mapping[str, Tensor]) -> Tensor:
        """Return [M, features] for leaf -> [M, *stacked_shape]."""
        features = [encoder(encoded[name]) for name, encoder in zip(self._names, self.of_leaf, strict=True)]
        return features[0] if len(features) == 1 else torch.cat(features, dim=1)
