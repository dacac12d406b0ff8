"""Progress of an experiment on the terminal: one line per running job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from offbeat.core.lossy_stream import lossy
from offbeat.core.printing import print_text
from offbeat.metrics.progress.dashboard import ControlEcho, chosen_kind
from offbeat.metrics.progress.views import ProgressKind
from offbeat.metrics.text import compact, done, duration, rounded

_NAME_WIDTH = 24
"""Largest width of the name of a job; longer names are cut."""
_BAR_WIDTH = 12


@dataclass(frozen=True)
class JobProgress:
    """Progress of a running job."""

    name: str
    steps: int
    """Env steps after which the job ends."""
    line: Mapping[str, Any]
    """Its last metrics line; empty before the first."""
    state: str = ""
    """waiting (for resources, so that it has not started yet), stopping, ending (its run has ended), the phase of its
    run, or what it does in place of training; '': it trains."""
    trains: bool = True
    """Whether it trains; otherwise it has no progress but its state."""
    time_s: float | None = None
    """Seconds of training after which it ends, if it has not had its env steps before; None: no limit."""

    @property
    def env_steps(self) -> int:
        return int(self.line.get("env_steps", 0))

    @property
    def fraction(self) -> float:
        return min(1.0, self.env_steps / self.steps)

    @property
    def eta_s(self) -> float | None:
        """Seconds until it ends, by its env steps or its limit of time; None while not known."""
        sps = self.line.get("sps")
        known = (
            max(0, self.steps - self.env_steps) / sps if sps else None,
            max(0.0, self.time_s - self.line["wall_time_s"]) if self.time_s and "wall_time_s" in self.line else None,
        )
        return min((seconds for seconds in known if seconds is not None), default=None)

    def cells(self, *, roomy: bool = True) -> list[str]:
        """Return the texts of the row: progress, returns, time left, speed, state. One without much room has no speed,
        no best evaluation and no number of env steps.
        """
        numbers = self._numbers(roomy=roomy)
        return [*(numbers if self.trains else [""] * len(numbers)), self.state]

    def _numbers(self, *, roomy: bool) -> list[str]:
        line, sps = self.line, self.line.get("sps")
        best = f" (best {rounded(line.get('best_eval_return_mean'))})" if roomy else ""
        return [
            f"{done(self.fraction):>4}",
            *([f"{compact(self.env_steps)}/{compact(self.steps)} env steps"] if roomy else []),
            f"return {rounded(line.get('episode_return_mean'))}",
            f"eval {rounded(line.get('eval_return_mean'))}{best}",
            f"ETA {duration(self.eta_s)}",
            *([f"SPS {compact(sps)}"] if roomy else []),
        ]


@dataclass(frozen=True)
class JobCounts:
    """Number of jobs by state."""

    total: int
    finished: int = 0
    failed: int = 0
    what: str = "sessions"
    pruned: int = 0

    def __str__(self) -> str:
        pruned = f", {self.pruned} pruned" if self.pruned else ""
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.finished} of {self.total} {self.what} finished{pruned}{failed}"


class JobsView:
    """A progress view of an experiment; this one shows nothing.

    Call `start` first, and `close` last, also after an error.
    """

    def start(self) -> None:
        """Begin to show."""

    def update(self, rows: Callable[[], Sequence[JobProgress]], counts: JobCounts) -> None:
        """Show the progress. Return at once, without calling `rows`, if the last update was a moment ago."""

    def clear(self, counts: JobCounts) -> None:
        """Show that no job is running."""

    def message(self, text: str) -> None:
        """Print a message that stays visible."""

    def close(self) -> None:
        """Show nothing more."""


def make_jobs_view(kind: ProgressKind | None, stream: TextIO) -> JobsView:
    """Return the progress view of ``kind``; None chooses the dashboard on a terminal, and lines elsewhere.

    What cannot be written to the stream is dropped.
    """
    kind = chosen_kind(kind, stream)
    if kind == "none":
        return JobsView()
    output = lossy(stream)
    return JobsDashboard(Console(file=output)) if kind == "dashboard" else JobLines(output)


class JobLines(JobsView):
    """Prints a line for each running job every few seconds: for log files and simple terminals."""

    def __init__(self, stream: TextIO, *, every_s: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._every_s, self._clock = stream, every_s, clock
        self._next_s = clock() + every_s

    def update(self, rows: Callable[[], Sequence[JobProgress]], counts: JobCounts) -> None:
        """Print the lines if the last ones are a few seconds old."""
        if self._clock() < self._next_s:
            return
        self._next_s = self._clock() + self._every_s
        self.message(str(counts))
        for row in rows():
            self.message("  ".join([f"  {row.name}", *filter(None, row.cells())]))

    def message(self, text: str) -> None:
        """Print ``text`` on a line."""
        print_text(text, self._stream)


class JobsDashboard(JobsView):
    """Lines that are redrawn in place, at most twice a second, and only from within `update`."""

    def __init__(self, console: Console, *, every_s: float = 0.5, clock: Callable[[], float] = time.monotonic) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop")
        self._every_s, self._clock = every_s, clock
        self._next_s = float("-inf")
        self._echo = ControlEcho()

    def start(self) -> None:
        """Use the bottom of the terminal. Other output appears above."""
        self._echo.off()
        self._live.start()

    def update(self, rows: Callable[[], Sequence[JobProgress]], counts: JobCounts) -> None:
        """Redraw, unless the last update was a moment ago."""
        if self._clock() >= self._next_s:
            self._next_s = self._clock() + self._every_s
            self._draw(rows(), counts)

    def clear(self, counts: JobCounts) -> None:
        """Show only the number of jobs."""
        self._draw([], counts)

    def _draw(self, rows: Sequence[JobProgress], counts: JobCounts) -> None:
        self._live.update(Group(*_renderables(rows, counts, self._live.console)), refresh=True)

    def message(self, text: str) -> None:
        """Print ``text`` above the lines, where it stays."""
        self._live.console.print(Text(text))

    def close(self) -> None:
        """Stop redrawing and restore the terminal."""
        self._live.stop()
        self._echo.restore()


def _renderables(rows: Sequence[JobProgress], counts: JobCounts, console: Console) -> Iterator[RenderableType]:
    """Yield a table of the rows with all that fits the console, and the number of jobs."""
    tables = [_table(rows, roomy=True, bars=True), _table(rows, roomy=False, bars=True)]
    unlimited = console.options.update(max_width=1000)
    fitting = (table for table in tables if console.measure(table, options=unlimited).maximum <= console.width)
    yield next(fitting, None) or _table(rows, roomy=False, bars=False)
    yield Text(str(counts), style="bold")


def _table(rows: Sequence[JobProgress], *, roomy: bool, bars: bool) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="cyan", max_width=_NAME_WIDTH, overflow="ellipsis")
    if bars:
        table.add_column(width=_BAR_WIDTH)
    for row in rows:
        bar = ProgressBar(1.0, row.fraction, _BAR_WIDTH, complete_style="cyan", finished_style="green")
        texts = (Text(text, no_wrap=True) for text in row.cells(roomy=roomy))
        table.add_row(row.name, *([bar] if bars else []), *texts)
    return table
