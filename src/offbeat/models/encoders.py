"""Encoders: networks from images to a vector of features, or a user's own module for the whole observation.

Convolutions store their weights as [outputs, height, width, inputs], so that weights and images are both in
channels-last layout without a copy: on a CPU, an update takes a third less time (benchmarks/results/images.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from offbeat.config.registry import encoder_factory
from offbeat.core.errors import ConfigError, RunFailed, with_notes_of, with_traceback_of, without_full_stop
from offbeat.core.frozen_table import EMPTY, thawed
from offbeat.core.types import Leaf
from offbeat.models.dense import Dense, Initializer
from offbeat.models.spec import PolicySpec

# --- images -------------------------------------------------------------------------------------------------


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


class OwnEncoder(nn.Module):
    """The user's own encoder, whose input is the whole observation."""

    def __init__(
        self, leaves: tuple[Leaf, ...], name: str, init: Initializer, kwargs: Mapping[str, Any] = EMPTY
    ) -> None:
        """Create the module, also with the arguments `kwargs`, and test it on observations of zeros. A lazy layer makes
        its weights in the first test.

        Raises:
            ConfigError: it cannot be made, is not a torch module, has buffers, changes its observations, draws random
                numbers, or does not return features [M, F].
        """
        super().__init__()
        self._name = name
        self._contract = f"Its forward(observations) gets {_described(leaves)}, and returns features, a tensor [M, F]"
        self._env_numbers = {leaf.name: _EnvNumbers(leaf) for leaf in leaves if leaf.choices and leaf.env_dtype}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(init.seed())
            self.module = _made(name, leaves, thawed(kwargs))
            self.features = self._tested_features(leaves)

    def _tested_features(self, leaves: tuple[Leaf, ...]) -> int:
        """Return the number of features F, after tests of the module on one and on two observations of zeros."""
        features = self._count(leaves, 1)
        before = torch.get_rng_state()
        more = self._count(leaves, 2)
        if more != features:
            raise ConfigError(
                f"encoder {self._name} returned {min(features, more)} and {max(features, more)} features for one and "
                f"for two observations, but the same number is expected. {self._contract}"
            )
        if not torch.equal(torch.get_rng_state(), before):
            raise ConfigError(
                f"encoder {self._name} draws random numbers, so the features of an observation would differ between "
                "acting and learning, and between runs: leave out what draws them, such as noise or RReLU, and give "
                "dropout the probability 0, also that of nn.TransformerEncoderLayer"
            )
        return features

    def _count(self, leaves: tuple[Leaf, ...], rows: int) -> int:
        """Return the number of features for observations of zeros."""
        zeros = {leaf.name: torch.zeros(rows, *leaf.stacked_shape, dtype=getattr(torch, leaf.dtype)) for leaf in leaves}
        try:
            with torch.no_grad():
                features: Any = self._encoded(zeros)
        except RunFailed as error:
            raise with_notes_of(ConfigError(str(error)), error) from error
        if any(x._version for x in zeros.values()):  # noqa: SLF001 - counts changes in place
            raise ConfigError(
                f"encoder {self._name} changes its observations in place, but they are also recorded and learned from: "
                "compute new tensors, such as x * 2 instead of x.mul_(2)"
            )
        given = f"for {rows} observations of zeros" if rows > 1 else "for an observation of zeros"
        if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != rows or not features.shape[1]:
            raise ConfigError(
                f"encoder {self._name} returned {_kind(features)} {given}, but features [{rows}, F] are expected. "
                f"{self._contract}"
            )
        if not features.is_floating_point():
            raise ConfigError(
                f"encoder {self._name} returned features of {features.dtype} {given}, which have no gradient: return "
                "floats"
            )
        if not features.isfinite().all():
            raise ConfigError(
                f"encoder {self._name} returned NaN or infinite features {given}: a division by zero, for example, "
                "becomes finite with a small number added to the divisor"
            )
        return features.shape[1]

    def forward(self, encoded: Mapping[str, Tensor]) -> Tensor:
        """Return [M, features] in float32, of whatever precision the module's are, for leaf -> [M, *stacked_shape].

        Raises:
            RunFailed: the module raises an exception.
        """
        return self._encoded(encoded).float()

    def _encoded(self, encoded: Mapping[str, Tensor]) -> Tensor:
        """Return what the module returns; arguments and errors are as in `forward`."""
        given = {name: self._env_numbers[name](x) if name in self._env_numbers else x for name, x in encoded.items()}
        try:
            features: Tensor = self.module(env_structure(given))
        except Exception as error:
            rows = len(next(iter(encoded.values())))
            failed = RunFailed(
                f"encoder {self._name} raised {type(error).__name__} for M = {rows} observations "
                f"({without_full_stop(error)}). {self._contract}"
            )
            raise with_traceback_of(failed, error) from error
        return features


def _made(name: str, leaves: tuple[Leaf, ...], kwargs: Mapping[str, Any]) -> nn.Module:
    """Return the module that an encoder's class or function makes, which is called with the arguments `kwargs` too.

    Raises:
        ConfigError: it raises an exception, or what it makes is no module, has buffers, or parameters of another dtype
            than float32.
    """
    make = encoder_factory(name)
    try:
        module = make(env_structure({leaf.name: _as_env_gives(leaf) for leaf in leaves}), **kwargs)
    except Exception as error:
        refused = ConfigError(
            f"encoder {name} cannot be made ({type(error).__name__}: {without_full_stop(error)}): it is called with "
            f"the description of the observation, {_described(leaves, rows=())}" + f"; and with {kwargs}" * bool(kwargs)
        )
        raise with_traceback_of(refused, error) from error
    if not isinstance(module, nn.Module):
        raise ConfigError(f"encoder {name} made {module!r}, but a torch.nn.Module is expected: return one")
    if others := {str(each.dtype) for each in module.parameters()} - {"torch.float32"}:
        raise ConfigError(
            f"encoder {name} has parameters of {', '.join(sorted(others))}, but networks are float32: pass "
            "dtype=torch.float32 to its layers, or leave out torch.set_default_dtype"
        )
    if buffers := [key for key, _ in module.named_buffers()]:
        raise ConfigError(
            f"encoder {name} has buffers ({', '.join(buffers)}), which are not published to actors: use layers "
            "without running statistics, such as LayerNorm; for a constant of floats nn.Parameter(value, "
            "requires_grad=False); and make other constants in forward()"
        )
    return module


def _kind(features: object) -> str:
    """Return what an encoder returned, in words."""
    if isinstance(features, Tensor):
        return f"a tensor of shape {list(features.shape)}"
    return f"a tuple of {len(features)}" if isinstance(features, tuple) else type(features).__name__


def _described(leaves: tuple[Leaf, ...], rows: tuple[str, ...] = ("M",)) -> str:
    """Return the observations that an encoder gets, in words: name, shape and dtype of each leaf."""
    given = env_structure({leaf.name: _as_env_gives(leaf) for leaf in leaves})
    parts = given if isinstance(given, Mapping) else {"observation": given}
    words = ", ".join(
        f"{name} [{', '.join(map(str, (*rows, *leaf.stacked_shape)))}] {leaf.dtype}" for name, leaf in parts.items()
    )
    return f"a dict of {words}" if isinstance(given, Mapping) else words


def _as_env_gives(leaf: Leaf) -> Leaf:
    """Return the description of a leaf as the user's own encoder gets it: with the dtype of the env's choices."""
    return replace(leaf, dtype=leaf.env_dtype) if leaf.env_dtype else leaf


class _EnvNumbers:
    """Converts stored choices, which count from 0 in the smallest dtype, to the env's own numbers in its own dtype."""

    def __init__(self, leaf: Leaf) -> None:
        self._dtype: torch.dtype = getattr(torch, leaf.env_dtype)
        self._start = torch.tensor(leaf.start).reshape(leaf.shape) if leaf.start else None

    def __call__(self, stored: Tensor) -> Tensor:
        """Return [M, *shape] for [M, *shape]."""
        if self._start is None:
            return stored.to(self._dtype)
        self._start = self._start.to(stored.device)
        return (stored.to(torch.int64) + self._start).to(self._dtype)


def env_structure(leaves: Mapping[str, Any]) -> Any:
    """Return the values of leaves as a dict with the keys of the env's Dict space; for a single leaf, its value."""
    if list(leaves) == ["observation"]:
        return leaves["observation"]
    return {name.removeprefix("observation/"): part for name, part in leaves.items()}


def encoders_of(spec: PolicySpec, init: Initializer) -> Encoders | OwnEncoder | None:
    """Return the encoders of a policy; None if no leaf needs one."""
    if not spec.encoded:
        return None
    if spec.encoder in IMAGE_ENCODERS:
        return Encoders(spec.encoded, spec.encoder, init)
    return OwnEncoder(spec.encoded, spec.encoder, init, spec.encoder_kwargs)
