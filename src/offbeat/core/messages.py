"""Functions in place of those that show messages to the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

F = TypeVar("F", bound=Callable[..., None])


def ignore(*_messages: object) -> None:
    """Show no message."""


def once(notify: F) -> F:
    """Return a function that shows messages with `notify`, each text only once, whatever its other arguments are."""
    texts: set[str] = set()

    def show(text: str, *others: object) -> None:
        if text not in texts:
            texts.add(text)
            notify(text, *others)

    return cast(F, show)
