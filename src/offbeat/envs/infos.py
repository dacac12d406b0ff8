"""Reads the infos of steps: numbers that become metrics (`info_metrics`), and the flag 'no_decision'.

Only the requested keys are read, so large infos cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offbeat.core.info_names import key_of
from offbeat.core.types import NO_DECISION, Array

KeyPath = tuple[str, ...]
"""Keys of the info, then of nested dicts."""
LATE_NO_DECISION = (
    f"has {NO_DECISION!r} in an info, but not in those of its first steps, so rows without a decision are not recorded",
    "give it in the info of reset and of each step, true or false",
)
"""What is wrong with an env that has this key late, and the remedy."""


def info_reader(names: Sequence[str], target: NDArray[np.float64]) -> Callable[[int, Mapping[str, Any]], None]:
    """Return a function that reads the info of one env into a row of `target`. Missing keys change nothing.

    The function raises ValueError if a value is not a number.

    Args:
        names: K names of `info_metrics`.
        target: Array for the numbers, [n, K].
    """
    paths = _paths(names)

    def read(row: int, info: Mapping[str, Any]) -> None:
        for index, path in enumerate(paths):
            value = _at(info, path)
            if value is not None:
                target[row, index] = _number(path, value)

    return read


def vector_info_reader(names: Sequence[str], target: NDArray[np.float64]) -> Callable[[Array, Mapping[str, Any]], None]:
    """Return a function that reads the infos of a vector env into `target` [n, K]. Missing values are NaN.

    The arguments are those of `info_reader`. In Gymnasium's format `info["x"]` has one number per env, and the
    optional flags `info["_x"]` mark the envs that have one. Values of invalid rows are not read.
    """
    paths = _paths(names)

    def read(valid: Array, infos: Mapping[str, Any]) -> None:
        target.fill(np.nan)
        for index, path in enumerate(paths):
            values = _at(infos, path)
            if values is None:
                continue
            given = _at(infos, (*path[:-1], f"_{path[-1]}"))
            present = valid if given is None else valid & np.asarray(given, np.bool_)
            target[present, index] = _numbers(path, values, len(target))[present]

    return read


def no_decision_in(infos: Any, columns: int) -> NDArray[np.bool_] | None:
    """Return which envs of a vector env have nothing to decide, [columns]; None if the infos have no such key.

    Raises:
        ValueError: the value is not one flag per env.
    """
    flags = infos.get(NO_DECISION) if isinstance(infos, Mapping) else None
    if flags is None:
        return None
    array: NDArray[np.bool_] = _numbers((NO_DECISION,), flags, columns) != 0
    given = infos.get(f"_{NO_DECISION}")
    if given is not None:
        array &= np.asarray(given, np.bool_)
    return array


def _paths(names: Sequence[str]) -> list[KeyPath]:
    return [tuple(key_of(name).split("/")) for name in names]


def _at(info: Any, path: KeyPath) -> Any:
    for key in path:
        if not isinstance(info, Mapping):
            return None
        info = info.get(key)
    return info


def _number(path: KeyPath, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(
            f"info {'/'.join(path)} is {type(value).__name__}, but info_metrics expects a number"
        ) from None


def _numbers(path: KeyPath, values: Any, columns: int) -> NDArray[np.float64]:
    array = np.asarray(values)
    if array.shape != (columns,) or array.dtype.kind not in "biuf":
        raise ValueError(
            f"info {'/'.join(path)} is an array of {array.dtype} and shape {array.shape}, but one number for each of "
            f"{columns} envs is expected"
        )
    return array.astype(np.float64)
