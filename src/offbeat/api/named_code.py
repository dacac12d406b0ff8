"""The names of code that users pass to functions as classes or functions."""

from __future__ import annotations

from offbeat.config.registry import path_of
from offbeat.core.errors import ConfigError


def name_of_algorithm(given: object) -> str:
    """Return the name of an algorithm; of a class, its path."""
    return _name_of("algorithm", given, 'offbeat.register_algorithm("my_algorithm", ...)')


def name_of_env(given: object) -> str:
    """Return the id of an env; of a class or function, its path."""
    return _name_of("env", given, 'offbeat.register_env("my_env/MyEnv-v0", ...)')


def _name_of(kind: str, given: object, remedy: str) -> str:
    """Return the name of an algorithm or env; of a class or function, its path.

    Raises:
        ConfigError: other processes cannot import it.
    """
    if isinstance(given, str):
        return given
    if not callable(given):
        raise ConfigError(
            f"{kind} is {given!r}, but a name is expected, or a class or function that creates the {kind}"
        )
    return path_of(given, f"{remedy}, and pass that name")
