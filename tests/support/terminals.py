"""A terminal for tests."""

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Callable
from typing import TextIO


def shown_on_terminal(write: Callable[[TextIO], object], columns: int) -> str:
    """Return what a terminal with so many columns gets of a function that writes to it, at most 10,000 bytes."""
    terminal, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    try:
        with os.fdopen(inner, "w") as stream:
            write(stream)
            stream.flush()
            return os.read(terminal, 10_000).decode().replace("\r\n", "\n")
    finally:
        os.close(terminal)
