from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference import statistics as slow

from offbeat.core.errors import ConfigError
from offbeat.plots.statistics import FEWEST_FOR_INTERVAL, band_of, iqm

scores = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


@given(scores)
def test_the_iqm_equals_that_of_a_slow_reference(values):
    assert float(iqm(values)) == pytest.approx(slow.iqm(values), rel=1e-9, abs=1e-6)


def test_the_iqm_along_an_axis_is_computed_for_each_column():
    values = np.random.default_rng(0).normal(size=(7, 5))
    assert iqm(values, axis=0) == pytest.approx([slow.iqm(list(column)) for column in values.T])


def test_the_iqm_without_an_axis_pools_all_scores():
    values = np.random.default_rng(0).normal(size=(6, 5))
    assert float(iqm(values)) == pytest.approx(slow.iqm(list(values.ravel())))


def test_one_outlier_among_four_does_not_move_the_iqm():
    assert float(iqm([1.0, 2.0, 3.0, 1e9])) == 2.5


def test_the_iqm_of_no_scores_is_refused():
    with pytest.raises(ConfigError, match="at least 1 score"):
        iqm([])


def test_the_bootstrap_band_agrees_with_a_slow_reference():
    curves = np.random.default_rng(1).normal(size=(8, 3)) + np.array([0.0, 10.0, 100.0])
    low, high = band_of(curves)
    slow_low, slow_high = slow.bootstrap_band(curves.tolist(), 0.95, 4000, seed=2)
    assert low == pytest.approx(slow_low, abs=0.12)
    assert high == pytest.approx(slow_high, abs=0.12)


@given(st.lists(st.floats(-1e6, 1e6), min_size=FEWEST_FOR_INTERVAL, max_size=5))
@settings(max_examples=20)
def test_the_band_of_four_or_five_runs_is_that_of_all_resamplings(values):
    low, high = band_of([[value] for value in values])
    assert (low[0], high[0]) == pytest.approx(slow.exact_interval(values, 0.95), rel=1e-9, abs=1e-6)


def test_equal_runs_have_a_band_of_zero_width():
    low, high = band_of([[1.0, 2.0]] * 5)
    assert low.tolist() == high.tolist() == [1.0, 2.0]


def test_the_bootstrap_band_is_the_same_in_each_call():
    curves = np.random.default_rng(3).normal(size=(10, 4))
    assert np.array_equal(band_of(curves), band_of(curves))


def test_empty_curves_have_an_empty_band():
    low, high = band_of(np.empty((4, 0)))
    assert low.shape == high.shape == (0,)
