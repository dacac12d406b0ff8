"""Output of all commands: redirects what envs print, and shows a spinner during work without a progress bar."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout

STDOUT, STDERR = 1, 2


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
    """Show a progress bar on standard error, and yield the function that updates it.

    Args:
        name: what is counted.
        shown: whether the bar is shown.

    Yields:
        A function of the number that is done, and of the total number.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not (shown and console.is_terminal), transient=True) as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def spinner(text: str, *, shown: bool = True) -> AbstractContextManager[object]:
    """Show a spinner with a text on standard error until the block ends; only on a terminal."""
    if not shown:
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(text)
