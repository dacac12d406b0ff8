"""Ends a process of offbeat without Python's finalization."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

EXIT_S = 60.0
"""Seconds that the exit handlers of libraries get. Some upload data; one that waits for a server may hang."""


def exit_process(code: int) -> NoReturn:
    """Write what was printed, run the exit handlers of libraries, and end this process with an exit code.

    With torch, finalization takes up to a second. A thread that still hangs in an env could resume during finalization
    and crash.
    """
    with exit_after(EXIT_S, code, "an exit handler has not ended"):
        atexit._run_exitfuncs()  # noqa: SLF001 - the exit handlers of libraries
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the reader of the pipe has closed it
            stream.flush()
    ctypes.CDLL(None).fflush(None)  # what libraries in C have printed
    os._exit(code)


@contextmanager
def exit_after(seconds: float, code: int, problem: str) -> Iterator[None]:
    """End this process at once, with an exit code and a message, if the context has not ended after some seconds."""
    limit = threading.Timer(seconds, _exit_at_once, (code, f"{problem} within {seconds:g} s"))
    limit.daemon = True
    with suppress(RuntimeError):  # the system starts no more threads
        limit.start()
    try:
        yield
    finally:
        limit.cancel()


def _exit_at_once(code: int, problem: str) -> NoReturn:
    with suppress(OSError):  # not `sys.stderr`, which may be what hangs
        os.write(2, f"offbeat: {problem}: it is ended now\n".encode())
    os._exit(code)
