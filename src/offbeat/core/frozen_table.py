"""An immutable table, as a field of a frozen config, and the values that it can have in a file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from numbers import Integral, Real
from typing import Any, TypeVar

V_co = TypeVar("V_co", covariant=True)


class FrozenTable(Mapping[str, V_co]):
    """A mapping that cannot be changed, so that a config with it is hashable. It keeps the order of its keys."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, V_co] | None = None) -> None:
        self._values = dict(values or {})

    def __getitem__(self, key: str) -> V_co:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return repr(self._values)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._values,)


class PlainTable(FrozenTable[Any]):
    """A table of plain values: numbers, booleans, text, and lists (stored as tuples) and tables of these.

    Raises:
        TypeError: a key is not text, or a value is not plain.
        ValueError: a number is not finite, or lists and tables are nested too deeply.
    """

    __slots__ = ()

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        super().__init__({} if values is None else _frozen_values(values, 0))


EMPTY = PlainTable()

MOST_NESTED = 8
"""Largest depth of lists and tables in each other."""


def is_plain(value: object) -> bool:
    """Whether a table can have a value."""
    try:
        PlainTable({"value": value})
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _frozen_values(values: Mapping[str, Any], depth: int) -> dict[str, object]:
    if any(not isinstance(key, str) for key in values):
        raise TypeError
    return {key: _frozen(value, depth) for key, value in values.items()}


def _frozen(value: object, depth: int) -> object:
    if isinstance(value, list | tuple | Mapping):
        if depth == MOST_NESTED:
            raise ValueError
        if isinstance(value, Mapping):
            table = PlainTable()
            table._values = _frozen_values(value, depth + 1)  # noqa: SLF001 - the constructor would count from 0 again
            return table
        return tuple(_frozen(item, depth + 1) for item in value)
    if is_bool(value):
        return bool(value)
    if isinstance(value, str):
        return value
    return _plain_number(value)


def is_bool(value: object) -> bool:
    """Whether a value is True or False, of Python or of NumPy. This module does not load NumPy."""
    return type(value).__name__ in ("bool", "bool_")


def _plain_number(value: object) -> float:
    """Return a number, of Python or of NumPy, as Python's int or float."""
    if isinstance(value, Integral):
        return int(value)
    if not isinstance(value, Real) or isinstance(value, Fraction):
        raise TypeError
    if not math.isfinite(value):
        raise ValueError
    return float(value)


def thawed(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy as a dict, with lists and dicts inside of it: what a file with this table gives."""
    copy: dict[str, Any] = in_toml(table)
    return copy


def in_toml(value: object) -> Any:
    """Return a value of a config as a TOML file has it: with dicts and lists. TOML has neither null nor fractions."""
    if isinstance(value, Mapping):
        return {key: in_toml(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [in_toml(each) for each in value]
    if value is None:
        return "none"
    return str(value) if isinstance(value, Fraction) else value
