"""Draw the pictures of docs/concepts.md: the data path, the pace's order in time, and rows at an episode's end.

python docs/images/draw.py
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from offbeat.pace import OnPolicyPace

HERE = Path(__file__).parent
INK, GREY, PAPER = "#222222", "#888888", "#ffffff"
COLORS = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#0072B2")
"""Okabe and Ito's palette, which colour-blind readers can tell apart; one colour a batch."""


# --- the data path ------------------------------------------------------------------------------------------

BOXES = {
    "envs": (0.0, "step", COLORS[2]),
    "actor": (2.4, "acts a ticket", COLORS[0]),
    "unrolls": (4.8, "[T + 1, N, ...]\nslots", "#dddddd"),
    "learner": (7.2, "learns a batch", COLORS[1]),
    "weights": (9.6, "one flat vector\na version", "#dddddd"),
}
"""name -> (left edge, what it does, colour)"""
WIDTH, HEIGHT = 1.7, 1.1


def draw_data_path() -> Figure:
    """Draw who hands what to whom, and where the pace stands."""
    figure, axes = _canvas(10.0, 3.4, (-0.2, 11.5), (-1.9, 2.5))
    for name, (left, what, color) in BOXES.items():
        _box(axes, left, 0, color)
        axes.text(left + WIDTH / 2, 0.75, name, ha="center", va="center", weight="bold", color=INK)
        axes.text(left + WIDTH / 2, 0.33, what, ha="center", va="center", size=8.5, color=INK)
    lefts = [left for left, _, _ in BOXES.values()]
    _arrow(axes, (lefts[0] + WIDTH, 0.72), (lefts[1], 0.72))
    _arrow(axes, (lefts[1], 0.38), (lefts[0] + WIDTH, 0.38))
    for left, right in pairwise(lefts[1:]):
        _arrow(axes, (left + WIDTH, 0.55), (right, 0.55))
    _return_path(axes, lefts[4] + WIDTH / 2, lefts[1] + WIDTH / 2)
    _draw_gates(axes, (lefts[1] + WIDTH / 2, lefts[3] + WIDTH / 2))
    return figure


def _return_path(axes: Axes, right: float, left: float) -> None:
    axes.plot([right, right, left], [0, -0.9, -0.9], color=INK, lw=1.4, solid_joinstyle="miter")
    _arrow(axes, (left, -0.9), (left, 0))
    axes.text(
        (left + right) / 2, -1.25, "version v: the weights after v learning steps", ha="center", color=INK, size=9
    )


def _draw_gates(axes: Axes, centers: Sequence[float]) -> None:
    left, right = centers[0] - WIDTH / 2, centers[1] + WIDTH / 2
    axes.add_patch(FancyBboxPatch((left, 1.75), right - left, 0.45, boxstyle="round,pad=0.02", fc=PAPER, ec=INK))
    axes.text((left + right) / 2, 1.97, "pace: who may start, and when", ha="center", va="center", color=INK)
    questions = ("may ticket k begin?", "may learning step j begin?")
    for center, question in zip(centers, questions, strict=True):
        _arrow(axes, (center, 1.75), (center, HEIGHT), style="-|>", dashed=True)
        axes.text(center + 0.12, 1.42, question, ha="left", va="center", size=8.5, style="italic", color=INK)


# --- the pace's order in time -------------------------------------------------------------------------------

ACTORS, BATCHES = 2, 6
ACTING, LEARNING = 1.0, 1.0
"""Seconds that a ticket and a learning step take."""
SLOW = {5: 2.6, 8: 2.6}
"""ticket -> seconds: two stragglers, one an actor."""


@dataclass(frozen=True)
class Span:
    """One ticket, or one learning step."""

    number: int
    batch: int
    begin: float
    end: float


def schedule(pace: OnPolicyPace) -> tuple[list[Span], list[Span]]:
    """Return tickets and learning steps, each begun as soon as its worker is free and the pace allows it."""
    tickets: list[Span] = []
    steps: list[Span] = []
    for step in range(BATCHES):
        while pace.may_act(len(tickets), learned=step):
            tickets.append(_act(pace, len(tickets), tickets, steps))
        committed = max(tickets[ticket].end for ticket in range(pace.acted_before_learn(step)))
        begin = max(committed, steps[-1].end if steps else 0.0)
        steps.append(Span(step, pace.batch_of(step), begin, begin + LEARNING))
    return tickets[: BATCHES * pace.unrolls_per_batch], steps


def _act(pace: OnPolicyPace, ticket: int, tickets: Sequence[Span], steps: Sequence[Span]) -> Span:
    own = [before.end for before in tickets if before.number % ACTORS == ticket % ACTORS]
    needed = pace.learned_before_act(ticket)
    begin = max(own[-1] if own else 0.0, steps[needed - 1].end if needed else 0.0)
    return Span(ticket, ticket // pace.unrolls_per_batch, begin, begin + SLOW.get(ticket, ACTING))


def policy_lag(ticket: Span, steps: Sequence[Span]) -> int:
    """Return learning steps between the newest weights when a ticket began and those that learn from it."""
    return ticket.batch - sum(step.end <= ticket.begin for step in steps)


def draw_timeline(lags: Sequence[int] = (0, 1, 3)) -> Figure:
    """Draw the same work under several bounds on the lag."""
    figure, panels = plt.subplots(len(lags), 1, figsize=(10.0, 1.75 * len(lags)), sharex=True)
    for axes, lag in zip(panels, lags, strict=True):
        tickets, steps = schedule(OnPolicyPace(unrolls_per_batch=ACTORS, max_lag=lag))
        for span in tickets:
            _bar(axes, span, span.number % ACTORS, "")
        for span in steps:
            _bar(axes, span, ACTORS, "step ")
        axes.set_yticks(range(ACTORS + 1), [*(f"actor {i}" for i in range(ACTORS)), "learner"])
        axes.set_ylim(ACTORS + 0.5, -0.5)
        axes.set_title(f"max_lag = {lag}", loc="left", size=10, weight="bold", color=INK)
        lags_seen = [policy_lag(ticket, steps) for ticket in tickets]
        summary = f"policy lag {min(lags_seen)} to {max(lags_seen)}; {BATCHES} learning steps in {steps[-1].end:.1f} s"
        axes.set_title(summary, loc="right", size=9, color=GREY)
        axes.tick_params(length=0)
        for side in ("top", "right", "left", "bottom"):
            axes.spines[side].set_visible(False)
    panels[-1].set_xlabel("seconds; the number on a ticket is its own, the colour is its batch")
    figure.tight_layout()
    return figure


def _bar(axes: Axes, span: Span, row: int, prefix: str) -> None:
    color = COLORS[span.batch % len(COLORS)]
    axes.add_patch(Rectangle((span.begin, row - 0.4), span.end - span.begin, 0.8, fc=color, ec=PAPER, lw=1.5))
    middle = (span.begin + span.end) / 2
    text = PAPER if color == "#0072B2" else INK
    axes.text(middle, row, f"{prefix}{span.number}", ha="center", va="center", size=8.5, color=text)
    axes.autoscale_view(scaley=False)


# --- rows at an episode's end -------------------------------------------------------------------------------

ROWS = (
    ("t - 1", "$o_{t-1}$", "$a_{t-1}$", "$r_{t-1}$", "-", "yes"),
    ("t", "$o_t$", "$a_t$", "$r_t$", "terminated\nor truncated", "yes"),
    ("t + 1", "$o_{t+1}$: the final\nobservation", "ignored", "0", "-", "no: reset row"),
    ("t + 2", "first of the\nnext episode", "$a_{t+2}$", "$r_{t+2}$", "-", "yes"),
    ("t + 3", "$o_{t+3}$", "$a_{t+3}$", "$r_{t+3}$", "-", "yes"),
)
LABELS = ("row", "observation", "action", "reward", "end", "valid")
EPISODES = (COLORS[0], COLORS[0], "#e5e5e5", COLORS[1], COLORS[1])


def draw_rows() -> Figure:
    """Draw the rows of one column around an episode's end; time runs to the right."""
    width, height, left = 1.9, 0.62, 1.5
    figure, axes = _canvas(10.0, 4.0, (-0.1, left + width * len(ROWS) + 0.1), (-4.9, 0.8))
    for line, label in enumerate(LABELS):
        axes.text(left - 0.25, -line * height, label, ha="right", va="center", weight="bold", color=INK)
    for place, (row, color) in enumerate(zip(ROWS, EPISODES, strict=True)):
        x = left + place * width
        axes.add_patch(Rectangle((x, -5.4 * height), width - 0.08, 5.9 * height, fc=color, alpha=0.45, ec="none"))
        for line, text in enumerate(row):
            style = "bold" if line == 0 else "normal"
            axes.text(x + width / 2, -line * height, text, ha="center", va="center", size=9, weight=style, color=INK)
    _bootstrap_note(axes, left + 1.5 * width, left + 2.5 * width, -5.4 * height)
    return figure


def _bootstrap_note(axes: Axes, end: float, reset: float, bottom: float) -> None:
    axes.annotate(
        "",
        xy=(end, bottom - 0.05),
        xytext=(reset, bottom - 0.05),
        arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.4, "connectionstyle": "arc3,rad=-0.5"},
    )
    note = "truncated: row t bootstraps from the value of the final observation\nterminated: from nothing"
    axes.text((end + reset) / 2, bottom - 0.75, note, ha="center", va="top", size=9, color=INK)


# --- common parts -------------------------------------------------------------------------------------------


def _canvas(width: float, height: float, x: tuple[float, float], y: tuple[float, float]) -> tuple[Figure, Axes]:
    figure = plt.figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(*x)
    axes.set_ylim(*y)
    axes.axis("off")
    return figure, axes


def _box(axes: Axes, left: float, bottom: float, color: str) -> None:
    axes.add_patch(FancyBboxPatch((left, bottom), WIDTH, HEIGHT, boxstyle="round,pad=0", fc=color, alpha=0.55, ec=INK))


def _arrow(
    axes: Axes, begin: tuple[float, float], end: tuple[float, float], style: str = "-|>", *, dashed: bool = False
) -> None:
    arrow = {"arrowstyle": style, "color": INK, "lw": 1.4, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=end, xytext=begin, arrowprops=arrow | ({"linestyle": "--"} if dashed else {}))


def main() -> None:
    """Write all pictures beside this file."""
    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "offbeat", "savefig.facecolor": PAPER, "font.size": 10})
    pictures = {"data-path": draw_data_path, "timeline": draw_timeline, "rows": draw_rows}
    for name, draw in pictures.items():
        draw().savefig(HERE / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
