"""Callbacks: user functions that get each metrics line and may stop the run or add metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, Literal

from offbeat.core.errors import RunFailed

Answer = Literal["stop"] | Mapping[str, float] | None
Callback = Callable[[dict[str, Any]], Answer]
"""Is called with each metrics line. Returns None, 'stop' to stop the run at the next boundary, or metrics by name to
add to the next line."""


def answer_of(callback: Callback, line: Mapping[str, Any]) -> Literal["stop"] | dict[str, float] | None:
    """Call a callback with a copy of a metrics line; return its answer, with numbers as floats.

    Raises:
        RunFailed: the callback returned something else.
    """
    answer: Any = callback(dict(line))
    if answer is None:
        return None
    if isinstance(answer, str) and answer == "stop":
        return "stop"
    name = getattr(callback, "__qualname__", repr(callback))
    if not isinstance(answer, Mapping):
        raise RunFailed(f"the callback {name} returned {answer!r}, but 'stop', a dict of numbers or None is expected")
    return {_checked_name(key, name): _number(value, key, name) for key, value in answer.items()}


def _checked_name(key: Any, callback: str) -> str:
    if not isinstance(key, str) or not key or not key.isprintable():
        raise RunFailed(f"the callback {callback} returned the key {key!r}, but a name is expected: 'my_metric'")
    return key


def _number(value: Any, key: str, callback: str) -> float:
    if not isinstance(value, Real):
        raise RunFailed(
            f"the callback {callback} returned {key}={value!r}, but a number is expected: return float(...) of it, or "
            "leave it out of the dict while its value is not known"
        )
    return float(value)
