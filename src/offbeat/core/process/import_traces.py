"""Undoes what libraries change in the caller's process when they are imported."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_SET_BY_LIBRARIES = ("KMP_DUPLICATE_LIB_OK", "PYGAME_HIDE_SUPPORT_PROMPT", "TORCHINDUCTOR_CACHE_DIR")
"""Environment variables that libraries set when they are imported: threadpoolctl, Gymnasium and torch's compiler."""


class ImportTraces:
    """The filters of warnings, environment variables and Python's random numbers at the time of construction."""

    def __init__(self) -> None:
        self._filters = list(warnings.filters)
        self._environment = {name: os.environ.get(name) for name in _SET_BY_LIBRARIES}
        self._random: tuple[Any, ...] | None = random.getstate()

    def undo(self) -> None:
        """Restore all of it."""
        self.undo_draws()
        restore_environment(self._environment)
        if warnings.filters != self._filters:
            warnings.resetwarnings()
            warnings.filters[:] = self._filters  # type: ignore[index]

    def undo_draws(self) -> None:
        """Undo the draws from Python's random numbers. Later ones are those of the user's envs and callbacks."""
        if self._random is not None:
            random.setstate(self._random)
            self._random = None


@contextmanager
def imports_undone() -> Iterator[None]:
    """Undo on exit what the libraries that are imported here change in this process."""
    traces = ImportTraces()
    try:
        yield
    finally:
        traces.undo()


def restore_environment(variables: dict[str, str | None]) -> None:
    """Set environment variables to earlier values; None: the variable was not set."""
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
