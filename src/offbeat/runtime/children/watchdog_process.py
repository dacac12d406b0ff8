"""Starts watchdogs: processes that act when the process that has started them has ended, for whatever reason."""

from __future__ import annotations

import subprocess
import sys

_IGNORE_SIGNALS = """
import signal
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
"""


def start_watchdog(code: str, *arguments: str, stderr: int | None = subprocess.DEVNULL) -> subprocess.Popen[str]:
    """Start a process whose standard input is a pipe, which ends when this process does.

    Args:
        code: what it does; it reads its standard input until the end, and imports only quick modules.
        arguments: its arguments, sys.argv[1:].
        stderr: its standard error; None: that of this process.
    """
    return subprocess.Popen(  # noqa: S603 - our own code, in the same Python
        [sys.executable, "-I", "-S", "-c", _IGNORE_SIGNALS + code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        text=True,
        start_new_session=True,
    )


def end_watchdog(watchdog: subprocess.Popen[str]) -> None:
    """End a watchdog before it acts."""
    watchdog.kill()
    watchdog.communicate()
