"""Encoders against the same networks in torch's own layers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from offbeat.core.errors import ConfigError
from offbeat.core.types import Leaf
from offbeat.models.image_encoders import Convolution, Encoders, Images, ImpalaResNet, NatureCNN, SimpleCNN
from offbeat.models.policy_network import Orthogonal, Uniform

ATARI = Leaf("observation", (84, 84), "uint8", stack=4)
LAYOUTS = {
    "a single channel": Leaf("observation", (40, 36), "uint8"),
    "channels last": Leaf("observation", (40, 36, 3), "uint8"),
    "channels first": Leaf("observation", (3, 40, 36), "uint8"),
    "a stack": Leaf("observation", (40, 36), "uint8", stack=3),
    "a stack with channels last": Leaf("observation", (40, 36, 3), "uint8", stack=2),
}


def init(seed: int = 0):
    return Orthogonal(torch.Generator().manual_seed(seed))


def random_images(leaf: Leaf, rows: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(rows)
    return torch.randint(0, 256, (rows, *leaf.stacked_shape), generator=generator, dtype=torch.uint8)


def torch_reference(layer: Convolution, stride: int = 1, padding: int = 0) -> nn.Conv2d:
    outputs, size, _, inputs = layer.weight.shape
    twin = nn.Conv2d(inputs, outputs, size, stride, padding)
    twin.load_state_dict({"weight": layer.weight.permute(0, 3, 1, 2), "bias": layer.bias})
    return twin


def of_any(modules: Iterable[Any]) -> list[Any]:
    """Modules of which the type checker need not know more."""
    return list(modules)


def channels_of(leaf: Leaf, images: Tensor) -> Tensor:
    """The slow twin of `Images`: every channel of every frame by itself, oldest frame first."""
    frames = images.unbind(1) if leaf.stack > 1 else [images]
    planes = []
    for frame in frames:
        if frame.ndim == 3:
            planes.append(frame)
        else:
            planes += frame.unbind(3 if frame.shape[3] == 3 else 1)
    return torch.stack(planes, dim=1) / 255


@pytest.mark.parametrize("leaf", LAYOUTS.values(), ids=LAYOUTS)
def test_images_of_every_layout_become_channels_first_floats_in_0_to_1(leaf):
    images = random_images(leaf)
    ours = Images(leaf)(images)
    torch.testing.assert_close(ours, channels_of(leaf, images))
    assert ours.shape == (3, Images(leaf).channels, 40, 36)
    assert ours.is_contiguous(memory_format=torch.channels_last)
    assert images.float().mean() > 1  # bytes are not changed in place


@pytest.mark.parametrize("leaf", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize(("kind", "strides"), [(SimpleCNN, (4, 2)), (NatureCNN, (4, 2, 1))])
def test_a_cnn_has_the_layers_of_its_paper(leaf, kind, strides):
    encoder = kind(leaf, init())
    x = channels_of(leaf, random_images(leaf))
    for number, stride in enumerate(strides, start=1):
        x = torch.relu(torch_reference(getattr(encoder, f"conv{number}"), stride)(x))
    x = x.permute(0, 2, 3, 1).flatten(1)  # our last layer takes pixels first, then channels
    expected = torch.relu(x @ encoder.dense.weight.T + encoder.dense.bias)
    torch.testing.assert_close(encoder(random_images(leaf)), expected, atol=1e-5, rtol=1e-4)


def test_a_cnn_on_atari_has_the_parameter_count_of_its_paper():
    # 4 * 32 * 8^2, 32 * 64 * 4^2, 64 * 64 * 3^2 and 64 * 7 * 7 * 512, with a bias for each output.
    assert sum(p.numel() for p in NatureCNN(ATARI, init()).parameters()) == 1_684_128
    # 4 * 16 * 8^2, 16 * 32 * 4^2 and 32 * 9 * 9 * 256.
    assert sum(p.numel() for p in SimpleCNN(ATARI, init()).parameters()) == 676_144


def test_convolutions_are_initialized_as_layers_whose_inputs_are_the_pixels_of_the_kernel():
    generator = torch.Generator().manual_seed(0)
    weight = Convolution(3, 4, 5, Orthogonal(generator)).weight.detach().flatten(1)
    torch.testing.assert_close(weight @ weight.T, 2 * torch.eye(4))  # the gain of ReLU is sqrt(2)
    largest = Convolution(3, 4, 5, Uniform(generator)).weight.abs().max()
    assert 0.9 < largest * (3 * 5 * 5) ** 0.5 <= 1


def test_impala_resnet_has_the_layers_of_the_paper():
    leaf = LAYOUTS["channels last"]
    encoder = ImpalaResNet(leaf, init())
    x = channels_of(leaf, random_images(leaf))
    for section in encoder.sections:
        first, _, *blocks = of_any(section.children())
        x = nn.functional.max_pool2d(torch_reference(first, padding=1)(x), 3, 2, 1)
        for block in blocks:
            inner = torch_reference(block.conv1, padding=1)(torch.relu(x))
            x = x + torch_reference(block.conv2, padding=1)(torch.relu(inner))
    flat = torch.relu(x).permute(0, 2, 3, 1).flatten(1)
    expected = torch.relu(flat @ encoder.dense.weight.T + encoder.dense.bias)
    torch.testing.assert_close(encoder(random_images(leaf)), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["simple_cnn", "nature_cnn", "impala_resnet"])
def test_each_image_has_its_own_encoder_and_features_are_concatenated(name):
    left, right = Leaf("observation/left", (36, 36), "uint8"), Leaf("observation/right", (36, 40, 3), "uint8")
    both = Encoders((left, right), name, init())
    encoded = {leaf.name: random_images(leaf) for leaf in (left, right)}
    features = both(encoded)
    assert features.shape == (3, both.features)
    for i, leaf in enumerate((left, right)):
        own = both.of_leaf[i](encoded[leaf.name])
        torch.testing.assert_close(features[:, i * own.shape[1] : (i + 1) * own.shape[1]], own)


def test_images_too_small_for_a_cnn_are_refused_with_the_remedy():
    with pytest.raises(ConfigError, match=r"19 x 60 pixels, but simple_cnn needs 20 x 20 at least"):
        SimpleCNN(Leaf("observation", (19, 60, 3), "uint8"), init())
    SimpleCNN(Leaf("observation", (20, 20), "uint8"), init())
    with pytest.raises(ConfigError, match=r"35 x 60 pixels.*36 x 36.*--set encoder=impala_resnet"):
        NatureCNN(Leaf("observation", (35, 60, 3), "uint8"), init())
    with pytest.raises(ConfigError, match=r"pass --set encoder=impala_resnet$"):
        NatureCNN(Leaf("observation", (35, 60), "uint8", stack=2), init())  # flat takes no stacks
    NatureCNN(Leaf("observation", (36, 36), "uint8"), init())


@pytest.mark.parametrize(
    ("leaf", "image"),
    [
        (Leaf("o", (16, 16), "uint8"), True),
        (Leaf("o", (15, 60), "uint8"), False),
        (Leaf("o", (7, 7, 3), "uint8"), False),
        (Leaf("o", (84, 84), "float32"), False),
        (Leaf("o", (128,), "uint8"), False),
        (Leaf("o", (3, 64, 64), "uint8"), True),
        (Leaf("o", (16, 16), "uint8", choices=(2,) * 256), False),
    ],
)
def test_uint8_arrays_with_two_dimensions_are_images(leaf, image):
    assert leaf.is_image == image
