"""What is drawn in a figure, and in a picture that was made of one, which takes ten times as long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image


def texts(figure: Figure) -> str:
    """Return the titles, labels and entries of a figure, one a line."""
    return "\n".join(text.get_text() for text in figure.findobj(Text) if isinstance(text, Text))


def legend_is_whole(figure: Figure) -> bool:
    """Whether the legend of a figure is inside of the picture and covers no axes with their labels."""
    FigureCanvasAgg(figure).draw()
    box = figure.legends[0].get_window_extent()
    inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    return inside and not any(other is not None and box.overlaps(other) for other in boxes)


def colors(drawn: Figure | Axes) -> set[Any]:
    """Return the colours of the curves."""
    every = drawn.axes if isinstance(drawn, Figure) else [drawn]
    return {line.get_color() for axes in every for line in axes.lines}


def ink(picture: Path, pixels: int = 50) -> set[Any]:
    """Return the colours of a picture that fill more than so many pixels; the edges of letters have up to some 300."""
    found = Image.open(picture).convert("RGB").getcolors(1 << 24) or []
    return {color for count, color in found if count > pixels}
