"""What the class of a config says about its fields: their types, flags, defaults and docstrings."""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, ClassVar, get_origin, get_type_hints

from offbeat.core.checks import Flag


def flag_of(hint: Any) -> Flag | None:
    """Return the flag of the field with this type hint; None if it has no flag."""
    return next((mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Flag)), None)


def hints_of(config: type) -> dict[str, Any]:
    """Return field -> type hint of a config. The hints include the conditions in `Annotated`."""
    return _hints_of(config)


@cache
def _hints_of(config: Any) -> dict[str, Any]:
    hints = get_type_hints(config, include_extras=True)
    return {name: hint for name, hint in hints.items() if get_origin(hint) is not ClassVar}


def defaults_of(config: type) -> dict[str, Any]:
    """Return field -> default of a dataclass; None for a field that must be given."""
    assert is_dataclass(config)
    return {f.name: None if f.default is MISSING else f.default for f in fields(config)}


def required(config: type) -> list[Any]:
    """Return the fields of a config that have no default."""
    if not is_dataclass(config):
        raise TypeError(f"{config} is not a dataclass")
    return [f for f in fields(config) if f.default is MISSING and f.default_factory is MISSING]


def field_docstrings(config: type) -> dict[str, str]:
    """Return the docstring under each field of a dataclass, those of base classes included, each on one line."""
    return _field_docstrings(config)


@cache
def _field_docstrings(config: Any) -> dict[str, str]:
    notes: dict[str, str] = {}
    for cls in reversed(config.__mro__[:-1]):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
        except (OSError, TypeError):  # the class was not made in a file, or the file does not exist
            continue
        assert isinstance(body, ast.ClassDef)
        for field, note in zip(body.body, body.body[1:], strict=False):
            match field, note:
                case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    notes[name] = " ".join(text.split())
    return notes
