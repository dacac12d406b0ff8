"""Values as they are typed on the command line: each is written here so that it is read here as the same value."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping

from offbeat.core.frozen_table import PlainTable


def as_text(value: object) -> str:
    """Return the value of a field as it is typed. Its type decides how the text is read."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return argument_text(value)
    if isinstance(value, tuple | list):
        if any(isinstance(item, Mapping | tuple | list) for item in value):
            return argument_text(value)
        items = [as_text(item) for item in value]
        text = ",".join(items)
        return text if items_of(text) == items else argument_text(value)
    return str(value)


def change_text(key: str, before: object, now: object) -> str:
    """Return the message that a setting has another value than before."""
    return f"{key} was {as_text(before)} and is {as_text(now)} now"


def items_of(text: str) -> list[str]:
    """Return the items of a list as it is typed: 64,64 or [64, 64]; ["a,b", "c"] as in TOML; none for no item."""
    text = "" if text == "none" else text.strip()
    if (text[:1], text[-1:]) not in (("[", "]"), ("(", ")")):
        return [item for item in text.split(",") if item]
    items = value_of(text)
    if isinstance(items, tuple) and all(isinstance(item, str) for item in items):
        return list(items)
    return [item.strip(" '\"") for item in text[1:-1].split(",") if item.strip()]


def argument_text(value: object) -> str:
    """Return an argument of an env's constructor, a value of a `PlainTable`, as it is typed: see `value_of`."""
    if isinstance(value, str):
        return value if value.isprintable() and value_of(value) == value else _quoted(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_in_list, value))}]"
    if isinstance(value, Mapping):
        pairs = (f"{_key_text(key)} = {_in_list(each)}" for key, each in value.items())
        return f"{{{', '.join(pairs)}}}"
    return as_text(value)


def _in_list(value: object) -> str:
    return _quoted(value) if isinstance(value, str) else argument_text(value)


def _key_text(key: str) -> str:
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else _quoted(key)


def value_of(text: str) -> object:
    """Return the value of a text without a type: the TOML value if it is a plain one, else the text itself."""
    try:
        tables = tomllib.loads(f"value = {text}")
        return PlainTable(tables)["value"] if len(tables) == 1 else text
    except (ValueError, TypeError, RecursionError):  # ValueError: also if it is not TOML
        return text


def _quoted(text: str) -> str:
    """Return a text in quotes, as TOML reads it, with escapes for all characters that are not printable."""
    written = json.dumps(text, ensure_ascii=False)  # ensure_ascii writes pairs of surrogates, which TOML does not read
    return "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in written)
