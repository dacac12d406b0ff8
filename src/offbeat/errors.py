"""The errors that a user meets. Each message says what was given, what is expected and what to type."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class OffbeatError(Exception):
    """Base of all errors that are told to the user without a traceback."""

    exit_code = 1


class ConfigError(OffbeatError):
    """Bad input, found before any work starts."""

    exit_code = 2


class RunFailed(OffbeatError):
    """A run that had begun could not go on."""


class Closed(OffbeatError):
    """The gate has been closed: the run is ending, and no more is to be acted."""


class EnvFailed(RunFailed):
    """An env raised, or returned something that breaks the contract, while it was being stepped."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return ' Did you mean ...?' for the nearest known name, or an empty string."""
    options = list(known)
    lowered = {option.lower(): option for option in options}
    nearest = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    return f" Did you mean {lowered[nearest[0]]!r}?" if nearest else ""


def unknown(kind: str, name: str, known: Iterable[str], remedy: str) -> ConfigError:
    """Return the error for a name that is not known, with the nearest one that is."""
    return ConfigError(f"unknown {kind} {name!r}.{suggestion(name, known)} {remedy}")
