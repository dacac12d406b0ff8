"""Prints texts that a terminal can show without a break within a word."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from textwrap import wrap
from typing import TextIO

USUAL_WIDTH = 80
"""Characters of a line where the width is not known."""
_NO_BREAK = "\0"
"""Stands for a space at which a line does not end."""


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
    """Return a line as lines of at most `width` characters, which end between words.

    A word that is longer has a line of its own. So has a command between backticks, so that it can be copied.

    Args:
        line: one line of text.
        width: characters of a line.
        indent: by how many spaces the lines after the first one are indented, more than the first one.
    """
    if len(line) <= width:
        return line
    margin = line[: len(line) - len(line.lstrip(" "))] + indent * " "
    whole = re.sub(r"`[^`]*`", lambda command: command[0].replace(" ", _NO_BREAK), line)
    lines = wrap(
        whole,
        width,
        subsequent_indent=margin,
        break_long_words=False,
        break_on_hyphens=False,
        expand_tabs=False,
        replace_whitespace=False,
    )
    return "\n".join(lines).replace(_NO_BREAK, " ")


def _width_of(terminal: TextIO) -> int:
    """Return how many characters a line of a terminal has."""
    with suppress(OSError, ValueError):
        return os.get_terminal_size(terminal.fileno()).columns or USUAL_WIDTH
    return USUAL_WIDTH
