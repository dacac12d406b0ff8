"""Advantages and value targets over rows in NEXT_STEP order: GAE, V-trace and one-step targets.

The kinds of rows in a column, and which values each uses (``envs/contract.py``):

* A *decision* is a valid row. Only decisions have an error. A decision bootstraps from the column's next decision.
* After *terminated* there is no bootstrap (a reset row is not required there). After *truncated* comes the reset row,
  whose observation is the true final one: the bootstrap uses its value. So the bootstrap and the trace have different
  masks: the trace also ends at a reset row, because the correction there is zero.
* A *reset row* is an invalid row directly after the end of an episode, or an invalid first row. Its target is its
  value.
* A *row without a decision* is any other invalid row: the agent had no decision to make. It passes on the next
  decision's value and correction without a discount, plus its reward. Its target is the sum that it passes on: its
  value is learned too, because an unroll that ends there bootstraps from it.

So there is one discount per decision. Its error is r + gamma (sum of the rewards until the next decision + V of that
decision) - V.

Shapes: T rows, B columns; ``values`` has one row more, for the observation that follows the last row. No
gradient flows through these functions, and all tensors of a call are on one device.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Targets(NamedTuple):
    """The targets of the policy and the value function, [T, B] each."""

    advantages: Tensor
    """0 in rows that are not valid."""
    value_targets: Tensor
    """The row's own value in reset rows."""


@torch.no_grad()
def generalized_advantages(
    rewards: Tensor,
    values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    valid: Tensor,
    gamma: float,
    gae_lambda: float,
) -> Targets:
    """Return GAE(gamma, lambda) and the lambda-returns that belong to it (arXiv:1506.02438, equation 16).

    Args:
        rewards: [T, B].
        values: [T + 1, B].
        terminated: [T, B], bool; wins over `truncated`.
        truncated: [T, B], bool.
        valid: [T, B], bool.
        gamma: discount per decision.
        gae_lambda: 0 gives one-step errors, 1 the discounted returns less the values.

    Raises:
        ValueError: shapes or dtypes do not fit.
    """
    _check(rewards, values, terminated, truncated, valid)
    no_decision = no_decision_rows(terminated, truncated, valid)
    worth, following = _following_values(rewards, values, terminated, no_decision)
    errors = torch.where(valid, rewards + gamma * following - values[:-1], 0.0)
    passed_on = torch.where(valid, gamma * gae_lambda, no_decision.to(values.dtype))
    corrections = _accumulate(errors, passed_on.masked_fill_(terminated, 0.0))
    return Targets(torch.where(valid, corrections, 0.0), worth + _trusted(corrections, no_decision, gae_lambda))


@torch.no_grad()
def vtrace(
    log_ratio: Tensor,
    rewards: Tensor,
    values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    valid: Tensor,
    gamma: float,
    gae_lambda: float = 1.0,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> Targets:
    """Return V-trace's policy-gradient advantages and value targets (arXiv:1802.01561, 4.1, remark 2).

    With ``rho_t = min(rho_clip, ratio)`` and ``c_t = gae_lambda * min(c_clip, ratio)``, the value targets are
    ``vs_t = V_t + rho_t delta_t + gamma c_t (vs_{t+1} - V_{t+1})`` and the advantages
    ``rho_t (r_t + gamma q_{t+1} - V_t)`` with ``q = V + gae_lambda (vs - V)``: the paper's q is vs, lambda being 1;
    with other lambdas this q makes them GAE's advantages where the data is on-policy.

    Args:
        log_ratio: [T, B], log pi(a|o) - log mu(a|o), of the policy being learned over the one that acted.
        rewards: [T, B].
        values: [T + 1, B].
        terminated: [T, B], bool; wins over `truncated`.
        truncated: [T, B], bool.
        valid: [T, B], bool.
        gamma: discount per decision.
        gae_lambda: decay of the trace; 1 is the paper's main form.
        rho_clip: bound on the weight of an error: decides which policy's value is learned.
        c_clip: bound on the weight of later errors: trades variance for speed of propagation.

    Raises:
        ValueError: shapes or dtypes do not fit.
    """
    _check(rewards, values, terminated, truncated, valid)
    _same_shape("log_ratio", log_ratio, rewards)
    ratio = log_ratio.exp()
    rho = ratio.clamp(max=rho_clip)
    no_decision = no_decision_rows(terminated, truncated, valid)
    worth, following = _following_values(rewards, values, terminated, no_decision)
    errors = torch.where(valid, rho * (rewards + gamma * following - values[:-1]), 0.0)
    passed_on = torch.where(valid, gamma * gae_lambda * ratio.clamp(max=c_clip), no_decision.to(values.dtype))
    corrections = _accumulate(errors, passed_on.masked_fill_(terminated, 0.0))
    following[:-1] += gae_lambda * corrections[1:].masked_fill(terminated[:-1], 0.0)
    return Targets(
        torch.where(valid, rho * (rewards + gamma * following - values[:-1]), 0.0),
        worth + _trusted(corrections, no_decision, gae_lambda),
    )


@torch.no_grad()
def td_targets(
    rewards: Tensor, values: Tensor, terminated: Tensor, truncated: Tensor, valid: Tensor, gamma: float
) -> Tensor:
    """Return the one-step targets ``r_t + gamma V_{t+1}``, [T, B]; shapes as in `generalized_advantages`.

    Raises:
        ValueError: shapes or dtypes do not fit.
    """
    _check(rewards, values, terminated, truncated, valid)
    worth, following = _following_values(rewards, values, terminated, no_decision_rows(terminated, truncated, valid))
    return torch.where(valid, rewards + gamma * following, worth)


def no_decision_rows(terminated: Tensor, truncated: Tensor, valid: Tensor) -> Tensor:
    """Mark the invalid rows that are not reset rows, [T, B], but for the first one, which may be either."""
    no_decision = ~valid
    no_decision[0] = False  # no row looks to the first one, whatever it is
    no_decision[1:] &= ~(terminated | truncated)[:-1]
    return no_decision


def _trusted(corrections: Tensor, no_decision: Tensor, gae_lambda: float) -> Tensor:
    """Return the corrections of the value targets, [T, B]; for rows without a decision, times lambda."""
    return torch.where(no_decision, gae_lambda * corrections, corrections)


def _following_values(
    rewards: Tensor, values: Tensor, terminated: Tensor, no_decision: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the value of each row, [T, B], and the value of the next row for its bootstrap, 0 after a termination.

    The value of a row without a decision is the sum of the rewards until the next decision, plus the value of that
    decision.
    """
    following, worth = values[1:].masked_fill(terminated, 0.0), values[:-1]
    if bool(no_decision.any()):
        worth = torch.where(no_decision, rewards, values[:-1])
        worth[-1] += no_decision[-1] * following[-1]
        worth = _accumulate(worth, (no_decision & ~terminated).to(values.dtype))
        following[:-1] = worth[1:].masked_fill(terminated[:-1], 0.0)
    return worth, following


def _accumulate(rows: Tensor, passed_on: Tensor) -> Tensor:
    """Return x, [T, B], with ``x_t = rows_t + passed_on_t x_{t+1}``; the last row stays as it is.

    Each round doubles the range of rows that are summed, so log2(T) operators replace a loop of T: with T in the
    thousands and few columns, or on a GPU, the loop would cost as much as several updates.
    """
    x, weights, reach = rows, passed_on, 1
    while reach < len(x):
        x_seen = torch.addcmul(x[:-reach], weights[:-reach], x[reach:])
        weights_seen = weights[:-reach] * weights[reach:]
        x, weights = torch.cat((x_seen, x[-reach:])), torch.cat((weights_seen, weights[-reach:]))
        reach *= 2
    return x


def _check(rewards: Tensor, values: Tensor, terminated: Tensor, truncated: Tensor, valid: Tensor) -> None:
    if rewards.ndim != 2 or rewards.shape[0] < 1:
        raise ValueError(f"rewards is {list(rewards.shape)}, but [T, B] with at least one row is expected")
    rows, columns = rewards.shape
    if values.shape != (rows + 1, columns):
        raise ValueError(
            f"values is {list(values.shape)}, but rewards of [{rows}, {columns}] needs values of "
            f"[{rows + 1}, {columns}]: append the value of the observation after the last row"
        )
    for name, mask in (("terminated", terminated), ("truncated", truncated), ("valid", valid)):
        _same_shape(name, mask, rewards)
        if mask.dtype != torch.bool:
            raise ValueError(f"{name} is {mask.dtype}, but a mask is expected: pass {name}.bool()")


def _same_shape(name: str, tensor: Tensor, rewards: Tensor) -> None:
    if tensor.shape != rewards.shape:
        raise ValueError(f"{name} is {list(tensor.shape)}, expected {list(rewards.shape)} as of rewards")
