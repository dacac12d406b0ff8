"""Draw the pictures of docs/concepts/: the data path, the pace's order in time, and rows at an episode's end.

python docs/images/draw.py
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from offbeat.core.pace import OnPolicyPace

HERE = Path(__file__).parent
INK, GREY, PAPER = "#222222", "#888888", "#ffffff"
COLORS = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#0072B2")
"""Okabe and Ito's palette, which colour-blind readers can tell apart; one colour a batch."""


# --- the data path ------------------------------------------------------------------------------------------

BOXES = {
    "envs": (0.0, "step", COLORS[2]),
    "actor": (2.4, "acts a ticket", COLORS[0]),
    "slots": (5.2, "[T + 1, N, ...]\none a ticket", "#dddddd"),
    "learner": (8.0, "learns a batch", COLORS[1]),
    "weights": (10.8, "one flat vector\na version", "#dddddd"),
}
"""name -> (left edge, what it does, colour)"""
FRAMES = (
    ("actor process, or thread: one of A", 0.0, 2.4),
    ("shared memory", 5.2, 5.2),
    ("main", 8.0, 8.0),
    ("shared memory", 10.8, 10.8),
)
"""(what it is, left edge of its first box, left edge of its last)"""
WIDTH, HEIGHT = 1.7, 1.1


def draw_data_path() -> Figure:
    """Draw who hands what to whom, where it lies, and where the gate stands."""
    figure, axes = _canvas(10.0, 3.4, (-0.5, 12.9), (-1.6, 2.9))
    _draw_frames(axes)
    for name, (left, what, color) in BOXES.items():
        _box(axes, left, 0, color)
        axes.text(left + WIDTH / 2, 0.78, name, ha="center", va="center", weight="bold", color=INK)
        axes.text(left + WIDTH / 2, 0.33, what, ha="center", va="center", size=7.5, color=INK)
    lefts = [left for left, _, _ in BOXES.values()]
    _arrow(axes, (lefts[0] + WIDTH, 0.72), (lefts[1], 0.72))
    _arrow(axes, (lefts[1], 0.38), (lefts[0] + WIDTH, 0.38))
    for left, right in pairwise(lefts[1:]):
        _arrow(axes, (left + WIDTH, 0.55), (right, 0.55))
    _return_path(axes, lefts[4] + WIDTH / 2, lefts[1] + WIDTH / 2)
    _draw_gate(axes, (lefts[1] + WIDTH / 2, lefts[3] + WIDTH / 2))
    return figure


def _draw_frames(axes: Axes) -> None:
    """Draw what lies in which process; there are several actors, so their frame has others behind it."""
    for what, first, last in FRAMES:
        left, width = first - 0.2, last + WIDTH - first + 0.4
        for back in (0.16, 0.08) if first == 0 else ():
            axes.add_patch(Rectangle((left + back, -0.2 + back), width, 1.65, fc=PAPER, ec=GREY, lw=0.9, ls=":"))
        axes.add_patch(Rectangle((left, -0.2), width, 1.65, fc=PAPER, ec=GREY, lw=0.9, ls=":"))
        axes.text(left + 0.1, 1.38, what, ha="left", va="top", size=7, color=GREY)


def _return_path(axes: Axes, right: float, left: float) -> None:
    axes.plot([right, right, left], [0, -0.95, -0.95], color=INK, lw=1.4, solid_joinstyle="miter")
    _arrow(axes, (left, -0.95), (left, 0))
    text = "version v: the weights after v learning steps"
    axes.text((left + right) / 2, -1.3, text, ha="center", color=INK, size=9)


def _draw_gate(axes: Axes, centers: Sequence[float]) -> None:
    left, right = centers[0] - WIDTH / 2, centers[1] + WIDTH / 2
    axes.add_patch(FancyBboxPatch((left, 2.2), right - left, 0.45, boxstyle="round,pad=0.02", fc=PAPER, ec=INK))
    what = "gate: the pace, enforced with counters in shared memory"
    axes.text((left + right) / 2, 2.42, what, ha="center", va="center", size=9, color=INK)
    questions = ("may ticket k begin?", "may learning step j begin?")
    for center, question in zip(centers, questions, strict=True):
        _arrow(axes, (center, 2.2), (center, HEIGHT), dashed=True)
        axes.text(center + 0.12, 1.8, question, ha="left", va="center", size=8.5, style="italic", color=INK)


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
    version: int
    """Of the weights: the newest when it begins."""

    @property
    def lag(self) -> int:
        """Learning steps between the weights that act and those that learn from it."""
        return self.batch - self.version


def schedule(pace: OnPolicyPace) -> tuple[list[Span], list[Span]]:
    """Return tickets and learning steps, each begun as soon as its worker is free and the pace allows it."""
    tickets: list[Span] = []
    steps: list[Span] = []
    for step in range(BATCHES):
        while pace.may_act(len(tickets), learned=step):
            tickets.append(_act(pace, len(tickets), tickets, steps))
        committed = max(tickets[ticket].end for ticket in range(pace.acted_before_learn(step)))
        begin = max(committed, steps[-1].end if steps else 0.0)
        steps.append(Span(step, pace.batch_of(step), begin, begin + LEARNING, step))
    # Steps that end while a ticket waits for its actor are only known now.
    tickets = [replace(ticket, version=sum(step.end <= ticket.begin for step in steps)) for ticket in tickets]
    return tickets[: BATCHES * pace.unrolls_per_batch], steps


def _act(pace: OnPolicyPace, ticket: int, tickets: Sequence[Span], steps: Sequence[Span]) -> Span:
    own = [before.end for before in tickets if before.number % ACTORS == ticket % ACTORS]
    needed = pace.learned_before_act(ticket)
    begin = max(own[-1] if own else 0.0, steps[needed - 1].end if needed else 0.0)
    return Span(ticket, ticket // pace.unrolls_per_batch, begin, begin + SLOW.get(ticket, ACTING), needed)


def draw_timeline(lags: Sequence[int] = (0, 1, 3)) -> Figure:
    """Draw the same work under several bounds on the lag."""
    figure, panels = plt.subplots(len(lags), 1, figsize=(10.0, 1.9 * len(lags)), sharex=True)
    for axes, lag in zip(panels, lags, strict=True):
        tickets, steps = schedule(OnPolicyPace(unrolls_per_batch=ACTORS, max_lag=lag))
        for actor in range(ACTORS):
            _row(axes, actor, [ticket for ticket in tickets if ticket.number % ACTORS == actor], "ticket")
        _row(axes, ACTORS, steps, "step")
        axes.set_yticks(range(ACTORS + 1), [*(f"actor {i}" for i in range(ACTORS)), "learner"])
        axes.set_ylim(ACTORS + 0.5, -0.5)
        axes.set_title(f"max_lag = {lag}", loc="left", size=10, weight="bold", color=INK)
        seen = [ticket.lag for ticket in tickets]
        summary = f"policy lag {min(seen)} to {max(seen)}; {BATCHES} learning steps in {steps[-1].end:.1f} s"
        axes.set_title(summary, loc="right", size=9, color=GREY)
        axes.tick_params(length=0)
        for side in ("top", "right", "left", "bottom"):
            axes.spines[side].set_visible(False)
    panels[-1].set_xlabel("seconds; the colour is the batch, v the version of the weights that acts; hatched: waits")
    figure.tight_layout()
    return figure


def _row(axes: Axes, row: int, spans: Sequence[Span], kind: str) -> None:
    """Draw all that one worker does, and where it waits in between."""
    for before, after in pairwise([Span(0, 0, 0.0, 0.0, 0), *spans]):
        if after.begin > before.end:
            wait = after.begin - before.end
            axes.add_patch(Rectangle((before.end, row - 0.4), wait, 0.8, fc=PAPER, ec="#cccccc", hatch="///", lw=0))
    for span in spans:
        _bar(axes, span, row, f"{span.number}\nv{span.version}" if kind == "ticket" else f"step {span.number}")


def _bar(axes: Axes, span: Span, row: int, text: str) -> None:
    color = COLORS[span.batch % len(COLORS)]
    axes.add_patch(Rectangle((span.begin, row - 0.4), span.end - span.begin, 0.8, fc=color, ec=PAPER, lw=1.5))
    middle = (span.begin + span.end) / 2
    ink = PAPER if color == "#0072B2" else INK
    axes.text(middle, row, text, ha="center", va="center", size=8, color=ink, linespacing=1.0)
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


def _arrow(axes: Axes, begin: tuple[float, float], end: tuple[float, float], *, dashed: bool = False) -> None:
    arrow = {"arrowstyle": "-|>", "color": INK, "lw": 1.4, "shrinkA": 0, "shrinkB": 0}
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
