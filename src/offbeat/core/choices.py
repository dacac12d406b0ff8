"""Discrete actions of one or more components in NumPy: one-hot encoding, sampling and masks.

One-hot vectors and masks have the choices of all components, concatenated.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Choices = tuple[int, ...]
"""Number of choices of each component."""


@cache
def firsts(choices: Choices) -> NDArray[np.intp]:
    """Return the index of each component's first choice among the concatenated choices, [components]."""
    return np.cumsum((0, *choices[:-1]), dtype=np.intp)


def write_one_hot(numbers: NDArray[Any], choices: Choices, out: NDArray[np.float32]) -> None:
    """Write choices [N, components], counted from 0, as concatenated one-hot vectors [N, sum(choices)]."""
    out[...] = 0
    out[np.arange(len(numbers))[:, None], numbers + firsts(choices)] = 1


def smallest_dtype(choices: Choices) -> str:
    """Return the smallest dtype for choices counted from 0 that torch fully supports."""
    return next(name for name in ("uint8", "int16", "int32", "int64") if max(choices) <= np.iinfo(name).max + 1)


def sample_choices(
    choices: Choices, rows: int, random: np.random.Generator, mask: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """Sample uniformly from the allowed choices of each component; return [rows, components].

    Args:
        choices: Number of choices of each component.
        rows: Number of samples.
        random: Generator to sample with.
        mask: Allowed choices, [rows, sum(choices)], at least one per component; None allows all.
    """
    if mask is None:
        return random.integers(0, choices, (rows, len(choices)), dtype=np.int64)
    uniform, sampled = random.random((rows, len(choices))), np.empty((rows, len(choices)), np.int64)
    for component, (first, count) in enumerate(zip(firsts(choices), choices, strict=True)):
        allowed = mask[:, first : first + count].cumsum(axis=1)
        number = (uniform[:, component] * allowed[:, -1]).astype(np.int64)  # which of the allowed choices, from 0
        sampled[:, component] = (allowed <= number[:, None]).sum(axis=1)
    return sampled


def allows_each(mask: NDArray[np.bool_], choices: Choices) -> NDArray[np.bool_]:
    """Return whether a mask [N, sum(choices)] allows at least one choice of each component, [N, components]."""
    allowed: NDArray[np.bool_] = np.logical_or.reduceat(mask, firsts(choices), axis=1)
    return allowed
