"""The dashboard: when the screen is drawn, how the terminal is left, and the choice among the three views."""

from __future__ import annotations

import atexit
import os
import sys
import termios
import time
from collections.abc import Callable
from typing import Any, Literal, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from offbeat.core.errors import ConfigError
from offbeat.metrics.progress import About, Lines, Progress, Rates, Silent, Status
from offbeat.metrics.screen import History, Screen

__all__ = ["About", "Dashboard", "Lines", "Progress", "Silent", "Status", "make_progress"]


def make_progress(kind: Literal["dashboard", "lines", "none"] | None, stream: TextIO) -> Progress:
    """Return the view of ``kind``; None chooses the dashboard on a terminal, and lines elsewhere."""
    if kind is None:
        redraws = stream.isatty() and os.environ.get("TERM") != "dumb"
        kind = "dashboard" if redraws else "lines"
    if kind not in ("dashboard", "lines", "none"):
        raise ConfigError(f"progress is {kind!r}, but dashboard, lines or none is expected: pass one of these")
    if kind == "none":
        return Silent()
    return Dashboard(Console(file=stream)) if kind == "dashboard" else Lines(stream)


class Dashboard:
    """A screen that is redrawn in place, at most four times a second, and only from within `update`.

    It has no thread of its own: whoever calls `update` pays a few milliseconds for each redraw.
    """

    def __init__(self, console: Console, *, every_s: float = 0.25, clock: Callable[[], float] = time.monotonic) -> None:
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")
        self._every_s = every_s
        self._clock = clock
        self._next_s = float("-inf")
        self._rates = Rates()
        self._returns = History()
        self._status: Status | None = None
        self._echo = ControlEcho()

    def start(self, about: About) -> None:
        """Take over the lower end of the terminal. What is printed meanwhile appears above."""
        self._about = about
        self._echo.off()
        self._live.start()
        atexit.register(self._give_back)  # a run that dies without `close` must give the cursor back

    def update(self, status: Status) -> None:
        """Redraw, or return at once if the last time was a moment ago."""
        self._status = status
        now = self._clock()
        if now >= self._next_s:
            self._next_s = now + self._every_s
            self._draw(status, now)

    def message(self, text: str) -> None:
        """Print ``text`` above the dashboard, where it stays."""
        self._live.console.print(Text(text))

    def close(self, summary: str) -> None:
        """Draw the last status, give the terminal back and print the summary."""
        if self._status is not None and self._live.is_started:
            self._draw(self._status, self._clock())
        self._give_back()
        atexit.unregister(self._give_back)
        if summary:
            self.message(summary)

    def _give_back(self) -> None:
        self._live.stop()
        self._echo.restore()

    def _draw(self, status: Status, now: float) -> None:
        self._rates.add(now, status.env_steps, status.updates)
        self._returns.add(status.episode_return_mean)
        self._live.update(Screen(self._about, status, self._rates, self._returns), refresh=True)


class ControlEcho:
    """The terminal's habit of printing ^C where the cursor is: in the middle of the dashboard."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None

    def off(self) -> None:
        """Stop it, if there is a terminal."""
        if sys.stdin is not None and sys.stdin.isatty():
            self._before = termios.tcgetattr(sys.stdin)
            changed = termios.tcgetattr(sys.stdin)
            changed[3] &= ~termios.ECHOCTL
            termios.tcsetattr(sys.stdin, termios.TCSANOW, changed)

    def restore(self) -> None:
        """Leave the terminal as it was."""
        if self._before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSANOW, self._before)
            self._before = None
