"""Where the `offbeat` command begins and ends: it can be interrupted before anything else is imported."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import NoReturn


def main() -> NoReturn:
    """Run the command that was typed and exit: 0 done, 1 the run failed, 2 bad arguments or config, 130 interrupted."""
    try:
        signal.signal(signal.SIGTERM, _interrupt)
        from offbeat.cli.main import run
        from offbeat.core.caller_state import declare_own_process

        declare_own_process()
        code = run(sys.argv[1:])
        _ignore_signals()
    except KeyboardInterrupt:
        _ignore_signals()
        sys.stderr.write("offbeat: interrupted\n")
        code = 130
    _leave(code)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _ignore_signals() -> None:
    """All is done: a signal could only bring a traceback, or another exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _leave(code: int) -> NoReturn:
    """Exit without taking the interpreter apart.

    That takes torch a second, and a thread that an env still hangs in would wake up in what is left of it.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - what libraries want done at the end
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # whoever read it has gone
            stream.flush()
    os._exit(code)
