"""Flags of keys that have one: name, type and help are those of the table that the key is in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, dataclass_transform

from tyro.conf import arg

from offbeat.core.fields import field_docstrings, flag_of, hints_of

C = TypeVar("C", bound=type)


def flags_of(table: type) -> list[str]:
    """Return the keys of a table that have a flag."""
    return [key for key, hint in hints_of(table).items() if flag_of(hint)]


def argument(table: type, key: str, text: str = "") -> Any:
    """Return what tyro is to know of a key's flag.

    Args:
        table: the key is in.
        key: has a flag.
        text: the help; by default, the docstring of the key.
    """
    flag = flag_of(hints_of(table)[key])
    assert flag is not None
    return arg(metavar=flag.metavar, help=text or field_docstrings(table)[key], help_behavior_hint="")


@dataclass_transform(frozen_default=True)
def with_flags(*tables: type, after: str) -> Callable[[C], C]:
    """Make a class a frozen dataclass, with a field behind `after` for each flag of the tables: text, or None."""

    def changed(cls: C) -> C:
        flags = {key: Annotated[str | None, argument(table, key)] for table in tables for key in flags_of(table)}
        own = cls.__annotations__
        place = list(own).index(after) + 1
        cls.__annotations__ = dict([*list(own.items())[:place], *flags.items(), *list(own.items())[place:]])
        for key in flags:
            setattr(cls, key, None)
        dataclass(frozen=True)(cls)
        return cls

    return changed
