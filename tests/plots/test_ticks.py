"""The numbers at the axes of plots."""

from __future__ import annotations

import pytest

from offbeat.metrics.text import compact
from offbeat.plots.ticks import digits_of, show_compact_numbers, show_plain_numbers_on_log_scale


@pytest.mark.parametrize(
    ("places", "shown"),
    [
        ([1.4, 1.425, 1.45], ["1.4", "1.425", "1.45"]),
        ([0, 200_000, 1_000_000], ["0", "200k", "1M"]),
        ([1_000_000, 1_002_500], ["1M", "1.0025M"]),
        ([-500, 0, 500], ["-500", "0", "500"]),
        ([], []),
        ([3], ["3"]),
    ],
)
def test_ticks_have_the_digits_that_tell_them_apart(places: list[float], shown: list[str]) -> None:
    assert [compact(place, digits_of(places)) for place in places] == shown


def test_an_axis_shows_the_digits_of_its_ticks() -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    axes.set_yticks([1.4, 1.425, 1.45])
    show_compact_numbers(axes.yaxis)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1.4", "1.425", "1.45"]


@pytest.mark.parametrize(
    ("numbers", "shown"), [((64, 128), {"70", "80", "90", "100"}), ((1e-5, 1e-3), {"1e-05", "0.0001", "0.001"})]
)
def test_a_logarithmic_axis_shows_plain_numbers(numbers: tuple[float, float], shown: set[str]) -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    axes.plot(numbers)
    axes.set_yscale("log")
    show_plain_numbers_on_log_scale(axes.yaxis)
    labels = {label.get_text() for label in [*axes.get_yticklabels(), *axes.get_yticklabels(minor=True)]} - {""}
    assert shown <= labels
    assert not any("10^" in label for label in labels)
