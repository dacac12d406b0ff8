"""What users pass to functions as code, and arguments of envs: its names and settings in a config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offbeat.config.env import KWARGS
from offbeat.config.importing import path_of
from offbeat.config.keys import in_key_and_table
from offbeat.config.registry import ALGORITHMS
from offbeat.core.errors import ConfigError
from offbeat.core.fields import in_short
from offbeat.core.frozen_table import MOST_NESTED, is_plain


def with_env_settings(
    settings: Mapping[str, object], env_kwargs: Mapping[str, object] | None, wrappers: Sequence[object] | None
) -> dict[str, object]:
    """Return settings by key, with those that the arguments `env_kwargs` and `wrappers` of a function are.

    Raises:
        ConfigError: as `env_settings`, or a setting is given twice.
    """
    of_env = env_settings(env_kwargs, wrappers)
    for key in settings.keys() & of_env.keys():
        raise in_key_and_table(key, "env_kwargs")
    return {**settings, **of_env}


def env_settings(env_kwargs: Mapping[str, object] | None, wrappers: Sequence[object] | None) -> dict[str, object]:
    """Return the settings that the arguments `env_kwargs` and `wrappers` of a function are, by key.

    Raises:
        ConfigError: a wrapper cannot be imported by other processes, or an argument has another type.
    """
    settings: dict[str, object] = {}
    if env_kwargs is not None:
        if not isinstance(env_kwargs, Mapping):
            raise ConfigError(
                f"env_kwargs is {in_short(env_kwargs)}, but a dict is expected: pass --env-kwargs NAME=VALUE"
            )
        require_plain("env_kwargs", env_kwargs)
        settings |= {f"{KWARGS}{name}": value for name, value in env_kwargs.items()}
    if wrappers is not None:
        if isinstance(wrappers, str) or not isinstance(wrappers, Sequence):
            raise ConfigError(
                f"wrappers is {in_short(wrappers)}, but a list is expected: pass --wrapper my_module:MyWrapper"
            )
        settings["wrappers"] = tuple(map(name_of_wrapper, wrappers))
    return settings


def require_plain(place: str, arguments: Mapping[str, object]) -> None:
    """Refuse arguments of a constructor that a file cannot hold.

    Raises:
        ConfigError: with the place of the first part that is wrong.
    """
    for name, value in arguments.items():
        _require_plain(f"{place}[{name!r}]", value)


def _require_plain(place: str, value: object, depth: int = 0) -> None:
    """Refuse one argument of a constructor that a file cannot hold.

    Raises:
        ConfigError: with the place of its first part that is wrong.
    """
    if is_plain(value):
        return
    if depth < MOST_NESTED and isinstance(value, Mapping | list | tuple):
        for key, part in value.items() if isinstance(value, Mapping) else enumerate(value):
            _require_plain(f"{place}[{key!r}]", part, depth + 1)
    raise ConfigError(
        f"{place} is {in_short(value)}, but a finite number, a boolean, text, or a list or dict of these is expected, "
        f"with text as keys, and at most {MOST_NESTED} of them in each other: leave it out, or pass another value"
    )


def name_of_algorithm(given: object) -> str:
    """Return the name of an algorithm; of a class, its path, but the name of one that is built in."""
    path = _name_of("algorithm", given, 'offbeat.register_algorithm("my_algorithm", ...)')
    return next((name for name, entry in ALGORITHMS.items() if entry.algorithm == path), path)


def name_of_env(given: object) -> str:
    """Return the id of an env; of a class or function, its path."""
    return _name_of("env", given, 'offbeat.register_env("my_env/MyEnv-v0", ...)')


def name_of_wrapper(given: object) -> str:
    """Return the path of a wrapper of an env, which is given as its path or its class."""
    return _name_of("wrapper", given)


def name_of_encoder(given: object) -> str:
    """Return the name of an encoder; of a class or function, its path."""
    return _name_of("encoder", given, 'offbeat.register_encoder("my_encoder", ...)')


def _name_of(kind: str, given: object, remedy: str = "") -> str:
    """Return the name of an algorithm or env; of a class or function, its path.

    Raises:
        ConfigError: other processes cannot import it.
    """
    if isinstance(given, str) and given:
        return given
    if not callable(given):
        made = kind == "env" and hasattr(given, "reset")
        known = getattr(getattr(given, "spec", None), "id", None)
        own_id = f'its id, "{known}"' if known else "its id"
        why = f", as offbeat makes its own envs: pass {own_id}, or the class" if made else ""
        raise ConfigError(
            f"{kind} is {given!r}, but a name is expected, or a class or function that creates the {kind}{why}"
        )
    return path_of(given, remedy and f"{remedy}, and pass that name")
