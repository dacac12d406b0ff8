"""What each command takes on the command line, and errors for arguments that it does not take.

Arguments are checked here before tyro parses them, so that all errors have the same form.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tyro.conf import Positional, UseAppendAction

from offbeat.cli.flags import flags_of
from offbeat.cli.words import is_flag, take
from offbeat.config.run_config import RunConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import ConfigError
from offbeat.core.field_definitions import defaults_of, hints_of
from offbeat.core.field_texts import example_of
from offbeat.core.fields import read
from offbeat.core.typed_text import as_text

_EXAMPLES = {
    "ALGO": "ppo", "[ALGO]": "ppo", "ENV": "CartPole-v1", "RUN": "runs/NAME", "RUN...": "runs/NAME",
    "SPEC.toml": "experiment.toml",
    "DIR": "runs/NAME", "FILE": "policy.onnx", "FILE.png": "curve.png", "MODULE": "my_module", "NAME": "my_name",
    "REPO": "me/my-agent", "KEY=VALUE ...": "learning_rate=0.001", "PATTERNS": "red_*,blue_*", "SECONDS": "5",
    "TEXT": "text", "POINTS": "10", "N": "1", "local|ray": "ray", "HOST:PORT|auto": "auto", "NAME=AMOUNT,...": "fast=1",
    "MODULE:CLASS": "my_module:MyWrapper", "NAME=VALUE ...": "size=8", "WHAT": "envs", "episodes": "20",
    "checkpoint": "best", "video": "episode.mp4", "preset": "ppo-cartpole-v1", "metric": "entropy",
}  # fmt: skip
"""Placeholder, or name of a field without a default -> a value."""


@dataclass(frozen=True)
class Argument:
    """An argument of a command."""

    field: str
    """Name of its field in the command's class."""
    name: str
    """The flag, such as --eval-every; of a positional argument, its placeholder."""
    kind: Any
    """Type of its value, without tyro's marks."""
    placeholder: str
    """What stands for its value in a usage text; '' for a switch."""
    is_positional: bool
    is_repeatable: bool
    is_required: bool
    default: Any
    """MISSING if it is required."""
    help: str
    """The help that is declared with its type; '' if its docstring is the help."""

    @property
    def usage(self) -> str:
        """How it is typed: --steps N, or RUN."""
        return self.placeholder if self.is_positional else f"{self.name} {self.placeholder}".rstrip()

    @property
    def takes_many(self) -> bool:
        """Whether several values may follow each other."""
        inner = get_args(self.kind)[:1]
        return get_origin(self.kind) is tuple and (self.is_positional or get_origin(inner[0]) is tuple)

    @property
    def most_values(self) -> int | None:
        """How many values may follow it; None: any number."""
        return None if self.takes_many else int(bool(self.placeholder))

    @property
    def checked_kind(self) -> Any:
        """The type whose values are checked here; None if the command checks them itself."""
        kinds = [self.kind, *(kind for kind in get_args(self.kind) if kind is not type(None))]
        return next((kind for kind in kinds if kind in (int, float) or get_origin(kind) is Literal), None)

    def check(self, value: str) -> str:
        """Refuse a value of the wrong type, that is not one of the choices, or that is empty where this means nothing.

        An empty value is usually that of a shell variable that is not set. As a path, it would be the current folder.
        None is usually that of a variable in Python.

        Returns:
            The value as tyro reads it: 1000 for the whole number 1e3.
        """
        choices = get_args(self.checked_kind)
        example = str(choices[0]) if choices else self.example
        remedy = f"pass, for example, {example if self.is_positional else f'{self.name} {example}'}"
        if not value and self.placeholder != "TEXT":
            raise ConfigError(f"{self.name} is empty: {remedy}")
        if value == "None" and type(None) in get_args(self.kind):  # tyro would read it as not given
            raise ConfigError(f"{self.name} is None: leave it out, or {remedy}")
        if self.checked_kind is None:
            return value
        found = read(self.name.lstrip("-").replace("-", "_"), value, self.checked_kind, remedy)
        return str(found) if self.checked_kind is int else value

    @property
    def example(self) -> str:
        """A value, as it is typed."""
        if type(self.default) in (int, float):
            return as_text(self.default).removesuffix(".0")
        for table in (RunConfig, RuntimeConfig):
            if self.field in flags_of(table) and not self.is_positional:
                return example_of(hints_of(table)[self.field], defaults_of(table)[self.field])
        return _EXAMPLES.get(self.field) or _EXAMPLES.get(self.placeholder) or self.placeholder.partition("|")[0]


class Usage:
    """All arguments of a command."""

    def __init__(self, command: str, cls: type[Any]) -> None:
        self._command, self._class = command, cls

    @cached_property
    def arguments(self) -> list[Argument]:
        """The arguments, in the order of the fields."""
        hints = get_type_hints(self._class, include_extras=True)
        return [_argument(field, hints[field.name]) for field in fields(self._class)]

    @property
    def positional(self) -> list[Argument]:
        return [argument for argument in self.arguments if argument.is_positional]

    @property
    def flags(self) -> dict[str, Argument]:
        """Flag -> argument. A switch has a second flag that turns it off."""
        named = {argument.name: argument for argument in self.arguments if not argument.is_positional}
        off = {f"--no-{name[2:]}": argument for name, argument in named.items() if not argument.placeholder}
        return named | off

    def check(self, given: Sequence[str]) -> list[str]:
        """Refuse arguments that the command does not take, or that lack something; return them as tyro reads them.

        Positional arguments are first: argparse would not take a list of them with flags in between.

        Raises:
            ConfigError: with an example of what is expected.
        """
        if {"--help", "-h"} & set(given):
            return list(given)
        checked: list[str] = []
        positional: list[str] = []
        fields_given: set[str] = set()
        rest = list(given)
        while rest:
            token = rest.pop(0)
            if is_flag(token):
                argument = self._flag(token, rest, positional)
                if argument.field in fields_given and not argument.is_repeatable:
                    raise ConfigError(f"{argument.name} is given twice: pass it once")
                fields_given.add(argument.field)
                checked += _checked_flag(argument, token, rest)
            else:
                positional.append(token)
        self._check_positional(positional)
        self._require_flags(fields_given)
        return [*positional, *checked]

    def _flag(self, token: str, rest: Sequence[str], positional: Sequence[str]) -> Argument:
        """Return the argument of a flag.

        Args:
            token: the flag, or --flag=value.
            rest: the words after it.
            positional: the positional arguments before it.

        Raises:
            ConfigError: there is none.
        """
        name, equals, value = token.partition("=")
        name = name.replace("_", "-")
        if name not in self.flags:
            from offbeat.cli.unknown_flags import unknown_flag  # all settings, for an error alone

            self._refuse_positional(name)
            following = value if equals else next(iter(rest), "")
            raise unknown_flag(self._command, self.flags, name, following, positional)
        return self.flags[name]

    def _refuse_positional(self, flag: str) -> None:
        """Refuse a positional argument that is given as a flag."""
        key, fields_of = flag.lstrip("-").replace("-", "_"), {argument.field for argument in self.positional}
        if key in fields_of or (key == "algorithm" and "algo" in fields_of):
            raise ConfigError(f"{flag} is not a flag: leave out {flag}, as in {self._example()}")

    def _require_flags(self, fields_given: Collection[str]) -> None:
        """Refuse a command without one of its required flags."""
        for argument in self.arguments:
            if argument.is_required and not argument.is_positional and argument.field not in fields_given:
                raise ConfigError(f"{argument.name} is missing: run, for example, {self._example()}")

    def _check_positional(self, given: list[str]) -> None:
        expected = self.positional
        least = [argument for argument in expected if argument.is_required]
        if self._command == "train" and given and given[0].endswith(".toml"):
            raise ConfigError(f"{given[0]} is no algorithm: a spec file is run by `offbeat run {quote(given[0])}`")
        if len(given) < len(least):
            missing = least[len(given)]
            words = f" (one of {', '.join(get_args(missing.kind))})" if get_origin(missing.kind) is Literal else ""
            raise ConfigError(f"{missing.name}{words} is missing: run, for example, {self._example()}")
        if len(given) > len(expected) and not any(argument.takes_many for argument in expected):
            takes = " ".join(argument.name for argument in expected) or "no argument but flags"
            settings = ". Settings are passed with --set key=value" if "--set" in self.flags else ""
            raise ConfigError(
                f"{given[len(expected)]!r} is not expected: `offbeat {self._command}` takes {takes}{settings}"
            )
        for argument, value in zip(expected, given, strict=False):
            argument.check(value)

    def _example(self) -> str:
        """Return a complete command."""
        needed = [argument for argument in self.arguments if argument.is_required]
        words = [a.example if a.is_positional else f"{a.name} {a.example}" for a in needed]
        return " ".join(["offbeat", self._command, *words])


def _checked_flag(argument: Argument, token: str, rest: list[str]) -> list[str]:
    """Return a flag as tyro reads it, with its values. Those that follow it are removed from the rest.

    Args:
        argument: what the flag stands for.
        token: the flag, or --flag=value.
        rest: the words after it.

    Raises:
        ConfigError: a value is missing, wrong, or not expected.
    """
    name, equals, value = token.partition("=")
    if not argument.placeholder:
        if equals:
            raise ConfigError(f"{token} has a value, but {argument.name} takes none: pass {argument.name}")
        return [name]
    values = [value] if equals else take(rest, argument.most_values)
    if not values:
        raise ConfigError(f"{argument.name} has no value: pass, for example, {argument.name} {argument.example}")
    values = [argument.check(each) for each in values]
    return [f"{name}={values[0]}"] if equals else [name, *values]


def _argument(field: Any, hint: Any) -> Argument:
    marks = getattr(hint, "__metadata__", ())
    named = {key: value for mark in marks for key, value in getattr(mark, "__dict__", {}).items() if value}
    kind = hint.__origin__ if marks else hint
    placeholder = named.get("metavar") or _placeholder(kind)
    is_positional = Positional in marks
    return Argument(
        field.name,
        named.get("metavar", field.name) if is_positional else f"--{named.get('name', field.name).replace('_', '-')}",
        kind,
        placeholder,
        is_positional,
        UseAppendAction in marks,
        field.default is MISSING,
        field.default,
        str(named.get("help", "")),
    )


def _placeholder(kind: Any) -> str:
    """Return what stands for a value of this kind; '' for a switch."""
    if kind is bool:
        return ""
    options = [kind, *get_args(kind)]
    choices = next((get_args(option) for option in options if get_origin(option) is Literal), ())
    names = {int: "N", float: "NUMBER", str: "NAME", Path: "FILE"}
    return "|".join(choices) or next((names[option] for option in options if option in names), "VALUE")
