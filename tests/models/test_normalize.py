from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.thorough import examples

from offbeat.models.normalize import EPSILON, RunningStatistics

seeds = st.integers(0, 2**32 - 1)
cuts = st.lists(st.integers(0, 40), max_size=6)


def statistics_of(rows: np.ndarray, cuts: list[int]) -> RunningStatistics:
    statistics = RunningStatistics(rows.shape[1])
    for part in np.split(rows, sorted(cuts)):
        statistics.update(part)
    return statistics


@examples(150)
@given(seeds, cuts, st.sampled_from([0.0, 1.0, -1e3, 1e8]), st.sampled_from([1e-3, 1.0, 1e3]))
def test_updates_in_any_split_give_the_mean_and_variance_of_all_rows(seed, cuts, offset, scale):
    rows = np.random.default_rng(seed).normal(scale=scale, size=(40, 3)) + offset
    statistics = statistics_of(rows, cuts)
    spread = rows.std(axis=0)
    resolution = np.abs(rows).max() * 1e-15
    np.testing.assert_allclose(statistics.mean, rows.mean(axis=0), atol=1e-9 * scale + resolution, rtol=1e-12)
    np.testing.assert_allclose(np.sqrt(statistics.variance), spread, rtol=1e-9, atol=10 * resolution)
    assert statistics.count == 40


def test_float32_rows_far_from_zero_keep_their_variance():
    rows = (np.random.default_rng(0).integers(0, 8, (5000, 1)) + 1e6).astype(np.float32)
    np.testing.assert_allclose(
        statistics_of(rows, [100, 2000]).variance, rows.astype(np.float64).var(axis=0), rtol=1e-9
    )


def test_normalization_is_the_identity_before_the_first_row():
    statistics = RunningStatistics(2)
    statistics.update(np.empty((0, 2), np.float32))
    mean, scale = statistics.published()
    assert mean.tolist() == [0, 0]
    np.testing.assert_allclose(scale, 1)


def test_published_statistics_normalize_rows_to_mean_0_and_standard_deviation_1():
    rows = np.random.default_rng(0).normal(5, 3, (1000, 2)).astype(np.float32)
    mean, scale = statistics_of(rows, []).published()
    assert mean.dtype == scale.dtype == np.dtype(np.float32)
    normalized = (rows - mean) * scale
    np.testing.assert_allclose(normalized.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(normalized.std(axis=0), 1, atol=1e-5)


def test_a_constant_observation_stays_finite():
    _, scale = statistics_of(np.full((10, 1), 7.0), []).published()
    assert scale[0] == pytest.approx(EPSILON**-0.5)


def test_restored_statistics_continue_equally_and_share_no_memory():
    random = np.random.default_rng(0)
    statistics, other = statistics_of(random.normal(size=(40, 3)), [7]), RunningStatistics(3)
    other.restore(statistics.state())
    more = random.normal(size=(9, 3))
    before = statistics.state()
    other.update(more)
    np.testing.assert_array_equal(statistics.state()["mean"], before["mean"])
    statistics.update(more)
    for name, value in statistics.state().items():
        np.testing.assert_array_equal(value, other.state()[name])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_rows_do_not_change_the_statistics(bad):
    rows = np.ones((4, 2))
    statistics = statistics_of(np.random.default_rng(0).normal(size=(40, 2)), [])
    before = statistics.state()
    rows[2, 1] = bad
    statistics.update(rows)
    for name, value in statistics.state().items():
        np.testing.assert_array_equal(value, before[name])
