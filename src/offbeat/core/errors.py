"""The errors that a user meets, and what is shown of those in their own code.

Each message says what was given, what is expected and what to type. Below it stands the traceback of the user's code,
without our lines that called it; the log has the whole.
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

E = TypeVar("E", bound=BaseException)

_CALLERS = (
    *(str(Path(__file__).parents[1]), "<frozen importlib", "/importlib/__init__.py"),
    *("/gymnasium/wrappers/", "/gymnasium/envs/registration.py"),
)
"""Parts of the paths of files whose code calls that of the user."""


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


class ChildTraceback(Exception):
    """The whole traceback of what ended a child process: the cause of the error that says so."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return ' Did you mean ...?' for the nearest known name, or an empty string."""
    options = list(known)
    lowered = {option.lower(): option for option in options}
    nearest = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    return f" Did you mean {lowered[nearest[0]]!r}?" if nearest else ""


def unknown(kind: str, name: str, known: Iterable[str], remedy: str) -> ConfigError:
    """Return the error for a name that is not known, with the nearest one that is."""
    return ConfigError(f"unknown {kind} {name!r}.{suggestion(name, known)} {remedy}")


# --- errors in code of the user's ------------------------------------------------------------------------------


def user_traceback(error: BaseException) -> str:
    """Return the traceback of an error from the first line on that is not offbeat's; '' where all lines are."""
    whole = traceback.TracebackException.from_exception(error)
    frames = list(whole.stack)
    while frames and any(part in frames[0].filename for part in _CALLERS):
        del frames[0]
    whole.stack[:] = frames
    return "".join(whole.format()).rstrip() if frames or isinstance(error, SyntaxError) else ""


def with_traceback_of(error: E, cause: BaseException) -> E:
    """Add the user's part of a cause's traceback to an error that says in words what happened."""
    if text := user_traceback(cause):
        error.add_note(text)
    return error


def with_notes_of(error: E, other: BaseException) -> E:
    """Add to an error what there is to read beside another, in whose place it is raised."""
    notes = getattr(other, "__notes__", [])
    for note in notes or ([] if isinstance(other, OffbeatError) else filter(None, [user_traceback(other)])):
        error.add_note(note)
    return error


def in_words(error: BaseException) -> str:
    """Return the words of an error, and what there is to read beside it below."""
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


def explained(error: BaseException) -> str:
    """Return the kind and the words of an error in the first line, and what there is to read beside it below."""
    first = f"{type(error).__name__}: {error}"
    return "\n".join([first, *getattr(with_notes_of(Exception(), error), "__notes__", [])])
