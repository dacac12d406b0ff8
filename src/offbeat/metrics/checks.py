"""Checks of the metrics that a user's code returns: their names and values."""

from __future__ import annotations

from typing import Any

from offbeat.core.errors import RunFailed


def refused_name(owner: str, name: str) -> RunFailed:
    """Return the error for a metric that cannot have its name; `owner`: who returned it, in words."""
    why = "the name of another metric" if name else "empty"
    return RunFailed(f"{owner} returned {name!r}, which is {why}: use another name")


def metric_value(name: str, value: Any) -> float:
    """Return a metric of an algorithm, which is a number, or an array or tensor with one element.

    Raises:
        RunFailed: it is something else.
    """
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise _not_a_number(name, value) from error


def _not_a_number(name: str, value: object) -> RunFailed:
    if shape := getattr(value, "shape", ()):
        return RunFailed(
            f"the algorithm returned the metric {name!r} with the shape {tuple(shape)}, but a number is expected: pass "
            "one metric for each value, or their mean"
        )
    return RunFailed(
        f"the algorithm returned the metric {name!r} = {value!r}, but a number is expected: pass float(...)"
    )
