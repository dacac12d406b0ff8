"""The env that a thread is calling, to name it when the call does not return.

Envs are called in loops. The position of a loop is read from its local variables, in another thread: it costs nothing
while the envs return.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import CodeType
from typing import Any, TypeVar

Index = Callable[[Mapping[str, Any]], int]
"""Returns the index of the env that a function is calling, among those of the actor, from its local variables."""
F = TypeVar("F", bound=Callable[..., Any])

_LOOPS: dict[int, tuple[CodeType, Index]] = {}
"""By the `id` of the code: the hash of another frame's code needs that of its constants, which may be dicts."""


def calls_envs(index: Index) -> Callable[[F], F]:
    """Declare a function that calls envs one after another. The function itself is not changed.

    Args:
        index: see `Index`. An index is that of a column if each env has one agent, else that of a world.
    """

    def declare(function: F) -> F:
        _LOOPS[id(function.__code__)] = function.__code__, index
        return function

    return declare


def env_called_by(thread: int) -> int | None:
    """Return the index of the env that a thread is calling; None if it calls none, or all of them at once.

    Args:
        thread: the identifier of a thread of this process, not the one that asks.
    """
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - the documented way to other threads' frames
    while frame is not None:
        if (loop := _LOOPS.get(id(frame.f_code))) is not None:
            with suppress(KeyError):  # the loop has not begun
                return loop[1](frame.f_locals)
        frame = frame.f_back
    return None
