"""`checked`: refuses arguments of wrong names and wrong plain types, in the public functions of `offbeat`."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from numbers import Integral, Real
from typing import Any, NamedTuple, ParamSpec, TypeVar

from offbeat.config.other_libraries import other_calls
from offbeat.core.errors import ConfigError, suggestion
from offbeat.core.fields import in_short, is_too_large, too_large
from offbeat.core.frozen_table import is_bool

P = ParamSpec("P")
R = TypeVar("R")


def _as_given(value: object) -> object:
    return value


def _as_texts(values: Iterable[object]) -> tuple[object, ...]:
    """Return the items of a list of texts.

    Raises:
        TypeError: one is no text.
    """
    texts = tuple(values)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError
    return texts


class _Kind(NamedTuple):
    """A type of arguments that is checked."""

    accepts: Callable[[object], bool]
    words: str
    example: str
    convert: Callable[[Any], object] = _as_given
    """Makes Python's own number of a number of NumPy, or an int of a whole float such as 2e6.

    It raises TypeError if only an item of the value has another type.
    """


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not is_bool(value)


def _is_whole(value: object) -> bool:
    return not is_bool(value) and (
        isinstance(value, Integral) or (isinstance(value, Real) and float(value).is_integer())
    )


_RUN = "a run directory or a Run"
_KINDS = {
    "int": _Kind(_is_whole, "a whole number", "10", int),
    "float": _Kind(_is_number, "a number", "0.5", float),
    "bool": _Kind(is_bool, "True or False", "True", bool),
    "str": _Kind(lambda value: isinstance(value, str), "text", '"..."'),
    "FormatName": _Kind(lambda value: isinstance(value, str), "the name of a format", '"onnx"'),
    "GivenPath": _Kind(lambda value: isinstance(value, str | os.PathLike), "a path", '"runs/first"'),
    "GivenPolicies": _Kind(
        lambda value: callable(value) or isinstance(value, str | os.PathLike | Mapping),
        f"{_RUN}, or a loaded policy",
        '"runs/first"',
    ),
    "Sequence[str]": _Kind(
        lambda value: isinstance(value, Iterable) and not isinstance(value, str | bytes),
        "a list of texts",
        '["text"]',
        _as_texts,
    ),
    "Sequence[GivenPath]": _Kind(
        lambda value: isinstance(value, Iterable) and not isinstance(value, str | os.PathLike),
        "a list of run directories",
        '["runs/a", "runs/b"]',
    ),
    "Callable[[int, int], None]": _Kind(callable, "a function", "my_function"),
    "None": _Kind(lambda value: value is None, "None", "None"),
}
"""Annotation -> its kind. Arguments with other annotations are checked where they are used."""

_OF_COMMANDS = ("on_step", "nodes", "notify")
"""Arguments that the command line passes, for its progress, its messages and a cluster. `help` and messages do not list
them."""


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function: arguments of wrong names or plain types are refused before it is called.

    The wrapped function raises ConfigError for them. Its signature, as `help` shows it, is without `_OF_COMMANDS`.
    """
    signature = inspect.signature(function)
    public = [parameter for name, parameter in signature.parameters.items() if name not in _OF_COMMANDS]
    kinds = {
        name: parts
        for name, parameter in signature.parameters.items()
        if (parts := str(parameter.annotation).split(" | ")) and set(parts) <= _KINDS.keys()
    }

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise _wrong_names(function.__name__, signature, kwargs, error) from None
        for name, parts in kinds.items():
            if name in given.arguments:
                given.arguments[name] = _converted(signature.parameters[name], given.arguments[name], parts)
        return function(*given.args, **given.kwargs)

    vars(call)["__signature__"] = signature.replace(parameters=public)
    return call


def _converted(parameter: inspect.Parameter, value: object, parts: list[str]) -> object:
    """Return a value as the first kind that accepts it.

    Raises:
        ConfigError: none does.
    """
    for kind in map(_KINDS.__getitem__, parts):
        if kind.accepts(value):
            try:
                converted = kind.convert(value)
            except TypeError:
                break
            if type(converted) is int and is_too_large(converted):
                raise too_large(parameter.name, value, f"pass {parameter.name} with fewer digits")
            return converted
    raise _wrong_type(parameter, value, parts)


def _wrong_type(parameter: inspect.Parameter, value: object, parts: list[str]) -> ConfigError:
    """Return the error for a value; the example is the default, if that is a number or a text."""
    name, default = parameter.name, parameter.default
    expected = " or ".join(_RUN if name == "run" and part == "GivenPath" else _KINDS[part].words for part in parts)
    usual = json.dumps(default) if type(default) in (int, float, str) else _KINDS[parts[0]].example
    return ConfigError(f"{name} is {in_short(value)}, but {expected} is expected: pass {name}={usual}")


def _wrong_names(
    function: str, signature: inspect.Signature, given: Mapping[str, object], error: TypeError
) -> ConfigError:
    """Return the error for arguments that do not fit the signature of a function."""
    names = [name for name, parameter in signature.parameters.items() if parameter.kind is not parameter.VAR_KEYWORD]
    listed = [name for name in names if name not in _OF_COMMANDS]
    takes_others = len(names) < len(signature.parameters)
    others = ", and those that `offbeat list settings` shows" if takes_others else ""
    remedy = f"offbeat.{function} has the arguments {', '.join(listed)}{others}"
    for name in given:
        if name in names or (takes_others and name not in other_calls()):
            continue
        if name in other_calls():
            return ConfigError(f"unknown argument {name!r}: {other_calls()[name]}. {remedy}")
        return ConfigError(f"unknown argument {name!r}.{suggestion(name, listed, likeness=0.7)} {remedy}")
    by_position = [name for name in listed if signature.parameters[name].kind is not inspect.Parameter.KEYWORD_ONLY]
    if "positional" in str(error):
        return ConfigError(
            f"offbeat.{function}: {error}: only {', '.join(by_position)} can be passed by position, and all others by "
            f"name, as in name=value. {remedy}"
        )
    return ConfigError(f"offbeat.{function}: {error}. {remedy}")


def no_attribute(owner: object, name: str) -> AttributeError:
    """Return the error for an attribute that an object does not have; it says what to write for that of a library."""
    kind = type(owner).__name__
    return AttributeError(f"{kind!r} object has no attribute {name!r}. {other_calls().get(name, '')}".rstrip(". "))
