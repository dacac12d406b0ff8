"""A legend shows the look of each curve that it names, and covers nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from offbeat.plots.figures import COLORS, MOST_NAMED, line_style
from offbeat.plots.legends import curve_handles, legend_of


def lines_of(figure: Figure) -> list[tuple[int, ...]]:
    """Return the line of each entry of the legend, as the lengths of its dashes in pixels."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[::-1, :, :3].astype(int).sum(axis=2)
    return [dashes(pixels, handle.get_window_extent()) for handle in figure.legends[0].legend_handles if handle]


def dashes(pixels: Any, box: Any) -> tuple[int, ...]:
    """Return the lengths of the dashes in the middle of a box; no color is as light as the background."""
    row = pixels[round((box.y0 + box.y1) / 2), int(box.x0) - 2 : int(box.x1) + 2] < 3 * 250
    edges = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(int), [0]])))
    return tuple((edges[1::2] - edges[::2]).tolist())


def test_each_curve_that_a_legend_names_has_its_own_look():
    looks = [str(line_style(index)) for index in range(MOST_NAMED + 1)]
    assert len(set(looks)) == MOST_NAMED + 1
    assert looks[MOST_NAMED] == str(line_style(MOST_NAMED + 30))


def test_a_legend_shows_the_dashes_of_each_curve():
    figure = Figure(figsize=(8, 12), dpi=150, layout="constrained")
    legend_of(curve_handles([f"curve {index}" for index in range(MOST_NAMED)]), 8).draw(figure)
    of_one_color = lines_of(figure)[:: len(COLORS)]
    assert len(of_one_color[0]) == 1
    assert len(set(of_one_color)) == len(of_one_color) == MOST_NAMED // len(COLORS)
    for drawn in of_one_color[1:]:
        assert len(drawn) > 1
