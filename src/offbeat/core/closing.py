"""Making several objects that must be closed."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol, TypeVar


class Closable(Protocol):
    """An object that must be closed."""

    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


def all_or_closed(makes: Iterable[C]) -> list[C]:
    """Return all objects that an iterator makes; if it fails to make one, close those that it has made before."""
    made: list[C] = []
    try:
        for each in makes:
            made.append(each)  # noqa: PERF402 - those before a failure must be known
    except BaseException:
        for each in made:
            with suppress(Exception):  # the failure is raised
                each.close()
        raise
    return made
