"""What envs print must not get into what a command says: JSON on stdout stays JSON."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

STDOUT, STDERR = 1, 2


@contextmanager
def stdout_aside() -> Iterator[None]:
    """Send to stderr what is printed meanwhile, also by compiled code and by child processes."""
    sys.stdout.flush()
    kept = os.dup(STDOUT)
    try:
        os.dup2(STDERR, STDOUT)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        ctypes.CDLL(None).fflush(None)  # what compiled code has printed and C still holds
        os.dup2(kept, STDOUT)
        os.close(kept)
