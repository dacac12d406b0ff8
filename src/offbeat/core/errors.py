"""The errors that users see, and the tracebacks of errors in their own code.

Each message says what was given, what is expected, and what to pass instead. It is followed by the traceback of the
user's code, without the frames of offbeat; the log has the complete traceback.
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import TypeVar

from offbeat.core.argument_notation import as_shown

E = TypeVar("E", bound=BaseException)

_CALLERS = (
    *(str(Path(__file__).parents[1]), "<frozen importlib", "/importlib/__init__.py"),
    *("/gymnasium/wrappers/", "/gymnasium/envs/registration.py", "/torch/nn/modules/module.py"),
)
"""Frames of files whose path contains one of these are omitted from the start of a traceback."""

FAILURES = (Exception, SystemExit)
"""Exceptions of the user's code that are reported. An env that calls sys.exit would otherwise end the run without an
error."""


class OffbeatError(Exception):
    """Base class of all errors that the user sees without a traceback."""

    exit_code = 1

    def __str__(self) -> str:
        """Return the message, which names arguments as the user gives them."""
        return as_shown(super().__str__())


class ConfigError(OffbeatError):
    """Invalid input, found before any work starts."""

    exit_code = 2


class RunFailed(OffbeatError):
    """A running training failed."""


class Closed(OffbeatError):
    """The gate is closed: the run is ending, and actors stop."""


class EnvFailed(RunFailed):
    """An env raised an exception, or violated the contract, while it was stepped."""

    def __init__(self, problem: str, *, remedy: str = "", column: int | None = None) -> None:
        """Make the error.

        Args:
            problem: what the env did, and where.
            remedy: the next sentence of the message, without a full stop.
            column: the column of the actor whose env it is; None: not known.
        """
        super().__init__(problem)
        self.problem, self.remedy, self.column = problem, remedy, column

    def __str__(self) -> str:
        """Return the problem and the remedy."""
        return as_shown(f"{self.problem}. {self.remedy}" if self.remedy else self.problem)


class NetworkFailed(RunFailed):
    """The network of a policy returned NaN or infinity."""


class RunWarning(UserWarning):
    """A warning about a run. It is also a message of the run, which is in the log and in the progress view."""


class LearnsNothing(RunWarning):
    """A run makes no update."""


class LargeBatch(RunWarning):
    """The first batch of a run is much larger than the env steps after which the run ends."""


class FewSnapshots(RunWarning):
    """A league has no other snapshots to play against than the initial weights."""


class WithoutEffect(RunWarning):
    """A setting of a run has no effect beside its other settings."""


class UnsavedStatistics(RunWarning):
    """An env normalises with running statistics that are not saved."""


class UnprovenMemoryOrder(RunWarning):
    """Processes of a run share memory on a processor for which the order of what they see is not proven."""


class ChildTraceback(Exception):
    """The complete traceback of the error that ended a child process. It is the cause of the reported error."""


MOST_SUGGESTED = 3
"""Maximum number of names that are suggested together."""


def suggestion(name: str, known: Iterable[str], likeness: float = 0.5) -> str:
    """Return ' Did you mean ...?' for an unknown name, or an empty string.

    The suggested names are those that the given one abbreviates, if they are few, or else the nearest known name. Names
    of the same table, such as league.window, are compared without it: it would make all of them alike.

    Args:
        name: the name that was given.
        known: the names that exist.
        likeness: how alike the names must be, from 0 to 1.
    """
    names, table = list(known), name[: name.rfind(".") + 1]
    inside = [option for option in names if table and option.startswith(table)]
    lowered = {_compared(option.removeprefix(table) if inside else option): option for option in inside or names}
    given = _compared(name.removeprefix(table) if inside else name)
    longer = [option for option in lowered if given and option.startswith(given)]
    meant = longer if len(longer) <= MOST_SUGGESTED else []
    meant = meant or difflib.get_close_matches(given, lowered, n=1, cutoff=likeness)
    return f" Did you mean {' or '.join(repr(lowered[option]) for option in meant)}?" if meant else ""


def _compared(name: str) -> str:
    """Return the part of a name that is compared: all flags have the dashes at their start."""
    return name.lower().lstrip("-")


def unknown(kind: str, name: str, known: Iterable[str], remedy: str, likeness: float = 0.5) -> ConfigError:
    """Return the error for an unknown name, with the nearest known name."""
    return ConfigError(f"unknown {kind} {name!r}.{suggestion(name, known, likeness)} {remedy}")


def without_full_stop(error: object) -> str:
    """Return the text of an error without a full stop at its end, to be followed by one."""
    return str(error).rstrip().removesuffix(".")


def require_at_least(name: str, value: int, minimum: int) -> None:
    """Refuse a number that is too small.

    Args:
        name: the argument of a function. Its flag has the same name.
        value: its value.
        minimum: the smallest value that is accepted.
    """
    if value < minimum:
        flag = f"--{name.replace('_', '-')}"
        raise ConfigError(f"{name} is {value}, but at least {minimum} is expected: pass {flag} {minimum} or more")


# --- errors in the user's code --------------------------------------------------------------------------------


def user_traceback(error: BaseException) -> str:
    """Return the traceback of an error, from the first frame outside of offbeat; '' if there is no such frame."""
    whole = traceback.TracebackException.from_exception(error)
    frames = list(whole.stack)
    while frames and any(part in frames[0].filename for part in _CALLERS):
        del frames[0]
    whole.stack[:] = frames
    return "".join(whole.format()).rstrip() if frames or isinstance(error, SyntaxError) else ""


def place_in_user_code(frame: FrameType) -> str:
    """Return where a thread is: the first line outside of offbeat that offbeat has called, or that of the thread.

    Args:
        frame: the current frame of the thread.
    """
    frames = traceback.extract_stack(frame)
    called = 1 + max((index for index, each in enumerate(frames) if _CALLERS[0] in each.filename), default=-1)
    named = [each for each in frames[called:] if not any(part in each.filename for part in _CALLERS)]
    place = (named or frames[-1:])[0]
    return f"{place.name}, line {place.lineno} of {place.filename}"


def with_traceback_of(error: E, cause: BaseException) -> E:
    """Add the user's part of a cause's traceback to an error, as a note."""
    if text := user_traceback(cause):
        error.add_note(text)
    return error


def with_notes_of(error: E, other: BaseException) -> E:
    """Add the notes (or the user's traceback) of another error to the error that replaces it."""
    notes = getattr(other, "__notes__", [])
    for note in notes or ([] if isinstance(other, OffbeatError) else filter(None, [user_traceback(other)])):
        error.add_note(note)
    return error


def message_with_notes(error: BaseException) -> str:
    """Return the message of an error, with its notes on the next lines."""
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


def type_and_text(error: BaseException) -> str:
    """Return the type and the text of an exception; that of an assertion may be empty."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def explained(error: BaseException) -> str:
    """Return the type and the message of an error, with its notes on the next lines."""
    first = type_and_text(error)
    return "\n".join([first, *getattr(with_notes_of(Exception(), error), "__notes__", [])])
