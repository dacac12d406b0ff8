"""The words of a command line: flags and their values."""

from __future__ import annotations

import re


def is_flag(token: str) -> bool:
    """Whether a word is a flag, as tyro reads it: two dashes, or a dash and a letter, unless it is a number."""
    if token.lower() in {"-inf", "-infinity", "-nan"}:
        return False
    return token.startswith("--") or re.match(r"-[^\W\d_]", token) is not None


def take(rest: list[str], most: int | None) -> list[str]:
    """Remove and return the values at the beginning: at most `most`, up to the next flag."""
    taken: list[str] = []
    while rest and not is_flag(rest[0]) and (most is None or len(taken) < most):
        taken.append(rest.pop(0))
    return taken
