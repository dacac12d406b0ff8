"""Flags that several commands share, and flags that are created from the keys of a config table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict, TypeVar, dataclass_transform

from tyro.conf import UseAppendAction, arg

from offbeat.core.field_definitions import field_docstrings, flag_of, hints_of

C = TypeVar("C", bound=type)

Imports = Annotated[UseAppendAction[tuple[str, ...]], arg(name="import", metavar="MODULE")]
RunImports = Annotated[
    UseAppendAction[tuple[str, ...]],
    arg(
        name="import",
        metavar="MODULE",
        help="Python module to import first, for example one that registers the run's env. The current folder is "
        "searched too.",
    ),
]
TrustCode = Annotated[
    bool,
    arg(
        help="Import and call all code that the run names. Use it only for your own runs, or after you have read the "
        "code."
    ),
]
EnvKwargs = Annotated[
    UseAppendAction[tuple[tuple[str, ...], ...]],
    arg(
        metavar="NAME=VALUE ...",
        help="Arguments of the env's constructor. Values are read as in TOML, or else are text.",
    ),
]
Wrappers = Annotated[
    UseAppendAction[tuple[str, ...]],
    arg(
        name="wrapper",
        metavar="MODULE:CLASS",
        help="Wrapper of the env, such as gymnasium.wrappers:FlattenObservation. The first one given is the innermost.",
    ),
]
CheckpointName = Annotated[str, arg(metavar="NAME")]
OtherEnv = Annotated[
    str | None,
    arg(
        metavar="ENV",
        help="Another env with the same observations and actions. Default: that of the run.",
        help_behavior_hint="",
    ),
]
ChosenPolicy = Annotated[
    str | None,
    arg(metavar="NAME", help="Policy of a run that has several. Default: the only one.", help_behavior_hint=""),
]


class ChangedEnv(TypedDict):
    """The arguments of `evaluate` and `watch` that change the env."""

    env: str | None
    env_kwargs: Mapping[str, object] | None
    wrappers: Sequence[str] | None


def changed_env(env: str | None, env_kwargs: Sequence[Sequence[str]], wrappers: Sequence[str]) -> ChangedEnv:
    """Return what the flags --env, --env-kwargs and --wrapper change. None: nothing."""
    return {"env": env, "env_kwargs": _arguments_of(env_kwargs) or None, "wrappers": wrappers or None}


def assigned(groups: Sequence[Sequence[str]]) -> dict[str, object]:
    """Return the settings that all `--set` of a command give, by key."""
    from offbeat.config.assignments import parse_assignments

    return parse_assignments(item for group in groups for item in group)


def env_settings_of(env_kwargs: Sequence[Sequence[str]], wrappers: Sequence[str]) -> dict[str, object]:
    """Return the settings that the flags --env-kwargs and --wrapper give, by key."""
    from offbeat.api.named_code import env_settings

    return env_settings(_arguments_of(env_kwargs), wrappers or None)


def _arguments_of(env_kwargs: Sequence[Sequence[str]]) -> dict[str, object]:
    from offbeat.config.assignments import parse_env_kwargs

    return parse_env_kwargs(item for group in env_kwargs for item in group)


def flags_of(table: type) -> list[str]:
    """Return the keys of a table that have a flag."""
    return [key for key, hint in hints_of(table).items() if flag_of(hint)]


def argument(table: type, key: str, text: str = "") -> Any:
    """Return tyro's description of a key's flag.

    Args:
        table: the class of the config table.
        key: a key of the table that has a flag.
        text: the help; by default, the docstring of the key.
    """
    flag = flag_of(hints_of(table)[key])
    assert flag is not None
    return arg(metavar=flag.metavar, help=text or field_docstrings(table)[key], help_behavior_hint="")


@dataclass_transform(frozen_default=True)
def with_flags(*tables: type, after: str) -> Callable[[C], C]:
    """Decorate a class: make it a frozen dataclass with one more field, of type str or None, per flag of the tables.

    The fields are inserted after the field with the name `after`.
    """

    def add_flags(cls: C) -> C:
        flags = {key: Annotated[str | None, argument(table, key)] for table in tables for key in flags_of(table)}
        own = cls.__annotations__
        position = list(own).index(after) + 1
        cls.__annotations__ = dict([*list(own.items())[:position], *flags.items(), *list(own.items())[position:]])
        for key in flags:
            setattr(cls, key, None)
        dataclass(frozen=True)(cls)
        return cls

    return add_flags
