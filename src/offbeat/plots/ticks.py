"""The numbers at the axes of plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from offbeat.metrics.text import compact

if TYPE_CHECKING:
    from matplotlib.axis import Axis


def show_compact_numbers(axis: Axis) -> None:
    """Write numbers as 500, 12.5k or 1.5M, with as many digits as the distance of two ticks needs."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(
        FuncFormatter(lambda value, _: compact(value, digits_of(axis.get_majorticklocs().tolist())))
    )


def show_plain_numbers_on_log_scale(axis: Axis) -> None:
    """Write numbers as 0.0003 or 80 on a logarithmic scale: within a decade too, as far as there is room."""
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):
        def __call__(self, value: float, place: int | None = None) -> str:
            return f"{value:g}" if super().__call__(value, place) else ""

    axis.set_major_formatter(Plain())
    axis.set_minor_formatter(Plain(minor_thresholds=(1.0, 0.4)))


def digits_of(places: Sequence[float]) -> int:
    """Return the significant digits that distinguish ticks at these places, which rise: at least 3."""
    steps = [second - first for first, second in pairwise(places) if second > first]
    largest = max(map(abs, places), default=0.0)
    return max(3, 2 + math.ceil(math.log10(largest / min(steps)))) if steps and largest else 3
