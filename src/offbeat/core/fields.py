"""Reads and checks the values of config fields, from the text of the command line or from TOML.

A config is a frozen dataclass. The type hint of a field says what it accepts: `Annotated[int, Bound(1)]`, a Literal, a
tuple, another config, or one of these or None. `read` reads all of them, so all messages have the same form. The JSON
files of a run are read in the same way, because they may come from another user. The texts of the messages are in
`field_texts.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from fractions import Fraction
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from offbeat.core.checks import Bound as Bound  # noqa: PLC0414 - own algorithms import it from here
from offbeat.core.checks import Check, DeviceName, PrintableText, ResourceAmount, Unlimited
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.field_definitions import defaults_of, hints_of, required
from offbeat.core.field_texts import describe, example_of, syntax_of
from offbeat.core.frozen_table import PlainTable, is_bool
from offbeat.core.schedules import ScheduleText
from offbeat.core.typed_text import items_of

T = TypeVar("T")
FILE_REMEDY = "the file was changed, or was written by another version of offbeat"
"""End of the message for an invalid table in a JSON file of a run."""
MOST_BITS = 128
"""The most bits of a whole number that a user may give. Seeds have up to as many; counters of a run have 64."""
Name = Annotated[str, PrintableText()]
Resource = Annotated[str, ResourceAmount()]
Device = Annotated[str, DeviceName()]
Count = Annotated[int, Bound(1)]
"""1, 2, 3, ..."""
Natural = Annotated[int, Bound(0)]
"""0, 1, 2, ..."""
Episodes = Annotated[int, Bound(1, 10**8)]
"""A number of episodes of an evaluation or match: the return and length of each are in memory."""
SMALLEST_IMAGE = 16
"""Minimum height and width, in pixels, of observations that are encoded as images."""
Size = Annotated[int, Bound(0, 2**31 - 1)]
"""Size of one axis of an array."""
Counter = Annotated[int, Bound(0, 2**63 - 1)]
"""A counter of a run, such as env_steps. It fits into 64 bits."""
Nice = Annotated[int, Bound(0, 19)]
"""Niceness of a process: 0 is the usual priority, 19 the lowest."""
Positive = Annotated[float, Bound(above=0)]
Seconds = Annotated[float, Bound(above=0, unit="seconds")]
NonNegative = Annotated[float, Bound(0)]
Share = Annotated[float, Bound(0, 1)]
"""A number from 0 to 1."""
Schedule = Annotated[str, ScheduleText()]
"""A schedule of a setting, see `schedules.py`."""
Ratio = Annotated[Fraction, Bound(above=0)]
"""A positive number, stored as an exact fraction: 1/4, or 0.37 as 37/100."""


def read(name: str, value: object, hint: Any, remedy: str = "", *, default: object = None) -> Any:
    """Return `value` (text, or a value from TOML or JSON) converted to the type `hint`.

    Args:
        name: Name of the field, for messages.
        value: Value to convert.
        hint: Type of the field.
        remedy: End of the message for an invalid value; by default, how to pass a valid value.
        default: Default of the field, an example of a valid value.

    Raises:
        ConfigError: the value has another type, or violates a condition.
    """
    try:
        return _read(value, hint)
    except _TooLarge:
        raise too_large(name, value, remedy or f"pass one with fewer digits, {syntax_of(name, hint, 'N')}") from None
    except (ValueError, TypeError, OverflowError):
        remedy = remedy or f"pass, for example, {syntax_of(name, hint, example_of(hint, default))}"
        raise ConfigError(f"{name} is {in_short(value)}, but {describe(hint)} is expected: {remedy}") from None


class _TooLarge(ValueError):
    """A whole number has more than `MOST_BITS` bits."""


def is_too_large(whole: int) -> bool:
    """Whether a whole number has more than `MOST_BITS` bits."""
    return whole.bit_length() > MOST_BITS


def too_large(name: str, value: object, remedy: str) -> ConfigError:
    """Return the error for a whole number of more than `MOST_BITS` bits."""
    return ConfigError(f"{name} is {in_short(value)}, but a whole number has at most {MOST_BITS} bits: {remedy}")


def in_short(value: object, max_length: int = 600) -> str:
    """Return the repr of a value, truncated if it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python does not convert an int of thousands of digits to text
        return "a value with a number of thousands of digits"
    return shortened(text, max_length)


def shortened(text: str, max_length: int) -> str:
    """Return a text, truncated if it is longer than `max_length`."""
    return text if len(text) <= max_length else f"{text[:max_length]}..."


def _read(value: object, hint: Any) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        result = _read_unlimited(value) if Unlimited in args[1:] else _read(value, args[0])
        if any(check.refuses(result) for check in args[1:] if isinstance(check, Check)):
            raise ValueError
        return result
    if origin is Literal:
        return _read_literal(value, args)
    if origin in (Union, UnionType):
        return _read_optional(value, args)
    if origin is tuple:
        return tuple(_read(item, args[0]) for item in _items(value))
    return _read_table(value, hint) if is_dataclass(hint) else _SCALARS[hint](value)


def _items(value: object) -> Sequence[object]:
    """Return the items of a list: of a list itself, one number for one item, or a text."""
    if isinstance(value, Integral):
        return [value]
    if isinstance(value, list | tuple):
        return value
    if not isinstance(value, str):
        raise TypeError
    return items_of(value)


def _read_table(value: object, hint: Any) -> Any:
    if isinstance(value, hint):
        return value
    if not isinstance(value, Mapping):
        raise TypeError
    return build(hint, value, f"a table {hint.__name__} in a file", FILE_REMEDY)


def _read_literal(value: object, choices: tuple[Any, ...]) -> Any:
    if value is None and "none" in choices:  # none on the command line is None in Python
        return "none"
    if value not in choices:
        raise ValueError
    return value


def _read_optional(value: object, args: tuple[Any, ...]) -> Any:
    if value is None or value == "none":
        return None
    (inner,) = (arg for arg in args if arg is not NoneType)
    return _read(value, inner)


def _read_int(value: object) -> int:
    _read_float(value)  # refuses 3/1
    number = _read_fraction(value)  # a float would round a large seed
    whole = int(number)
    if number != whole:
        raise ValueError
    if is_too_large(whole):
        raise _TooLarge
    return whole


def _read_float(value: object) -> float:
    if is_bool(value) or not isinstance(value, str | Real):
        raise TypeError
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def _read_unlimited(value: object) -> float:
    if is_bool(value) or not isinstance(value, Real) or math.isnan(value):
        raise TypeError
    return float(value)


def _read_fraction(value: object) -> Fraction:
    """Convert the decimal digits: 0.37 becomes 37/100, not the slightly different value of the float.

    A float must have about the same value: not 1e400.
    """
    if is_bool(value) or not isinstance(value, str | Real):
        raise TypeError
    text = str(value)
    if re.search(r"e[+-]?\d{4}", text, re.IGNORECASE):  # it would become a number of as many digits
        raise ValueError
    try:
        fraction = Fraction(text)
    except ZeroDivisionError:
        raise ValueError from None
    _read_float(fraction)
    return fraction


def _read_bool(value: object) -> bool:
    known: dict[object, bool] = {"true": True, "false": False, "yes": True, "no": False}
    if is_bool(value):
        return bool(value)
    if not isinstance(value, str) or value.lower() not in known:
        raise ValueError
    return known[value.lower()]


def _read_str(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _read_plain_table(value: object) -> PlainTable:
    if not isinstance(value, Mapping):
        raise TypeError
    return PlainTable(value)


_SCALARS = {
    int: _read_int,
    float: _read_float,
    bool: _read_bool,
    str: _read_str,
    Fraction: _read_fraction,
    PlainTable: _read_plain_table,
}


def can_read(hint: Any) -> bool:
    """Whether `read` converts text to this type, as a setting needs it."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return can_read(args[0])
    if origin is Literal:
        return all(isinstance(choice, str) for choice in args)
    if origin in (Union, UnionType):
        return len(args) == 2 and NoneType in args and all(can_read(arg) for arg in args if arg is not NoneType)
    if origin is tuple:
        return args[1:] == (...,) and can_read(args[0])
    return isinstance(hint, type) and hint in _SCALARS


def build(config: type[T], values: object, where: str, remedy: str = "", *, prefix: str = "") -> T:
    """Build a config from values by field name, each read and checked.

    Args:
        config: Dataclass of the config.
        values: Table, by the names of the fields.
        where: Source of the values, for messages.
        remedy: End of the message for an invalid value; by default, how to pass a valid value.
        prefix: Of the keys on the command line, for messages.

    Raises:
        ConfigError: a key is unknown (the message suggests the nearest one) or missing, or a value is invalid.
    """
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where} is {in_short(values)}, but a table of keys and values is expected")
    hints = hints_of(config)
    for name in values:
        if name not in hints:
            known = [f"{prefix}{hint}" for hint in hints]
            raise unknown("key", f"{prefix}{name}"[:200], known, f"{where}: {remedy}." if remedy else f"See {where}.")
    missing = [f.name for f in required(config) if f.name not in values]
    if missing:
        keys = "key" if len(missing) == 1 else "keys"
        raise ConfigError(f"{where} lacks {', '.join(missing)}: add the missing {keys}")
    defaults = defaults_of(config)
    return config(
        **{
            name: read(f"{prefix}{name}", each, hints[name], remedy, default=defaults[name])
            for name, each in values.items()
        }
    )
