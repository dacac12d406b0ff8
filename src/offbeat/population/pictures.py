"""Pictures of a population: its family tree with scores, the values over the generations, the best and the median."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from offbeat.core.messages import once
from offbeat.plots.figures import line_style, write_figure
from offbeat.plots.legends import curve_handles, legend_of
from offbeat.plots.ticks import show_compact_numbers, show_plain_numbers_on_log_scale
from offbeat.population.tree import Family, Node

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

_BEST, _MEDIAN, _GREY = "#D55E00", "#0072B2", "#999999"
_LARGEST = 40.0
"""Largest width and height of the family tree, in inches: a larger picture would take more and more memory."""
_NARROWEST = 2.5
"""Smallest width of the family tree, in inches, at which its title is not cut."""
_MARKED: dict[str, Any] = {"marker": "o", "markersize": 4}


def draw_all(family: Family, folder: Path, notify: Callable[[str], None], failed: Collection[int] = ()) -> list[Path]:
    """Draw the pictures of all generations so far, and return their paths.

    Args:
        family: the members; the ledger has at least one score.
        folder: where the pictures are written.
        notify: called with a message that names the characters that the font lacks.
        failed: members that have failed and have not finished, which are not waited for.
    """
    figures = {
        "family-tree.png": _tree(family, failed),
        "values.png": _values(family),
        "scores.png": _scores(family, failed),
    }
    notify = once(notify)
    for name, figure in figures.items():
        write_figure(figure, folder / name, notify)
    return [folder / name for name in figures]


def _figure(rows: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure((width, height), dpi=120, layout="constrained")
    axes = figure.subplots(rows, 1, squeeze=False)[:, 0].tolist()
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
        each.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes[-1].set_xlabel("generation")
    return figure, axes


def _by_member(family: Family) -> dict[int, list[int]]:
    """Return the generations with a score, by member."""
    members: dict[int, list[int]] = {member: [] for member in range(family.settings.members)}
    for member, generation in sorted(family.ledger.scores):
        members[member].append(generation)
    return members


# --- the family tree ----------------------------------------------------------------------------------------


def _tree(family: Family, failed: Collection[int]) -> Figure:
    """Draw one row for each member; a line leads from each generation to the one whose weights it continues."""
    nodes = sorted(family.ledger.scores)
    last = max(generation for _, generation in nodes)
    members = family.settings.members
    width, height = 0.7 * (last + 1), 0.4 * members
    figure, (axes,) = _figure(1, 3 + min(max(width, _NARROWEST), _LARGEST), 1.5 + min(height, _LARGEST))
    axes.add_collection(_connections(family, nodes, _ancestors(family, last, failed)))
    scores = [family.ledger.scores[node].score for node in nodes]
    size = 70 * min(1.0, _LARGEST / width, _LARGEST / height) ** 2
    points = axes.scatter(
        [g for _, g in nodes], [m for m, _ in nodes], c=scores, s=size, zorder=2, edgecolors="white",
        linewidths=min(1.0, size / 20),
    )  # fmt: skip
    bar = figure.colorbar(points, ax=axes, label=family.settings.objective)
    show_compact_numbers(bar.ax.yaxis)
    axes.set(ylabel="member", title="Family tree; the winner's ancestors are orange")
    axes.set_yticks(range(0, members, math.ceil(height / _LARGEST)))
    axes.invert_yaxis()
    return figure


def _connections(family: Family, nodes: Sequence[Node], ancestors: Collection[Node]) -> LineCollection:
    """Return the lines from each node to its parent, those between ancestors of the winner on top."""
    from matplotlib.collections import LineCollection

    parents = {node: parent for node in nodes if (parent := family.parent(node)) is not None}
    ends = sorted(parents, key=ancestors.__contains__)
    is_ancestor = [node in ancestors for node in ends]
    return LineCollection(
        [[parents[node][::-1], node[::-1]] for node in ends],
        colors=[_BEST if each else _GREY for each in is_ancestor],
        linewidths=[2.5 if each else 1 for each in is_ancestor],
        zorder=1,
    )


def _ancestors(family: Family, generation: int, failed: Collection[int]) -> set[Node]:
    """Return the winner of a generation and its ancestors; nothing if a score is missing."""
    winner = family.winner(generation, failed)
    return set() if winner is None else set(family.lineage((winner, generation)))


# --- values and scores --------------------------------------------------------------------------------------


def _values(family: Family) -> Figure:
    """Draw each key that mutates in a panel, with a line for each member."""
    genes, members = family.genome.genes, family.settings.members
    legend = legend_of(curve_handles([f"member {member}" for member in range(members)]), 8)
    figure, panels = _figure(len(genes), 8, 1 + 2.2 * len(genes) + legend.height)
    for axes, key in zip(panels, sorted(genes), strict=True):
        for member, generations in _by_member(family).items():
            numbers = [family.values(member, generation)[key] for generation in generations]
            shown = [1 - number for number in numbers] if genes[key].complement else numbers
            style = {**line_style(member), **_MARKED, "markersize": 4 + 2 * (members - member) / members}
            axes.plot(generations, shown, linewidth=1.2, **style)
        axes.set_yscale("log")
        show_plain_numbers_on_log_scale(axes.yaxis)
        axes.set_title(f"1 - {key}" if genes[key].complement else key, fontsize=10)  # too long for a label of the axis
    figure.suptitle("Values of each member")
    legend.draw(figure)
    return figure


def _scores(family: Family, failed: Collection[int]) -> Figure:
    """Draw the score of each member, and the best and the median of each generation that has ended for all."""
    figure, (axes,) = _figure(1, 7, 4)
    for member, generations in _by_member(family).items():
        own = [family.ledger.scores[member, generation].score for generation in generations]
        style: dict[str, Any] = {"color": _GREY, "linewidth": 0.8, "alpha": 0.7, "marker": ".", "markersize": 3}
        axes.plot(generations, own, label="" if member else "each member", **style)
    whole = [
        (generation, [score for score in scores if score is not None])
        for generation in sorted({generation for _, generation in family.ledger.scores})
        if (scores := family.ledger.scores_of(generation, family.settings.members, failed)) is not None
    ]
    best = max if family.settings.maximize else min
    axes.plot([g for g, _ in whole], [best(s) for _, s in whole], color=_BEST, label="best", **_MARKED)
    axes.plot([g for g, _ in whole], [median(s) for _, s in whole], color=_MEDIAN, label="median", **_MARKED)
    axes.set(ylabel=family.settings.objective, title="Scores of the members after each generation")
    show_compact_numbers(axes.yaxis)
    axes.legend(frameon=False)
    return figure
