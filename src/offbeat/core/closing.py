"""Closing objects: also if something fails before they are used, and if they fail themselves."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Protocol, TypeVar

from offbeat.core.errors import FAILURES, type_and_text


class Closable(Protocol):
    """An object that must be closed."""

    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


@contextmanager
def closed_on_error(made: Sequence[Closable]) -> Iterator[None]:
    """Close the objects, the last first, if the block raises an exception. The sequence may grow in the block."""
    try:
        yield
    except BaseException:
        for each in reversed(made):
            with suppress(*FAILURES):  # the exception of the block is raised
                each.close()
        raise


def all_or_closed(makes: Iterable[C]) -> list[C]:
    """Return all objects that an iterator makes; if it fails to make one, close those that it has made before."""
    made: list[C] = []
    with closed_on_error(made):
        for each in makes:
            made.append(each)  # noqa: PERF402 - those before a failure must be known
    return made


def close_all(made: Iterable[Closable]) -> None:
    """Close all objects, the last first. If one raises an exception, the others are closed before it is raised."""
    with ExitStack() as closing:
        for each in made:
            closing.callback(each.close)


def close_all_or_warn(made: Iterable[Closable], name: str) -> None:
    """Close all objects, the last first: see `close_or_warn`. The caller may have made warnings errors."""
    with ExitStack() as closing:
        for each in made:
            closing.callback(close_or_warn, each, name)


@contextmanager
def closed_or_warn(each: C, name: str) -> Iterator[C]:
    """Close an object after the block, as `close_or_warn` does."""
    try:
        yield each
    finally:
        close_or_warn(each, name)


def close_or_warn(each: Closable, name: str) -> None:
    """Close an object. If that raises an exception, warn: the object, of this name, is no longer needed."""
    try:
        each.close()
    except FAILURES as error:
        warnings.warn(f"{name}: close() raised {type_and_text(error)}", stacklevel=3)
