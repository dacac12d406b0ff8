"""Ends a process of offbeat without Python's finalization."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
from contextlib import suppress
from typing import NoReturn


def exit_process(code: int) -> NoReturn:
    """Write what was printed, run the exit handlers of libraries, and end this process with an exit code.

    With torch, finalization takes up to a second. A thread that still hangs in an env could resume during finalization
    and crash.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - the exit handlers of libraries
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the reader of the pipe has closed it
            stream.flush()
    ctypes.CDLL(None).fflush(None)  # what libraries in C have printed
    os._exit(code)
