"""Python warnings that name the line of the user's program, not one of offbeat."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

from offbeat.core.argument_notation import in_python


def warn_caller(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn of the line that called offbeat. Arguments in the text are written as in Python."""
    warnings.warn(in_python(text), category, stacklevel=_callers_level())


def _callers_level() -> int:
    """Return the `stacklevel` with which the caller of this function warns of the user's line.

    It is that of the first frame outside of offbeat.
    """
    package = f"{Path(__file__).parents[1]}{os.sep}"
    level, frame = 1, sys._getframe(1)  # noqa: SLF001 - as the warnings of the standard library do
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        level, frame = level + 1, frame.f_back
    return level
