"""Functions in place of those that show messages to the user."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache


def ignore(*_messages: object) -> None:
    """Show no message."""


def once(notify: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that shows messages with `notify`, the same text only once."""
    return cache(notify)
