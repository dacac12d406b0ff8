"""Functions in place of those that show messages to the user."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeVar, cast

F = TypeVar("F", bound=Callable[..., None])


def ignore(*_messages: object) -> None:
    """Show no message."""


def once(notify: F) -> F:
    """Return a function that shows messages with `notify`, the same message only once."""
    return cast(F, cache(notify))
