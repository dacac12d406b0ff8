"""Texts about the fields of a config, for messages and help: what a field accepts, and how it is typed."""

from __future__ import annotations

from dataclasses import is_dataclass
from fractions import Fraction
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from offbeat.core.argument_notation import value_for_reader
from offbeat.core.checks import Bound, Check, Example
from offbeat.core.field_definitions import flag_of, hints_of
from offbeat.core.frozen_table import PlainTable
from offbeat.core.typed_text import as_text

_DESCRIPTIONS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    Fraction: "a number, or a fraction such as 1/4,",
    PlainTable: "a table of numbers, booleans, text, and lists and tables of these",
}
"""Type -> description of its values, for messages."""
_EXAMPLES = {int: ["1", "2"], float: ["0.5"], bool: ["true"], str: ["first", "second"], Fraction: ["1/4"]}
"""Type -> values, as they are typed."""


def syntax_of(name: str, hint: Any, value: str = "VALUE") -> str:
    """Return the syntax that sets a key to a value on the command line."""
    if hint is PlainTable:
        flags = {"kwargs": "--env-kwargs ", "eval_kwargs": "--set env.eval_kwargs."}
        return f"{flags.get(name, f'--set {name}.')}NAME=VALUE"
    return f"--{name.replace('_', '-')} {value}" if flag_of(hint) else f"--set {name}={value}"


def example_of(hint: Any, default: object = None) -> str:
    """Return a value that a field accepts, as it is typed.

    Args:
        hint: type of the field.
        default: default of the field, which is the example if it is one; None or an empty list is none.
    """
    if default not in (None, (), ""):
        return as_text(default)
    return _examples(hint)[0]


def _examples(hint: Any) -> list[str]:
    """Return at least one value that a field of this type accepts, as it is typed."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        given = [mark.example for mark in reversed(args[1:]) if isinstance(mark, Check | Example) and mark.example]
        of_bound = [text for mark in args[1:] if isinstance(mark, Bound) for text in mark.examples(args[0])]
        return given or of_bound or _examples(args[0])
    if origin is Literal:
        return [str(choice) for choice in args]
    if origin in (Union, UnionType):
        return _examples(next(arg for arg in args if arg is not NoneType))
    if origin is tuple:
        return [",".join(sorted(_examples(args[0])[:2]))]
    return _EXAMPLES.get(hint, ["VALUE"])


def describe(hint: Any) -> str:
    """Return a description of the values that a field accepts."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return " ".join([describe(args[0]), *(str(check) for check in args[1:] if isinstance(check, Check))])
    if origin is Literal:
        return "one of " + ", ".join(args)
    if origin in (Union, UnionType):
        inner = next(arg for arg in args if arg is not NoneType)
        comma = "," if get_origin(_bare(inner)) is tuple else ""
        return f"{describe(inner)}{comma} or {value_for_reader(None)}"
    if origin is tuple:
        return f"a comma-separated list, each item {describe(args[0])}"
    if is_dataclass(hint):
        return f"a table of {', '.join(hints_of(hint))}"  # type: ignore[arg-type]
    return _DESCRIPTIONS[hint]


def _bare(hint: Any) -> Any:
    """Return a type without its conditions."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint
