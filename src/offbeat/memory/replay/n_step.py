"""n-step rewards (arXiv:1710.02298, equation 1). They stop at the end of an episode or of the readable rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from offbeat.core.types import F32, I64, Flags


class Steps(NamedTuple):
    """The sums over the n steps that start at each sampled row."""

    reward: F32
    """Sum of gamma^i r_i over the steps taken, [M]."""
    discount: F32
    """Factor of the value after the last step, [M]: gamma^steps, or 0 if that step terminated the episode."""
    steps: I64
    """Number of steps taken, [M]: 1 to n."""


def n_steps(reward: F32, terminated: Flags, truncated: Flags, valid: Flags, left: I64, gamma: float) -> Steps:
    """Sum the rewards of n steps.

    A step is the last one if it ends the episode, or if the next row is invalid or not readable. Rows after the last
    step have no effect; an actor may be writing them.

    Args:
        reward: Rewards of rows 0 .. n - 1 from each sampled row on, [n, M].
        terminated: Whether a row terminated its episode, [n, M].
        truncated: Whether a row truncated its episode, [n, M]: the target then bootstraps from the next observation.
        valid: Whether a row is a transition, [n, M]; row 0 always is.
        left: Number of readable rows from each sampled row on, itself included, [M]: at least 1.
        gamma: Discount per env step.
    """
    taken = np.arange(len(reward))[:, None] < left
    taken[1:] &= valid[1:] & ~(terminated | truncated)[:-1]
    np.logical_and.accumulate(taken, axis=0, out=taken)
    discounts = gamma ** np.arange(len(reward) + 1)
    steps: I64 = np.count_nonzero(taken, axis=0)
    continues = ~(taken & terminated).any(axis=0)
    total = (np.where(taken, reward, 0) * discounts[:-1, None]).sum(axis=0)
    return Steps(total.astype(np.float32), (discounts[steps] * continues).astype(np.float32), steps)
