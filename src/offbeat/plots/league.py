"""Pictures of a league or a match: win rates between players, and ratings over env steps."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offbeat.core.messages import ignore
from offbeat.league.payoffs import Payoffs
from offbeat.league.ratings import Ratings
from offbeat.metrics.sinks import metrics_from_end
from offbeat.metrics.text import compact
from offbeat.plots.curves import draw_runs
from offbeat.plots.figures import COLORS, TITLE, line_style, literal, save_figure, show_grid
from offbeat.plots.legends import curve_handles, legend_of
from offbeat.plots.runs import ELO, XAxis
from offbeat.plots.ticks import show_compact_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

MOST_LABELED = 40
"""Number of players up to which each field has its numbers."""
_ELO = re.compile(r"(?:policies/[^/]+/)?elo")
"""Names of the metrics with ratings."""
_CELL = 0.42
"""Side of a field, in inches."""
_NAME = 0.12
"""Height of a name, in inches."""
_NOT_PLAYED = "#E4E4E4"
_NUMBER: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "center"}


def plot_win_rates(payoffs: Payoffs, *, out: Path, notify: Callable[[str], None] = ignore) -> Path:
    """Plot how often each player (row) has won against each other one (column); return ``out``.

    Each field has the win rate in percent, and the number of games if it is not the same in all. Players that have not
    met have a grey field.

    Args:
        payoffs: Results of the games.
        out: Path of the image, in any format of matplotlib.
        notify: Called with a message that names the characters that the font lacks.

    Raises:
        ConfigError: ``out`` has an unknown suffix or cannot be written.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    count = len(payoffs.players)
    name_width = 0.075 * max(map(len, payoffs.players))
    side = max(2.0, _CELL * min(count, MOST_LABELED))
    figure = Figure(
        figsize=(side + name_width + 1.5 + 0.07 * side, side + name_width + 0.9), dpi=150, layout="constrained"
    )
    axes = figure.add_subplot()
    axes.set_facecolor(_NOT_PLAYED)
    rates = payoffs.win_rates
    rates[payoffs.games == 0] = float("nan")
    image = axes.imshow(rates, cmap=_color_map(), vmin=0, vmax=1)
    _label_players(axes, payoffs.players, side)
    if count <= MOST_LABELED:
        _write_numbers(axes, payoffs)
    bar = figure.colorbar(
        image, ax=axes, fraction=0.2 / side, shrink=min(1.0, 3 / side), aspect=15, format=PercentFormatter(1),
        ticks=[0, 0.25, 0.5, 0.75, 1],
    )  # fmt: skip
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
    axes.set_title(_caption(payoffs), fontsize=9)
    figure.suptitle("Win rate of the row's player", **TITLE)
    return save_figure(figure, out, notify)


def draw_ratings(
    ratings: Ratings,
    *,
    policies: Sequence[str],
    env_steps: Sequence[int],
    sides: Sequence[Sequence[str]] = (),
) -> Figure:
    """Draw ratings over env steps, with their 95 % intervals; return the figure. Each policy has a line.

    Args:
        ratings: Ratings of P players.
        policies: Policy of each player.
        env_steps: Env steps that each player's weights had been trained with.
        sides: Agents that each player can play for. Players with different ones have a panel each, because their
            ratings cannot be compared.
    """
    from matplotlib.figure import Figure

    sides = [tuple(each) for each in sides] or [()] * len(policies)
    several = [side for side in sides if sides.count(side) > 1]  # a player that is alone has nothing to compare with
    groups = list(dict.fromkeys(several or sides))
    lines = list(dict.fromkeys(policy for policy, side in zip(policies, sides, strict=True) if side in groups))
    legend = legend_of(curve_handles(list(map(literal, lines))) if len(set(policies)) > 1 else [], 8.0)
    figure = Figure(figsize=(8.0, 1.6 + 3.2 * len(groups) + legend.height), dpi=150, layout="constrained")
    for group, axes in zip(groups, figure.subplots(len(groups), 1, squeeze=False, sharex=True)[:, 0], strict=True):
        players = [i for i, side in enumerate(sides) if side == group]
        for line in dict.fromkeys(policies[i] for i in players):
            own = sorted((i for i in players if policies[i] == line), key=lambda i: env_steps[i])
            axes.errorbar(
                [env_steps[i] for i in own], ratings.rating[own], yerr=1.96 * ratings.error[own],
                **line_style(lines.index(line)), linewidth=1.8, elinewidth=1.0, capsize=2.5, marker="o", markersize=5,
                markeredgecolor="white", markeredgewidth=0.7,
            )  # fmt: skip
        axes.set_xlabel("env steps")
        axes.set_ylabel("rating (Elo points)")
        show_compact_numbers(axes.xaxis)
        show_grid(axes)
        if len(groups) > 1:
            axes.set_title(literal(f"as {', '.join(group)}"), fontsize=10)
        axes.label_outer()
    figure.suptitle("Ratings with 95 % intervals", **TITLE)
    legend.draw(figure)
    return figure


def plot_elo(
    runs: Sequence[Path],
    x: XAxis = "steps",
    *,
    out: Path,
    labels: Sequence[str] = (),
    notify: Callable[[str], None] = ignore,
) -> Path | None:
    """Plot the Elo ratings of the newest policies of runs with a league, as `draw_runs`; return ``out``.

    Args:
        runs: Run directories; those without a league are left out.
        x: Quantity on the x axis.
        out: Path of the image, in any format of matplotlib.
        labels: Texts for the legend in place of the settings that differ: one for each run, or for each curve if all
            runs have a league; or none.
        notify: Called with the messages of `draw_runs`, and one that names the characters that the font lacks.

    Returns:
        None if no run has ratings.

    Raises:
        ConfigError: ``out`` has an unknown suffix or cannot be written, or a run has an invalid file.
    """
    rated = [index for index, run in enumerate(runs) if _has_ratings(run)]
    if not rated:
        return None
    if len(labels) == len(runs):
        labels = [labels[index] for index in rated]
    elif len(rated) < len(runs):
        labels = ()
    figure = draw_runs([runs[index] for index in rated], x, metrics=(ELO,), labels=labels, notify=notify)
    return save_figure(figure, out, notify)


def _has_ratings(run: Path) -> bool:
    """Return whether a run has ratings: its last line has all that are known, also after a resume."""
    last = next(metrics_from_end(run / "metrics.jsonl"), {})
    return any(_ELO.fullmatch(key) and value is not None for key, value in last.items())


def _numbers_of_games(payoffs: Payoffs) -> set[int]:
    """Return the different numbers of games of the pairs that have met."""
    return {round(games) for games in payoffs.games[payoffs.games > 0].tolist()}


def _caption(payoffs: Payoffs) -> str:
    """Return what the numbers in the fields are; where the fields have none, the numbers of games."""
    played = _numbers_of_games(payoffs)
    if not played:
        return "no games were played"
    if len(payoffs.players) > MOST_LABELED:
        numbers = " to ".join(dict.fromkeys(map(compact, (min(played), max(played)))))
        return f"in {numbers} games of each pair that has met"
    if len(played) == 1:
        return f"in percent of the {compact(played.pop())} games of each pair"
    return "in percent; below it, the number of games"


def _color_map() -> Colormap:
    """Return vermilion for losses, white for equal players and blue for wins: different to color-blind readers too."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("win_rate", [COLORS[1], "#FFFFFF", COLORS[0]])


def _label_players(axes: Axes, players: Sequence[str], side: float) -> None:
    """Write the names of the players at both axes, as many as have room, and thin lines between the fields."""
    places, names = range(len(players)), list(map(literal, players))
    size, each = 8 if len(players) <= 20 else 7, math.ceil(len(players) * _NAME / side)
    rotation = 90 if max(map(len, players)) > 3 or len(players) > MOST_LABELED else 0
    axes.set_xticks(places[::each], names[::each], rotation=rotation, fontsize=size)
    axes.set_yticks(places[::each], names[::each], fontsize=size)
    axes.set_xlabel("opponent", fontsize=9)
    axes.set_ylabel("player", fontsize=9)
    axes.set_xticks([place - 0.5 for place in places], minor=True)
    axes.set_yticks([place - 0.5 for place in places], minor=True)
    axes.grid(which="minor", color="white", linewidth=1.0)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)


def _write_numbers(axes: Axes, payoffs: Payoffs) -> None:
    """Write the win rate into each field, and the number of games if it is not the same in all."""
    rates = payoffs.win_rates
    counted = len(_numbers_of_games(payoffs)) > 1
    for i in range(len(payoffs.players)):
        for j in range(len(payoffs.players)):
            if payoffs.games[i, j]:
                percent, games = f"{100 * rates[i, j]:.0f}", compact(round(payoffs.games[i, j]))
                style = {**_NUMBER, "color": "white" if rates[i, j] > 0.88 else "black"}  # the higher contrast
                axes.annotate(percent, (j, i), (0, 3 if counted else 0), fontsize=8, **style)
                if counted:
                    axes.annotate(games, (j, i), (0, -8), fontsize=5, **style)
