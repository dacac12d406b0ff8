"""Warnings that may come very often, such as those of a full disk: the user sees a few of them."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

WARN_EVERY_S = 60.0
"""Minimum seconds between two warnings."""


class RateLimitedWarning:
    """Shows at most one warning per minute, with the number of warnings that were suppressed since the last one."""

    def __init__(self, notify: Callable[[str], None]) -> None:
        self._notify, self._next, self._suppressed = notify, 0.0, 0

    def __call__(self, text: str) -> None:
        if monotonic() < self._next:
            self._suppressed += 1
            return
        more = f"; {self._suppressed} more since the last warning" if self._suppressed else ""
        self._next, self._suppressed = monotonic() + WARN_EVERY_S, 0
        self._notify(f"{text}{more}")
