"""The standard streams of the `offbeat` command: whatever they are, no command fails because of them."""

from __future__ import annotations

import errno
import io
import os
import sys

from offbeat.core.lossy_stream import lossy

_NOBODY_READS = (errno.EPIPE, errno.EIO)
"""Errors of a pipe whose reader has closed it, and of a terminal that was closed."""


def make_streams_usable() -> None:
    """Open streams that are closed, as daemons are started, and escape characters that the terminal does not have."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)  # it gets the lowest number that is free: this one
            os.set_inheritable(opened, True)
            setattr(sys, name, os.fdopen(opened, mode, encoding="utf-8", closefd=False))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as that of standard error


def is_output_written() -> bool:
    """Write what was printed. Return False, with a message, if that is not possible: another program may need it."""
    try:
        sys.stdout.flush()
    except OSError as error:
        if error.errno in _NOBODY_READS:
            return True
        lossy(sys.stderr).write(f"offbeat: the output could not be written ({error.strerror})\n")
        return False
    return True
