"""The content of the dashboard: one screen for the whole run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from offbeat.core.argument_notation import as_shown
from offbeat.metrics.progress.policy_lines import ROOMY, PolicyLines
from offbeat.metrics.progress.rates import Rates
from offbeat.metrics.progress.status import About, Status
from offbeat.metrics.progress.views import (
    age_of,
    collecting,
    gradient_staleness_of,
    lag_of,
    steps_of,
    transition_of,
)
from offbeat.metrics.text import compact, done, duration, percentage, rounded
from offbeat.metrics.timings import Branch

_SPARKLINE_WIDTH = 12
"""Characters of the line of returns."""
_WIDE = 76
"""Smallest width, in characters, at which metrics and timings are shown side by side."""
_LEFT_WIDTH = 40
"""Smallest width, in characters, of the metrics beside the timings. Longer numbers make it larger."""
_NAME_WIDTH = 15
_SHARE_WIDTH = 6
_COLORS = {
    "act": "cyan",
    "env": "blue",
    "learn": "magenta",
    "evaluate": "green",
    "checkpoint": "yellow",
    "wait": "bright_black",
}


class History:
    """A metric over the whole run, evenly subsampled to at most ``max_points`` points."""

    def __init__(self, max_points: int = 64) -> None:
        self._max_points = max_points
        self._stride = 1
        self._count = 0
        self.points: list[float] = []

    def add(self, value: float | None) -> None:
        """Add the current value; None is ignored."""
        if value is None:
            return
        if self._count % self._stride == 0:
            self.points.append(value)
        self._count += 1
        if len(self.points) == self._max_points:
            self.points = self.points[::2]
            self._stride *= 2


class Screen:
    """The whole screen, laid out for the width of the console."""

    def __init__(self, about: About, status: Status, rates: Rates, returns: History) -> None:
        self._about, self._status, self._rates, self._returns = about, status, rates, returns

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for the console's size and encoding. A low one has no empty lines between the parts."""
        parts = [self._head(), self._bar(), self._body(options, infos=0)]
        if waits := list(wait_lines(self._about, self._status, options.max_width)):
            parts.append(Group(*waits))
        inner = options.update_width(max(1, options.max_width - 4))
        free = options.max_height - 2 - sum(len(console.render_lines(part, inner)) for part in parts)
        if infos := min(len(self._status.infos), max(1, free)):
            parts[2] = self._body(options, infos)
            free -= infos
        spaced = free >= len(parts) - 1
        if policies := self._status.policies:
            spaced = free >= len(parts) + 1 + len(policies)
            parts.insert(3, PolicyLines(policies, free - len(parts) if spaced else free))
        yield Panel(
            Group(*(_spaced(parts) if spaced else parts)),
            title=Text(f"offbeat: {self._about.title}", style="bold cyan"),
            title_align="left",
            border_style="bright_black",
            padding=(0, 1),
        )

    def _body(self, options: ConsoleOptions, infos: int) -> RenderableType:
        """Return metrics, speed and timings, with at most `infos` numbers of the env's infos."""
        left = _lines([self._metrics(options.ascii_only, infos), Text(), self._speed()])
        return _side_by_side(left, TimeTree(self._status.timings.tree()), options.max_width)

    def _head(self) -> RenderableType:
        phase = Text(self._status.phase, style="green" if self._status.phase == "training" else "yellow")
        head = Table.grid(expand=True, padding=(0, 2, 0, 0))
        head.add_column(ratio=1)
        head.add_column(justify="right", no_wrap=True)
        head.add_row(Text(self._about.topology), phase)
        head.add_row(Text(str(self._about.run_dir), style="bright_black", overflow="fold"), "")
        return head

    def _bar(self) -> RenderableType:
        status = self._status
        bar = Table.grid(expand=True, padding=(0, 2, 0, 0))
        bar.add_column(ratio=1)
        bar.add_column(justify="right", no_wrap=True)
        eta = f"  ETA {duration(self._rates.end_s(status))}" if status.fraction < 1 else ""
        bar.add_row(
            ProgressBar(total=1.0, completed=status.fraction, complete_style="cyan", finished_style="green"),
            Text.assemble(
                (done(status.fraction), "bold"),
                f"  {steps_of(status, ' / ')}",
                (eta, "cyan"),
            ),
        )
        if status.first_batch is None:
            return bar
        return Group(bar, Text(collecting(status.first_batch), style="yellow"))

    def _metrics(self, ascii_only: bool, infos: int) -> Text:
        status = self._status
        best = status.best_eval_return_mean
        elo = "-" if status.elo is None else f"{status.elo:.0f}"
        refused = f"{status.updates_refused} refused" if status.updates_refused else ""
        rows = [
            (
                "return",
                rounded(status.episode_return_mean),
                sparkline(self._returns.points, ascii_only),
                "cyan",
            ),
            *_spread(status),
            ("episode length", rounded(status.episode_length_mean), "", ""),
            (
                "evaluation",
                rounded(status.eval_return_mean),
                f"best {rounded(best)}" if best is not None else "",
                "green",
            ),
            *_info_rows(status, infos),
            *_learning_rows(status),
            *([] if status.policies else _lag_rows(status)),
            *([] if status.elo is None else [("Elo", elo, f"{compact(status.snapshots)} snapshots", "bright_black")]),
            ("learning steps", compact(status.learning_step), "", ""),
            ("updates", compact(status.updates), refused, "bold red"),
            ("memory", *_memory(status), "bright_black"),
        ]
        return _lines(Text.assemble(f"{name:14} {value:11} ", (note, style)) for name, value, note, style in rows)

    def _speed(self) -> Text:
        windows = _filled(self._rates)
        speeds = [self._rates.over(window) for _, window in windows]
        labels = "".join(f"{label:8}" for label, _ in windows)
        return _lines(
            [
                Text.assemble((f"{'speed':15}", "bold"), (labels, "bright_black")),
                Text(f"{'SPS':15}" + "".join(f"{compact(sps):8}" for sps, _ in speeds)),
                Text(f"{'UPS':15}" + "".join(f"{compact(ups):8}" for _, ups in speeds)),
            ]
        )


def _spread(status: Status) -> list[tuple[str, str, str, str]]:
    """Return the row for the lowest and the highest return; none for several policies, whose returns differ."""
    low, high = status.episode_return_min, status.episode_return_max
    between = "-" if low is None else f"{rounded(low)} to {rounded(high)}"
    return [] if status.policies else [("  min and max", between, "", "")]


def _info_rows(status: Status, most: int) -> list[tuple[str, str, str, str]]:
    """Return a row for each number of the env's infos, at most `most`."""
    shown = list(status.infos.items())[:most]
    left_out = len(status.infos) - most
    rows = [(f"{name[: _NAME_WIDTH - 1]}", compact(value), "", "") for name, value in shown]
    if rows and left_out > 0:
        rows[-1] = (*rows[-1][:2], f"and {left_out} more", "bright_black")
    return rows


def _learning_rows(status: Status) -> list[tuple[str, str, str, str]]:
    """Return the rows for the losses, and for KL divergence and entropy. Several policies have rows of their own."""
    losses = [(name, compact(loss)) for name, loss in status.losses.items()]
    kl, entropy = status.approx_kl, status.entropy
    others = ", ".join(f"{name} {loss}" for name, loss in losses[1:])
    rows = [(f"{name} loss", loss, others, "") for name, loss in losses[:1]]
    if kl is not None:
        rows.append(("KL", compact(kl), f"entropy {compact(entropy)}", ""))
    elif entropy is not None:
        rows.append(("entropy", compact(entropy), "", ""))
    return rows


def _memory(status: Status) -> tuple[str, str]:
    """Return the memory of the main process and of its children, in bytes, and a label."""
    each = [1e6 * value for value in (status.memory_main_mb, status.memory_children_mb) if value is not None]
    return " + ".join(map(compact, each)) or "-", "children" if len(each) > 1 else ""


def _lag_rows(status: Status) -> list[tuple[str, str, str, str]]:
    """Return the rows for the policy lag, or for the update ratio and the sample age, and for gradient staleness."""
    staleness = [("staleness", gradient_staleness_of(status), "others' updates", "bright_black")]
    if status.gradient_staleness_mean is None:
        staleness = []
    if status.utd_ratio is None and status.replay_size is not None:
        return [*staleness, ("warm-up", compact(status.replay_size), "transitions", "bright_black")]
    if status.utd_ratio is None:
        return staleness or [("policy lag", lag_of(status), "min/mean/max", "bright_black")]
    return [
        *staleness,
        ("update ratio", rounded(status.utd_ratio), f"per {transition_of(status)}", "bright_black"),
        ("sample age", age_of(status), "in updates", "bright_black"),
    ]


class TimeTree:
    """The tree of timings. Each line has a name, a bar for its share of the time of all workers, and the share."""

    def __init__(self, branches: tuple[Branch, ...]) -> None:
        self._branches = branches

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for the width of the console; a narrow one has no bars."""
        glyph = "=" if options.ascii_only else "■"
        room = max(0, options.max_width - _NAME_WIDTH - _SHARE_WIDTH)
        yield Text("all workers' time so far", style="bold")
        for branch, kind, depth in _walk(self._branches):
            name = "  " * depth + branch.name.replace("_", " ")
            color = _COLORS.get(kind, "white")
            style, bar_style = ("", color) if depth == 0 else ("bright_black", f"dim {color}")
            bar = glyph * round(branch.share * room)
            yield Text.assemble(
                (f"{name:{_NAME_WIDTH}}", style),
                (f"{bar:{room}}", bar_style),
                (f"{branch.share:{_SHARE_WIDTH}.1%}", style),
                no_wrap=True,
                overflow="crop",
            )


def wait_lines(about: About, status: Status, width: int) -> Iterator[Text]:
    """Yield the line of waits or restarts, which serial does not have, and the sentence of the bottleneck report."""
    if about.runtime.workers_learn:
        yield _restarts(status)
    elif not about.runtime.runs_in_order:
        yield _waits(status, roomy=width >= ROOMY)
    if status.bottleneck:
        sentence = Text(as_shown(status.bottleneck))
        sentence.stylize("bold", 0, sentence.plain.find(":") + 1)
        yield sentence


def _restarts(status: Status) -> Text:
    """Return the line for lock-free workers, which do not wait."""
    return Text.assemble(
        ("workers", "bold"),
        ("   restarts ", "bright_black"),
        (str(status.actor_restarts), "bold red" if status.actor_restarts else ""),
        ("   longest env stall ", "bright_black"),
        f"{rounded(status.env_stall_max_s)} s",
    )


def _waits(status: Status, *, roomy: bool) -> Text:
    slots, stall = ("slots filled", "longest env stall") if roomy else ("slots", "env stall")
    gap = "   " if roomy else "  "
    restarts = (str(status.actor_restarts), "bold red" if status.actor_restarts else "")
    metrics = [
        ("actors", (percentage(status.actor_wait_fraction), "")),
        ("learner", (percentage(status.learner_wait_fraction), "")),
        (slots, (percentage(status.slots_filled), "")),
        (stall, (f"{rounded(status.env_stall_max_s)} s", "")),
        ("restarts", restarts),
    ]
    title = Text("waiting", style="bold")
    return Text(gap).join([title, *(Text.assemble((f"{name} ", "bright_black"), value) for name, value in metrics)])


def sparkline(points: list[float], ascii_only: bool) -> str:
    """Draw the points as one line of text, from the smallest value (lowest mark) to the largest (highest mark)."""
    if len(points) < 2:
        return ""
    marks = ".:-=+*#" if ascii_only else "▁▂▃▄▅▆▇█"
    picked = [points[round(i * (len(points) - 1) / (_SPARKLINE_WIDTH - 1))] for i in range(_SPARKLINE_WIDTH)]
    low, high = min(picked), max(picked)
    scale = (len(marks) - 1) / (high - low) if high > low else 0.0
    return "".join(marks[round((point - low) * scale)] for point in picked)


def _spaced(parts: list[RenderableType]) -> Iterator[RenderableType]:
    """Yield the parts with an empty line between each two."""
    for number, part in enumerate(parts):
        if number:
            yield Text()
        yield part


def _side_by_side(left: RenderableType, right: RenderableType, width: int) -> RenderableType:
    if width < _WIDE:
        return Group(left, Text(), right)
    halves = Table.grid(expand=True, padding=(0, 2, 0, 0))
    halves.add_column(min_width=_LEFT_WIDTH, no_wrap=True)
    halves.add_column(ratio=1)
    halves.add_row(left, right)
    return halves


def _lines(lines: Iterable[Text]) -> Text:
    joined = Text("\n", no_wrap=True, overflow="crop").join(lines)
    joined.no_wrap, joined.overflow = True, "crop"
    return joined


def _filled(rates: Rates) -> list[tuple[str, float]]:
    """Return (label, seconds) of the windows that the run is longer than; if there are shorter ones, also 'so far'."""
    filled = [(f"{window:g} s", window) for window in rates.windows_s if window <= rates.elapsed_s]
    return filled if len(filled) == len(rates.windows_s) else [*filled, ("so far", rates.windows_s[-1])]


def _walk(branches: tuple[Branch, ...], kind: str = "", depth: int = 0) -> Iterator[tuple[Branch, str, int]]:
    """Yield each branch with its kind and its depth; of the children only those with a share that is not shown as 0."""
    for branch in branches:
        if depth == 0 or round(branch.share, 3) > 0:
            yield branch, kind or branch.name, depth
            yield from _walk(branch.children, kind or branch.name, depth + 1)
