"""Choices of one or more components, side by side, in NumPy: one-hot, drawn evenly, allowed or not."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Choices = tuple[int, ...]
"""How many choices each component has."""


@cache
def firsts(choices: Choices) -> NDArray[np.intp]:
    """Return where each component's choices begin among those of all side by side, [components]."""
    return np.cumsum((0, *choices[:-1]), dtype=np.intp)


def write_one_hot(numbers: NDArray[Any], choices: Choices, out: NDArray[np.float32]) -> None:
    """Write choices [N, components], counted from 0, as a 1 among zeros each: [N, sum(choices)]."""
    out[...] = 0
    out[np.arange(len(numbers))[:, None], numbers + firsts(choices)] = 1


def draw_choices(
    choices: Choices, rows: int, random: np.random.Generator, mask: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """Draw evenly among the choices of each component, or among the allowed ones; return [rows, components].

    Args:
        choices: of each component.
        rows: how many draws.
        random: draws them.
        mask: [rows, sum(choices)], with something allowed in each component; None: everything is.
    """
    if mask is None:
        return random.integers(0, choices, (rows, len(choices)), dtype=np.int64)
    shares, drawn = random.random((rows, len(choices))), np.empty((rows, len(choices)), np.int64)
    for component, (first, count) in enumerate(zip(firsts(choices), choices, strict=True)):
        so_far = mask[:, first : first + count].cumsum(axis=1)
        drawn[:, component] = (so_far <= (shares[:, component] * so_far[:, -1]).astype(np.int64)[:, None]).sum(axis=1)
    return drawn


def allows_each(mask: NDArray[np.bool_], choices: Choices) -> NDArray[np.bool_]:
    """Return whether a mask [N, sum(choices)] allows some choice of each component, [N, components]."""
    some: NDArray[np.bool_] = np.logical_or.reduceat(mask, firsts(choices), axis=1)
    return some
