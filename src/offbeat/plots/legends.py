"""Legends below the axes of a picture, for which the picture grows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offbeat.plots.figures import MOST_NAMED, line_style, wrapped

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_HANDLE_LENGTH = 4.5
"""Length of a line in a legend, in font sizes: the longest pattern of dashes needs as much."""
_LONG = 45
"""Letters of a name for which the legend has a single column."""
_ROW = 0.2
"""Height of a row, in inches."""


@dataclass(frozen=True)
class Legend:
    """The entries of a legend, whose texts have the line breaks that they need."""

    handles: Sequence[Any]
    columns: int

    @property
    def height(self) -> float:
        """What the entries add to the height of a picture, in inches."""
        breaks = sum(str(handle.get_label()).count("\n") for handle in self.handles)
        return _ROW * (math.ceil(len(self.handles) / self.columns) + breaks)

    def draw(self, figure: Figure) -> None:
        """Draw the entries below the axes."""
        if self.handles:
            figure.legend(
                handles=list(self.handles), loc="outside lower center", ncols=self.columns, frameon=False, fontsize=9,
                handlelength=_HANDLE_LENGTH,
            )  # fmt: skip


def legend_of(handles: Sequence[Any], width: float) -> Legend:
    """Return a legend of one or two columns, and break the lines of its texts; `width`: of the picture, in inches."""
    columns = 1 if max((len(handle.get_label()) for handle in handles), default=0) > _LONG else 2
    for handle in handles:
        handle.set_label(wrapped(handle.get_label(), (width - 1.0) / columns))
    return Legend(handles, columns)


def curve_handles(names: Sequence[str]) -> list[Line2D]:
    """Return an entry for each of the first `MOST_NAMED` curves, if it has a name, and one for all others."""
    handles = [curve_handle(name, line_style(index)) for index, name in enumerate(names[:MOST_NAMED]) if name]
    more = len(names) - MOST_NAMED
    return [*handles, curve_handle(f"{more} more", line_style(MOST_NAMED))] if more > 0 else handles


def curve_handle(name: str, style: Mapping[str, Any]) -> Line2D:
    """Return an entry for a curve."""
    from matplotlib.lines import Line2D

    return Line2D([], [], linewidth=2.0, label=name, **style)
