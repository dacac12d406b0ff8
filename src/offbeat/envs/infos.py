"""Numbers in the infos of steps: what an env says of itself, to be metrics.

Only what is asked for is looked at, so infos may be as large as they like, and cost nothing where nothing is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offbeat.core.types import NO_DECISION, Array

Path = tuple[str, ...]
"""The keys that lead to a number: of the info, then of dicts in it."""


def number_reader(names: Sequence[str], target: NDArray[np.float64]) -> Callable[[int, Mapping[str, Any]], None]:
    """Return the function that reads the info of one env into a row of `target` [n, K]; what is missing stays.

    It raises ValueError at what is no number.

    Args:
        names: K keys of an info; 'a/b' is the key b of the dict a.
        target: where the numbers are kept.
    """
    paths = [tuple(name.split("/")) for name in names]

    def read(row: int, info: Mapping[str, Any]) -> None:
        for place, path in enumerate(paths):
            value = _at(info, path)
            if value is not None:
                target[row, place] = _number(path, value)

    return read


def numbers_reader(names: Sequence[str], target: NDArray[np.float64]) -> Callable[[Array, Mapping[str, Any]], None]:
    """Return the function that reads the infos of a vector env into `target` [n, K]: NaN where there is nothing.

    Arguments are those of `number_reader`. In Gymnasium's form `info["x"]` has one number an env, and the flags
    `info["_x"]`, if there are any, say which of them have given one. Of rows that are not valid nothing is read.
    """
    paths = [tuple(name.split("/")) for name in names]

    def read(valid: Array, infos: Mapping[str, Any]) -> None:
        target.fill(np.nan)
        for place, path in enumerate(paths):
            values = _at(infos, path)
            if values is None:
                continue
            given = _at(infos, (*path[:-1], f"_{path[-1]}"))
            present = valid if given is None else valid & np.asarray(given, np.bool_)
            target[present, place] = _numbers(path, values, len(target))[present]

    return read


def no_decision_of(infos: Any, columns: int) -> NDArray[np.bool_] | None:
    """Return in which envs of a vector env there is nothing to decide, [columns]; None where infos say nothing of it.

    Raises:
        ValueError: it is not a flag for each env.
    """
    flags = infos.get(NO_DECISION) if isinstance(infos, dict) else None
    if flags is None:
        return None
    array: NDArray[np.bool_] = _numbers((NO_DECISION,), flags, columns) != 0
    given = infos.get(f"_{NO_DECISION}")
    if given is not None:
        array &= np.asarray(given, np.bool_)
    return array


def _at(info: Any, path: Path) -> Any:
    for key in path:
        if not isinstance(info, Mapping):
            return None
        info = info.get(key)
    return info


def _number(path: Path, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(
            f"info {'/'.join(path)} is {type(value).__name__}, but a number is expected of what info_metrics names"
        ) from None


def _numbers(path: Path, values: Any, columns: int) -> NDArray[np.float64]:
    array = np.asarray(values)
    if array.shape != (columns,) or array.dtype.kind not in "biuf":
        raise ValueError(
            f"info {'/'.join(path)} is an array of {array.dtype} and shape {array.shape}, but a number for each of "
            f"{columns} envs is expected"
        )
    return array.astype(np.float64)
