"""Images as policies get them: smaller, by the mean of areas, and grey.

    leaf = reduced_leaf(leaf, (84, 84), grayscale=True)     # its `env_shape` is the shape of the env's images
    small = reduced(images, leaf)

All is computed in whole numbers, so every runtime, every machine and an exported file get the same bytes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from offbeat.core.types import Array, Leaf

GREY_WEIGHTS = (299, 587, 114)
"""Shares of red, green and blue in a grey value, in thousandths (ITU-R BT.601)."""


def reduced_leaf(leaf: Leaf, size: tuple[int, int] | None, *, grayscale: bool) -> Leaf:
    """Return the leaf of images for a policy.

    Args:
        leaf: images as the env returns them.
        size: height and width in pixels; None: those of the env.
        grayscale: whether images of three colours become grey. Other images stay as they are.
    """
    sides = size or leaf.sides
    channels = leaf.size // (leaf.sides[0] * leaf.sides[1])
    if len(leaf.shape) == 2 or (grayscale and channels == 3):
        shape: tuple[int, ...] = sides
    else:
        shape = (*sides, channels) if leaf.channels_last else (channels, *sides)
    return leaf if shape == leaf.shape else replace(leaf, shape=shape, env_shape=leaf.shape)


def reduced(images: Array, leaf: Leaf) -> Array:
    """Return images [..., *leaf.shape] of bytes for images [..., *leaf.env_shape] of bytes.

    A leaf without `env_shape` returns them unchanged.
    """
    if not leaf.env_shape:
        return images
    given = leaf.as_given
    channel = -1 if given.channels_last else -3
    if becomes_grey(leaf):
        images, row = _grey(images, channel), -2
    else:
        row = -3 if given.channels_last else -2
    (height, width), (new_height, new_width) = given.sides, leaf.sides
    if (height, width) == (new_height, new_width):
        return images
    sums = _weighted_sums(_weighted_sums(images, row, new_height), row + 1, new_width)
    pixels = height * width
    return ((sums + pixels // 2) // pixels).astype(np.uint8)


def becomes_grey(leaf: Leaf) -> bool:
    """Whether the env's images have colours, and those of the leaf do not."""
    return len(leaf.env_shape) > len(leaf.shape)


def area_weights(count: int, size: int) -> NDArray[np.int64]:
    """Return the weights of `count` pixels in each of `size` areas of equal length, [size, count]; each sum is `count`.

    A pixel that lies in two areas counts in both, by its share.
    """
    pixels, areas = np.arange(count) * size, np.arange(size)[:, None] * count
    overlap = np.minimum(pixels + size, areas + count) - np.maximum(pixels, areas)
    weights: NDArray[np.int64] = np.maximum(overlap, 0)
    return weights


def _grey(images: Array, channel: int) -> Array:
    """Return images without the channel axis, whose number counts from the end."""
    red, green, blue = (np.take(images, index, axis=channel) for index in range(3))
    shares = (np.uint32(share) for share in GREY_WEIGHTS)
    total = sum(part * share for part, share in zip((red, green, blue), shares, strict=True))
    return ((total + 500) // 1000).astype(np.uint8)  # type: ignore[no-any-return]


def _weighted_sums(values: Array, axis: int, size: int) -> NDArray[np.int64]:
    """Return the sums along an axis with `area_weights`, as differences of cumulative sums."""
    values = np.moveaxis(values, axis, 0)
    count = len(values)
    sums = np.zeros((count + 1, *values.shape[1:]), np.int64)
    np.cumsum(values, axis=0, dtype=np.int64, out=sums[1:])
    whole, part = np.divmod(np.arange(size + 1) * count, size)
    until = sums[whole] * size
    until += part.reshape(-1, *[1] * (values.ndim - 1)) * values[np.minimum(whole, count - 1)].astype(np.int64)
    return np.moveaxis(np.diff(until, axis=0), 0, axis)
