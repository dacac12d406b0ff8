"""Prints texts that a terminal can show without a break within a word.

What a user may copy as a whole line, such as a path or the next command, is printed with `print`.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from typing import TextIO

USUAL_WIDTH = 80
"""Columns of a line where the width is not known."""
_SPACES_AND_WORD = re.compile(r" *(?:[(\[]?`[^`]*`[^ ]*|[^ ]+)")
"""A word, or a command between backticks, with what follows it, and the spaces before."""


def can_redraw(stream: TextIO | None) -> bool:
    """Whether a stream is open and a terminal on which a text can be replaced; None: the process has no such stream.

    rich would also say so of a file, if FORCE_COLOR is set.
    """
    with suppress(ValueError, AttributeError):  # it is closed, or an object without this method
        return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    return False


def print_text(text: str, stream: TextIO | None = None, indent: int = 2) -> None:
    """Print a text to a stream, standard output by default, and flush it.

    On a terminal, lines end between words, and a line that continues is indented by `indent` spaces more.
    """
    stream = sys.stdout if stream is None else stream
    if stream.isatty():
        width = _width_of(stream)
        text = "\n".join(wrapped(line, width, indent) for line in text.split("\n"))
    stream.write(text + "\n")
    stream.flush()


def wrapped(line: str, width: int, indent: int) -> str:
    """Return a line as lines of at most `width` columns, which end between words.

    A word that is longer has a line of its own. So has a command between backticks, so that it can be copied.

    Args:
        line: one line of text.
        width: columns of a line; a Chinese character takes two.
        indent: by how many spaces the lines after the first one are indented, more than the first one.
    """
    from rich.cells import cell_len  # not at the top: not every command prints on a terminal

    if cell_len(line) <= width:
        return line
    margin = line[: len(line) - len(line.lstrip(" "))] + indent * " "
    lines = [""]
    for word in _SPACES_AND_WORD.findall(line):
        if cell_len(lines[-1] + word) <= width or not lines[-1].strip():
            lines[-1] += word
        else:
            lines.append(margin + word.lstrip(" "))
    return "\n".join(lines)


def _width_of(terminal: TextIO) -> int:
    """Return how many columns a line of a terminal has."""
    with suppress(OSError, ValueError):
        return os.get_terminal_size(terminal.fileno()).columns or USUAL_WIDTH
    return USUAL_WIDTH
