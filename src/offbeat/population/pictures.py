"""Pictures of a population: its family tree with scores, the values over the generations, the best and the median."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from offbeat.plots.figures import line_style, write_figure
from offbeat.population.tree import Family, Node

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BEST, _MEDIAN, _GREY = "#D55E00", "#0072B2", "#999999"
_MARKED: dict[str, Any] = {"marker": "o", "markersize": 4}


def draw_all(family: Family, folder: Path) -> list[Path]:
    """Draw the pictures of all generations so far, and return their paths."""
    pictures = {"family-tree.png": _tree, "values.png": _values, "scores.png": _scores}
    paths = []
    for name, draw in pictures.items():
        write_figure(draw(family), folder / name)
        paths.append(folder / name)
    return paths


def _figure(rows: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure((width, height), dpi=120, layout="constrained")
    axes = figure.subplots(rows, 1, squeeze=False)[:, 0].tolist()
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
        each.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[-1].set_xlabel("generation")
    return figure, axes


def _by_member(family: Family) -> dict[int, list[int]]:
    """Return the generations with a score, by member."""
    members: dict[int, list[int]] = {member: [] for member in range(family.settings.members)}
    for member, generation in sorted(family.ledger.scores):
        members[member].append(generation)
    return members


# --- the family tree ----------------------------------------------------------------------------------------


def _tree(family: Family) -> Figure:
    """Draw one row for each member; a line leads from each generation to the one whose weights it continues."""
    nodes = sorted(family.ledger.scores)
    last = max(generation for _, generation in nodes)
    figure, (axes,) = _figure(1, 3 + 0.7 * (last + 1), 1.5 + 0.4 * family.settings.members)
    ancestors = _ancestors(family, last)
    for node in nodes:
        if (parent := family.parent(node)) is not None:
            is_ancestor = node in ancestors
            style: dict[str, Any] = {"color": _BEST if is_ancestor else _GREY, "linewidth": 2.5 if is_ancestor else 1}
            axes.plot([parent[1], node[1]], [parent[0], node[0]], zorder=1, **style)
    scores = [family.ledger.scores[node].score for node in nodes]
    points = axes.scatter([g for _, g in nodes], [m for m, _ in nodes], c=scores, s=70, zorder=2, edgecolors="white")
    figure.colorbar(points, ax=axes, label=family.settings.objective)
    axes.set(ylabel="member", title="Family tree; the winner's ancestors are orange")
    axes.set_yticks(range(family.settings.members))
    axes.invert_yaxis()
    return figure


def _ancestors(family: Family, generation: int) -> set[Node]:
    """Return the winner of a generation and its ancestors; nothing if a score is missing."""
    winner = family.winner(generation)
    return set() if winner is None else set(family.lineage((winner, generation)))


# --- values and scores --------------------------------------------------------------------------------------


def _values(family: Family) -> Figure:
    """Draw each key that mutates in a panel, with a line for each member."""
    genes, members = family.genome.genes, family.settings.members
    figure, panels = _figure(len(genes), 8, 1 + 2.2 * len(genes))
    for axes, key in zip(panels, sorted(genes), strict=True):
        for member, generations in _by_member(family).items():
            numbers = [family.values(member, generation)[key] for generation in generations]
            shown = [1 - number for number in numbers] if genes[key].complement else numbers
            style = {**line_style(member), **_MARKED, "markersize": 4 + 2 * (members - member) / members}
            axes.plot(generations, shown, label=f"member {member}", linewidth=1.2, **style)
        axes.set_yscale("log")
        axes.set_title(f"1 - {key}" if genes[key].complement else key, fontsize=10)  # too long for a label of the axis
    figure.suptitle("Values of each member")
    if members <= 24:
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8, frameon=False)
    return figure


def _scores(family: Family) -> Figure:
    """Draw the score of each member, and the best and the median of each generation that all have finished."""
    figure, (axes,) = _figure(1, 7, 4)
    for member, generations in _by_member(family).items():
        own = [family.ledger.scores[member, generation].score for generation in generations]
        axes.plot(generations, own, color=_GREY, linewidth=0.8, alpha=0.7, label="" if member else "each member")
    whole: list[tuple[int, list[float]]] = []
    while (scores := family.ledger.scores_of(len(whole), family.settings.members)) is not None:
        whole.append((len(whole), scores))
    best = max if family.settings.maximize else min
    axes.plot([g for g, _ in whole], [best(s) for _, s in whole], color=_BEST, label="best", **_MARKED)
    axes.plot([g for g, _ in whole], [median(s) for _, s in whole], color=_MEDIAN, label="median", **_MARKED)
    axes.set(ylabel=family.settings.objective, title="Scores of the members after each generation")
    axes.legend(frameon=False)
    return figure
