"""Smaller and grey images: the mean of areas, in whole numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support.thorough import examples

from offbeat.core.images import area_weights, reduced, reduced_leaf
from offbeat.core.types import Leaf
from offbeat.exporting.exported_policy import _ReducedImages

RANDOM = np.random.default_rng(0)


def leaf_of(*shape: int) -> Leaf:
    return Leaf("observation", shape, "uint8")


def mean_of_area(image, size, row, column) -> Fraction:
    """Return the mean over one area of a grey image, pixel by pixel, in fractions."""
    (height, width), total = image.shape, Fraction(0)
    top, left = Fraction(row * height, size[0]), Fraction(column * width, size[1])
    bottom, right = top + Fraction(height, size[0]), left + Fraction(width, size[1])
    for y in range(height):
        for x in range(width):
            tall = min(bottom, Fraction(y + 1)) - max(top, Fraction(y))
            wide = min(right, Fraction(x + 1)) - max(left, Fraction(x))
            total += max(tall, Fraction(0)) * max(wide, Fraction(0)) * int(image[y, x])
    return total / ((bottom - top) * (right - left))


@examples(20)
@given(st.tuples(st.integers(16, 24), st.integers(16, 24)), st.tuples(st.integers(16, 20), st.integers(16, 20)))
def test_a_pixel_is_the_rounded_mean_of_the_area_that_it_covers(sides, size):
    image = RANDOM.integers(0, 256, sides).astype(np.uint8)
    small = reduced(image, reduced_leaf(leaf_of(*sides), size, grayscale=False))
    assert small.shape == size
    for row, column in [(0, 0), (size[0] - 1, size[1] - 1), (7, 9)]:
        assert small[row, column] == int(mean_of_area(image, size, row, column) + Fraction(1, 2))


def test_the_weights_of_each_area_have_the_same_sum():
    assert (area_weights(97, 84).sum(axis=1) == 97).all()
    assert (area_weights(97, 84).sum(axis=0) == 84).all()


@pytest.mark.parametrize("colour", [0, 1, 2])
def test_a_grey_value_is_the_weighted_mean_of_the_colours(colour):
    image = np.zeros((16, 16, 3), np.uint8)
    image[..., colour] = 200
    assert (reduced(image, reduced_leaf(leaf_of(16, 16, 3), None, grayscale=True)) == [60, 117, 23][colour]).all()


@pytest.mark.parametrize(
    ("shape", "size", "grayscale", "small"),
    [
        ((48, 64, 3), (24, 32), False, (24, 32, 3)),
        ((48, 64, 3), (24, 32), True, (24, 32)),
        ((3, 48, 64), (20, 30), False, (3, 20, 30)),
        ((3, 48, 64), (20, 30), True, (20, 30)),
        ((48, 64, 4), (20, 30), True, (20, 30, 4)),
        ((48, 64, 1), None, True, (48, 64, 1)),
        ((48, 64), (48, 64), True, (48, 64)),
    ],
)
def test_images_of_any_layout_are_reduced_alike_in_batches_and_in_an_exported_file(shape, size, grayscale, small):
    leaf = reduced_leaf(leaf_of(*shape), size, grayscale=grayscale)
    images = RANDOM.integers(0, 256, (2, 3, *shape)).astype(np.uint8)
    batch = reduced(images, leaf)
    assert (leaf.shape, leaf.as_given.shape, batch.shape) == (small, shape, (2, 3, *small))
    np.testing.assert_array_equal(batch[1, 2], reduced(images[1, 2], leaf))
    if leaf.env_shape:
        np.testing.assert_array_equal(batch, _ReducedImages(leaf)(torch.from_numpy(images)).numpy())
