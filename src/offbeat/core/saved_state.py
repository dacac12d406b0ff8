"""A state as a checkpoint has it: plain values as JSON, and its arrays beside them, named by their path."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from offbeat.core.fields import in_short
from offbeat.core.strict_json import DEEPEST, Unreadable, parse_object
from offbeat.core.types import Array, Tree

_ARRAY = "$array"
"""Key in the JSON with the name of an array."""
_SEPARATOR = "::"
"""Separates the keys of nested dicts in the names of arrays. Names of observations contain slashes."""
_DEEPEST = DEEPEST - 10
"""Maximum nesting of a state of envs, which lies a few levels deep in the state of the run."""
DTYPE_NAMES = {
    np.dtype(kind): name
    for name, kind in {
        "BOOL": "?", "U8": "u1", "U16": "<u2", "U32": "<u4", "U64": "<u8", "I8": "i1", "I16": "<i2", "I32": "<i4",
        "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
    }.items()
}  # fmt: skip
"""Dtypes of the arrays that a checkpoint can store -> their names in safetensors files."""
SAVABLE = (
    "a dict whose keys are text, and whose values are numbers, text, booleans, None, NumPy arrays of numbers, or dicts "
    "and lists of these"
)
"""What a checkpoint can store, in words."""


class NotSavable(TypeError):
    """A state has something that a checkpoint cannot store. The message says what and where."""


def split(state: Mapping[str, Any]) -> tuple[dict[str, Any], Tree]:
    """Return a state as JSON, and the arrays in it.

    Raises:
        NotSavable: it has something else than dicts with keys of text, lists, arrays, numbers, text, booleans and None.
    """
    arrays: Tree = {}
    return _split(state, "", arrays), arrays


def join(state: Mapping[str, Any], arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Return the state that `split` has split.

    Raises:
        Unreadable: it refers to an array that is not there.
    """
    return _join(state, arrays)  # type: ignore[no-any-return]


def saved_and_loaded(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a checkpoint gives back of a state of envs: a copy. A tuple is a list in it.

    Raises:
        NotSavable: a checkpoint cannot store it, or cannot be read with it.
    """
    read, arrays = _read_back(state)
    return join(read, {name: array.copy(order="C") for name, array in arrays.items()})


def require_savable(state: Mapping[str, Any]) -> None:
    """Check that a checkpoint can store a state of envs. Raises as `saved_and_loaded`."""
    _read_back(state)


def _read_back(state: Mapping[str, Any]) -> tuple[dict[str, Any], Tree]:
    """Return the JSON of a state, written and read again, and its arrays."""
    try:
        plain, arrays = split(state)
        return parse_object(json.dumps(plain).encode(), _DEEPEST), arrays
    except RecursionError:  # also if it contains itself
        raise NotSavable("the state is nested too deep") from None
    except Unreadable as error:
        raise NotSavable(f"the state {error}") from None
    except ValueError:
        raise NotSavable("the state has a whole number of thousands of digits") from None


def _split(value: Any, path: str, arrays: Tree) -> Any:
    """Return `value` as JSON. Its arrays are moved to `arrays`, named by their path."""
    if isinstance(value, np.ndarray):
        if value.dtype not in DTYPE_NAMES:
            raise NotSavable(f"{_shown(path)} is an array of {value.dtype}")
        if path in arrays:
            raise NotSavable(f"two arrays have the same path, {_shown(path)}")
        arrays[path] = value
        return {_ARRAY: path}
    if isinstance(value, Mapping):
        return {_key(key, path): _split(item, f"{path}{_SEPARATOR}{key}", arrays) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_split(item, f"{path}{_SEPARATOR}{i}", arrays) for i, item in enumerate(value)]
    plain = value.item() if isinstance(value, np.generic) else value
    if plain is None or isinstance(plain, bool | int | float | str):
        return plain
    raise NotSavable(f"{_shown(path)} is of type {type(value).__name__}")


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise NotSavable(f"{_shown(path)} has the key {in_short(key)}, which is no text")
    if key == _ARRAY:
        raise NotSavable(f"{_shown(path)} has the key {_ARRAY}, which a checkpoint uses itself")
    return key


def _shown(path: str) -> str:
    return path.removeprefix(_SEPARATOR).replace(_SEPARATOR, " / ") or "the state"


def _join(value: Any, arrays: Mapping[str, Array]) -> Any:
    """Undo `_split`."""
    if isinstance(value, dict):
        if _ARRAY in value:
            return _named(value, arrays)
        return {key: _join(item, arrays) for key, item in value.items()}
    if isinstance(value, list):
        return [_join(item, arrays) for item in value]
    return value


def _named(value: Mapping[str, Any], arrays: Mapping[str, Array]) -> Array:
    name = value[_ARRAY]
    if len(value) > 1 or not isinstance(name, str) or name not in arrays:
        raise Unreadable(f"does not have the array {in_short(name)} that the state refers to")
    return arrays[name]
