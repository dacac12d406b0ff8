"""Output of all commands: redirects what envs print, and shows progress."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from functools import partial
from time import monotonic

from offbeat.core.messages import ignore
from offbeat.core.printing import can_redraw, print_text

STDOUT, STDERR = 1, 2
LINE_EVERY_S = 10.0
"""Seconds between lines about progress, where no bar can be drawn."""


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Redirect standard output to standard error, also that of compiled code and of child processes.

    Commands with --json write only JSON to standard output; envs may print anything.
    """
    sys.stdout.flush()
    saved = os.dup(STDOUT)
    try:
        os.dup2(STDERR, STDOUT)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        ctypes.CDLL(None).fflush(None)  # output of compiled code that is still in C's buffer
        os.dup2(saved, STDOUT)
        os.close(saved)


@contextmanager
def progress_bar(name: str, *, shown: bool) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on standard error, and yield the function that updates it. Without a terminal, show lines.

    Args:
        name: what is counted.
        shown: whether the bar is shown.

    Yields:
        A function of the number that is done, and of the total number.
    """
    if shown and not can_redraw(sys.stderr):
        yield _lines_of_progress(name)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), disable=not shown, transient=True) as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _lines_of_progress(name: str) -> Callable[[int, int], None]:
    """Return a function of the number that is done, and of the total number, which writes a line at times."""
    written_at = monotonic()

    def update(done: int, total: int) -> None:
        nonlocal written_at
        if monotonic() - written_at >= LINE_EVERY_S:
            written_at = monotonic()
            print(f"{name}: {done} of {total}", file=sys.stderr)

    return update


@contextmanager
def changing_spinner(*, lines: bool) -> Iterator[Callable[[str], None]]:
    """Show a spinner on standard error until the block ends, and yield the function that sets its text.

    `lines`: whether each text is a line where no spinner can be drawn.
    """
    if not can_redraw(sys.stderr):
        yield partial(print_text, stream=sys.stderr) if lines else ignore
        return
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        yield status.update


def spinner(text: str, *, shown: bool = True) -> AbstractContextManager[object]:
    """Show a spinner with a text on standard error until the block ends; only on a terminal."""
    if not (shown and can_redraw(sys.stderr)):
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(text)
