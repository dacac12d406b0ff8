"""The standard streams of the `offbeat` command: whatever they are, each command does its work to the end.

Messages that cannot be written are dropped. If the output is lost, a command whose result it is has another exit code.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TextIO

from offbeat.core.lossy_stream import first_error, lossy

_NOBODY_READS = (errno.EPIPE, errno.EIO)
"""Errors of a pipe whose reader has closed it, and of a terminal that was closed."""


def make_streams_usable() -> None:
    """Open streams that are closed, as daemons are started, and escape characters that the terminal does not have.

    From then on, printing raises no error.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, _opened_nowhere())  # it gets the lowest number that is free: this one
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as that of standard error
    sys.stdout, sys.stderr = lossy(sys.stdout), lossy(sys.stderr)


def is_output_written() -> bool:
    """Write what was printed. Return False, with a message, if that is not possible: another program may need it.

    What is lost is told once: a second call returns True.
    """
    sys.stdout.flush()
    error = first_error(sys.stdout)
    if error is None or (isinstance(error, OSError) and error.errno in _NOBODY_READS):
        return True
    sys.stdout = _opened_nowhere()
    print(f"offbeat: the output could not be written ({getattr(error, 'strerror', None) or error})", file=sys.stderr)
    return False


def _opened_nowhere() -> TextIO:
    opened = os.open(os.devnull, os.O_RDWR)
    os.set_inheritable(opened, True)
    return os.fdopen(opened, "r+", encoding="utf-8", closefd=False)
