from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.support.goodness_of_fit import chi_square
from tests.support.models import random_mask
from tests.support.thorough import examples

from offbeat.core.choices import allows_each, sample_choices, write_one_hot
from offbeat.core.seeding import stream

seeds = st.integers(0, 2**32 - 1)
several = st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple)


@examples(60)
@given(several, seeds, st.integers(0, 5), st.sampled_from([np.uint8, np.int16, np.int64]))
def test_one_hot_has_a_1_at_each_choice_and_0_elsewhere(choices, seed, rows, dtype):
    numbers = np.random.default_rng(seed).integers(0, choices, (rows, len(choices))).astype(dtype)
    out = np.full((rows, sum(choices)), 7, np.float32)
    write_one_hot(numbers, choices, out)
    expected = [[float(i == n) for n, count in zip(row, choices, strict=True) for i in range(count)] for row in numbers]
    np.testing.assert_array_equal(out, np.reshape(expected, out.shape))


@examples(60)
@given(several, seeds, st.integers(1, 30))
def test_random_choices_are_allowed_by_the_mask(choices, seed, rows):
    random = np.random.default_rng(seed)
    mask = random_mask(choices, rows, random)
    drawn = sample_choices(choices, rows, random, mask)
    assert drawn.shape == (rows, len(choices))
    for component, first in enumerate(np.cumsum((0, *choices[:-1]))):
        assert mask[np.arange(rows), first + drawn[:, component]].all()


def test_random_choices_are_uniform_and_independent_over_components():
    mask = np.tile([False, True, True, False, True, True, False, True], (20_000, 1))
    drawn = sample_choices((5, 3), 20_000, stream(0, "test"), mask)
    joint = np.bincount(drawn[:, 0] * 3 + drawn[:, 1], minlength=15).reshape(5, 3)
    allowed = joint[[1, 2, 4]][:, [0, 2]]
    assert allowed.sum() == 20_000
    assert chi_square(allowed.ravel()) > 0.001


def test_allows_each_detects_rows_without_an_allowed_choice():
    mask = np.array([[1, 0, 0, 1, 0], [0, 0, 1, 1, 1], [0, 1, 0, 0, 0]], np.bool_)
    assert allows_each(mask, (2, 3)).tolist() == [[True, True], [False, True], [True, False]]
