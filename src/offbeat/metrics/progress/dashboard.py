"""The dashboard: redraws the screen and restores the terminal. `make_view` selects a progress view."""

from __future__ import annotations

import atexit
import os
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TextIO, get_args

from rich.console import Console
from rich.live import Live
from rich.text import Text

from offbeat.core.argument_notation import as_shown
from offbeat.core.errors import ConfigError
from offbeat.core.lossy_stream import lossy
from offbeat.core.printing import can_redraw
from offbeat.metrics.progress.notebook import NotebookLines, display_of_notebook
from offbeat.metrics.progress.rates import Rates
from offbeat.metrics.progress.screen import History, Screen
from offbeat.metrics.progress.status import About, Status
from offbeat.metrics.progress.views import Lines, ProgressKind, Silent, View


def make_view(kind: ProgressKind | None, stream: TextIO | None) -> View:
    """Return the progress view of ``kind``; None selects the dashboard on a terminal, else lines.

    What cannot be written to the stream is dropped. None: the process has no such stream.

    In a notebook both are lines below the cell, in place: a dashboard needs a terminal.
    """
    kind = chosen_kind(kind, stream)
    if kind == "none":
        return Silent()
    if (show := display_of_notebook()) is not None:
        return NotebookLines(show)
    if stream is None:
        return Silent()
    output = lossy(stream)
    return Dashboard(Console(file=output)) if kind == "dashboard" else Lines(output)


def chosen_kind(kind: ProgressKind | None, stream: TextIO | None) -> ProgressKind:
    """Return a kind of progress view; for None, that which suits the stream.

    Raises:
        ConfigError: there is no such kind.
    """
    if kind is None:
        return "dashboard" if can_redraw(stream) else "lines"
    if kind not in get_args(ProgressKind):
        raise ConfigError(f"progress is {kind!r}, but dashboard, lines or none is expected: pass one of these")
    return kind


class Dashboard:
    """A screen that is redrawn in place by `update`, at most four times per second.

    It has no thread: a call of `update` that redraws takes a few milliseconds.
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
        """Start to draw at the bottom of the terminal. Other output appears above the dashboard."""
        self._about = about
        self._echo.off()
        self._live.start()
        atexit.register(self._restore_terminal)  # also if the run ends without `close`

    def update(self, status: Status) -> None:
        """Redraw, or return at once if the last redraw was less than `every_s` ago."""
        self._status = status
        now = self._clock()
        if now >= self._next_s:
            self._next_s = now + self._every_s
            self._draw(status, now)

    def message(self, text: str) -> None:
        """Print ``text`` permanently above the dashboard."""
        self._live.console.print(Text(as_shown(text)))

    def close(self, summary: str) -> None:
        """Draw the last status, with the phase "ended", restore the terminal and print the summary."""
        if self._status is not None and self._live.is_started:
            self._draw(replace(self._status, phase="ended"), self._clock())
        ends_line = self._live.is_started and not self._live.console.is_terminal  # on a terminal, `Live` ends it
        self._restore_terminal()
        atexit.unregister(self._restore_terminal)
        if ends_line:
            self._live.console.line()
        if summary:
            self.message(summary)

    def _restore_terminal(self) -> None:
        self._live.stop()
        self._echo.restore()

    def _draw(self, status: Status, now: float) -> None:
        self._rates.add(now, status.env_steps, status.updates)
        self._returns.add(status.episode_return_mean)
        self._live.update(Screen(self._about, status, self._rates, self._returns), refresh=True)


class ControlEcho:
    """Switches off the terminal's echo of control characters: ^C would appear in the middle of the dashboard."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None

    def off(self) -> None:
        """Switch the echo off, if standard input is a terminal and this process is in its foreground."""
        if sys.stdin is not None and sys.stdin.isatty() and _may_change_terminal():
            self._before = termios.tcgetattr(sys.stdin)
            changed = termios.tcgetattr(sys.stdin)
            changed[3] &= ~termios.ECHOCTL
            termios.tcsetattr(sys.stdin, termios.TCSANOW, changed)

    def restore(self) -> None:
        """Restore the setting of the terminal, if it is still there. In the background it has those of the shell."""
        if self._before is not None and _may_change_terminal():
            with suppress(termios.error):
                termios.tcsetattr(sys.stdin, termios.TCSANOW, self._before)
        self._before = None


def _may_change_terminal() -> bool:
    """Whether this process may change the terminal. In the background, as after `&`, the system would stop it."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:  # it is not the terminal of this session
        return True
