"""Rewards of n steps (arXiv:1710.02298, equation 1), which stop where an episode, or what may be read, ends."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
Flags = NDArray[np.bool_]
I64 = NDArray[np.int64]


class Steps(NamedTuple):
    """What became of the n steps that begin with each sampled row."""

    reward: F32
    """sum of gamma^i r_i over the steps taken, [M]."""
    discount: F32
    """Of the value that follows the last step taken, [M]: gamma^steps, 0 where that step terminated the episode."""
    steps: I64
    """Steps taken, [M]: 1 to n."""


def n_steps(reward: F32, terminated: Flags, truncated: Flags, valid: Flags, left: I64, gamma: float) -> Steps:
    """Sum up the rewards of n steps.

    A step is the last one if it ends the episode, if the row that follows is invalid, or if that row may not be read.
    What such rows hold (they may be half written) has no effect.

    Args:
        reward: of rows 0 .. n - 1 from each sampled row on, [n, M]; the flags likewise. Row 0 is valid.
        terminated: the row ended its episode, and nothing follows; it wins over truncated.
        truncated: the row ended its episode, but what follows has a value.
        valid: the row is a transition.
        left: rows that may be read from each sampled one on, itself included, [M]: at least 1.
        gamma: discount per env step.
    """
    taken = np.arange(len(reward))[:, None] < left
    taken[1:] &= valid[1:] & ~(terminated | truncated)[:-1]
    np.logical_and.accumulate(taken, axis=0, out=taken)
    discounts = gamma ** np.arange(len(reward) + 1)
    steps: I64 = np.count_nonzero(taken, axis=0)
    going_on = ~(taken & terminated).any(axis=0)
    total = (np.where(taken, reward, 0) * discounts[:-1, None]).sum(axis=0)
    return Steps(total.astype(np.float32), (discounts[steps] * going_on).astype(np.float32), steps)
