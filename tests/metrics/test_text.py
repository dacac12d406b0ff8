from __future__ import annotations

import math

import pytest

from offbeat.metrics.text import compact, duration, percentage, precise, rounded


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (0.83, "0.83"), (950, "950"), (12_345, "12.3k"), (999_999, "1M"), (1_500_000, "1.5M"),
        (2e9, "2G"), (3e13, "30T"), (9.999e14, "1e+15"), (-2e18, "-2e+18"), (-12_345, "-12.3k"), (-0.0, "0"),
        (None, "-"), (math.nan, "-"), (math.inf, "-"),
    ],
)  # fmt: skip
def test_numbers_are_formatted_with_three_digits_and_a_unit(value, text):
    assert compact(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.5, "0.50"), (-0.001, "0.00"), (213.44, "213.4"), (-5784.2, "-5,784"), (None, "-")]
)
def test_returns_are_rounded_to_a_readable_precision(value, text):
    assert rounded(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0123, "0.0123"), (-0.00456, "-0.00456"), (4.406, "4.41"), (9.996, "10.0"), (190.52, "190.5"),
        (-5784.25, "-5784.2"), (0.0, "0.0"), (math.nan, "nan"), (math.inf, "inf"),
    ],
)  # fmt: skip
def test_returns_of_evaluations_have_at_least_three_significant_digits(value, text):
    assert precise(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.714, "71%"), (1.0, "100%"), (0.0, "0%"), (None, "-")])
def test_fractions_are_formatted_as_percentages(value, text):
    assert percentage(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (59.6, "1:00"), (725, "12:05"), (11_220, "3:07:00"), (184_020, "2d 03:07:00"), (None, "-")],
)
def test_durations_are_formatted_as_hours_minutes_and_seconds(seconds, text):
    assert duration(seconds) == text
