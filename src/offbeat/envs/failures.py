"""The errors of envs that break the contract."""

from __future__ import annotations

from typing import Literal

from offbeat.core.errors import EnvFailed, type_and_text, user_traceback, with_traceback_of, without_full_stop
from offbeat.core.types import EnvSpec
from offbeat.envs.opengl import opengl_remedy


class WrongValue(ValueError):
    """An env returned a value that is not in its space. The message names the value, and what to return."""


def fault_of_call(call: str, error: BaseException) -> str:
    """Return what a call of an env did, for messages: it returned a wrong value, or raised an exception."""
    if isinstance(error, WrongValue):
        return f"{call} returned {error}"
    return f"{call} raised {type_and_text(error)}"


def fault_of_world(when: str, error: BaseException) -> str:
    """Return what is wrong with a world, for messages: offbeat found it, or its own code raised an exception."""
    found = isinstance(error, ValueError) and not user_traceback(error)
    return f"{when}: {error}" if found else f"{when}: {type_and_text(error)}"


def failed(
    env_id: str,
    index: int,
    what: str,
    cause: BaseException | None = None,
    *,
    unit: Literal["env", "world"] = "env",
    command: str = "",
) -> EnvFailed:
    """Return the error for an env that violates the contract, with the user's part of the traceback of `cause`.

    Args:
        env_id: id of the env.
        index: index of the env with one agent, which is a column, or of the world.
        what: what it did.
        cause: the exception that it raised, if any.
        unit: whether `index` is that of an env with one agent or of a world.
        command: the command that checks the env; by default, with its id alone.
    """
    problem = without_full_stop(what)
    if cause is not None and (drawing := opengl_remedy(cause)):
        problem = f"{problem}: {drawing}"
    error = EnvFailed(
        f"{env_id}, {unit} {index}: {problem}",
        remedy=f"Run `{command or f'offbeat check {env_id}'}` to find the fault",
        column=index if unit == "env" else None,
    )
    return error if cause is None else with_traceback_of(error, cause)


def column_failed(spec: EnvSpec, column: int, what: str, cause: BaseException | None = None) -> EnvFailed:
    """Return the same error for a column of the envs with this spec, which have one agent: a column is an env."""
    return failed(spec.id, column, what, cause, command=spec.check_command)
