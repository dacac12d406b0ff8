"""Advantages and value targets over rows in NEXT_STEP order: GAE and V-trace.

The kinds of rows in a column (``envs/contract.py``), and how each is used:

* A *decision* is a valid row. Only decisions have a TD error. They bootstrap from the next decision of the column.
* After a *terminated* decision there is no bootstrap. After a *truncated* decision comes a reset row, which has the
  true final observation: the decision bootstraps from its value. The trace ends in both cases, by a mask after a
  termination, and at a reset row because its correction is zero.
* A *reset row* belongs to no episode: the agent is absent. Several may follow each other. Its value target is its own
  value.
* In a *row without a decision* the agent had nothing to decide. The row passes the value and the correction of the next
  decision on to the row before it, without a discount, and adds its reward to the value. Its value target is this value
  plus lambda times the correction. The critic learns this target, because an unroll that ends at such a row bootstraps
  from its value.

The argument `no_decision` marks the rows without a decision. All other invalid rows are reset rows.

So there is one discount per decision. The TD error of a decision is r + gamma (sum of the rewards until the next
decision + V of the next decision) - V.

Shapes: T rows, B columns; ``values`` has T + 1 rows, the last one for the observation after the last row. These
functions have no gradients, and all tensors of a call are on one device.
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
    """In reset rows, the row's own value."""


@torch.no_grad()
def generalized_advantages(
    rewards: Tensor,
    values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    valid: Tensor,
    no_decision: Tensor,
    gamma: float,
    gae_lambda: float,
) -> Targets:
    """Return GAE(gamma, lambda) and the lambda-returns (arXiv:1506.02438, equation 16).

    Args:
        rewards: [T, B].
        values: [T + 1, B].
        terminated: [T, B], bool; wins over `truncated`.
        truncated: [T, B], bool.
        valid: [T, B], bool.
        no_decision: [T, B], bool, the rows without a decision.
        gamma: discount per decision.
        gae_lambda: 0 gives one-step TD errors, 1 gives the discounted returns minus the values.

    Raises:
        TypeError: an argument is not a tensor.
        ValueError: shapes or dtypes do not fit.
    """
    _check(rewards, values, terminated, truncated, valid, no_decision)
    row_values, next_values = _row_and_next_values(rewards, values, terminated, no_decision)
    errors = torch.where(valid, rewards + gamma * next_values - values[:-1], 0.0)
    decay = torch.where(valid, gamma * gae_lambda, no_decision.to(values.dtype))
    corrections = _accumulate(errors, decay.masked_fill_(terminated, 0.0))
    return Targets(
        torch.where(valid, corrections, 0.0), row_values + _value_corrections(corrections, no_decision, gae_lambda)
    )


@torch.no_grad()
def vtrace(
    log_ratio: Tensor,
    rewards: Tensor,
    values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    valid: Tensor,
    no_decision: Tensor,
    gamma: float,
    gae_lambda: float = 1.0,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> Targets:
    """Return V-trace's policy-gradient advantages and value targets (arXiv:1802.01561, 4.1, remark 2).

    With ``rho_t = min(rho_clip, ratio)`` and ``c_t = gae_lambda * min(c_clip, ratio)``, the value targets are
    ``vs_t = V_t + rho_t delta_t + gamma c_t (vs_{t+1} - V_{t+1})`` and the advantages
    ``rho_t (r_t + gamma q_{t+1} - V_t)`` with ``q = V + gae_lambda (vs - V)``. With gae_lambda = 1, q is vs as in the
    paper. On-policy, these advantages are those of GAE for any gae_lambda.

    Args:
        log_ratio: [T, B], log pi(a|o) - log mu(a|o): pi is the policy being learned, mu the policy that acted.
        rewards: [T, B].
        values: [T + 1, B].
        terminated: [T, B], bool; wins over `truncated`.
        truncated: [T, B], bool.
        valid: [T, B], bool.
        no_decision: [T, B], bool, the rows without a decision.
        gamma: discount per decision.
        gae_lambda: decay of the trace; 1 is the paper's main form.
        rho_clip: bound on the weight of a TD error; it determines which policy's value function is learned.
        c_clip: bound on the weight of later TD errors; a smaller bound reduces the variance and slows propagation.

    Raises:
        TypeError: an argument is not a tensor.
        ValueError: shapes or dtypes do not fit.
    """
    _check(rewards, values, terminated, truncated, valid, no_decision)
    _same_shape("log_ratio", log_ratio, rewards)
    ratio = log_ratio.exp()
    rho = ratio.clamp(max=rho_clip)
    row_values, next_values = _row_and_next_values(rewards, values, terminated, no_decision)
    errors = torch.where(valid, rho * (rewards + gamma * next_values - values[:-1]), 0.0)
    decay = torch.where(valid, gamma * gae_lambda * ratio.clamp(max=c_clip), no_decision.to(values.dtype))
    corrections = _accumulate(errors, decay.masked_fill_(terminated, 0.0))
    next_values[:-1] += gae_lambda * corrections[1:].masked_fill(terminated[:-1], 0.0)
    return Targets(
        torch.where(valid, rho * (rewards + gamma * next_values - values[:-1]), 0.0),
        row_values + _value_corrections(corrections, no_decision, gae_lambda),
    )


def _value_corrections(corrections: Tensor, no_decision: Tensor, gae_lambda: float) -> Tensor:
    """Return the differences of value targets and values, [T, B]: the corrections, times lambda in rows without a
    decision.
    """
    return torch.where(no_decision, gae_lambda * corrections, corrections)


def _row_and_next_values(
    rewards: Tensor, values: Tensor, terminated: Tensor, no_decision: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the value of each row, [T, B], and the value that each row bootstraps from, 0 after a termination.

    The value of a row without a decision is the sum of the rewards until the next decision, plus the value of the next
    decision.
    """
    next_values, row_values = values[1:].masked_fill(terminated, 0.0), values[:-1]
    if bool(no_decision.any()):
        row_values = torch.where(no_decision, rewards, values[:-1])
        row_values[-1] += no_decision[-1] * next_values[-1]
        row_values = _accumulate(row_values, (no_decision & ~terminated).to(values.dtype))
        next_values[:-1] = row_values[1:].masked_fill(terminated[:-1], 0.0)
    return row_values, next_values


def _accumulate(rows: Tensor, decay: Tensor) -> Tensor:
    """Return x, [T, B], with ``x_t = rows_t + decay_t x_{t+1}``; the last row is unchanged.

    Each round doubles the range of rows that are summed, so log2(T) rounds replace a loop over T rows. With T in the
    thousands and few columns, or on a GPU, the loop would take as long as several updates.
    """
    x, weights, reach = rows, decay, 1
    while reach < len(x):
        new_x = torch.addcmul(x[:-reach], weights[:-reach], x[reach:])
        new_weights = weights[:-reach] * weights[reach:]
        x, weights = torch.cat((new_x, x[-reach:])), torch.cat((new_weights, weights[-reach:]))
        reach *= 2
    return x


def _check(
    rewards: Tensor, values: Tensor, terminated: Tensor, truncated: Tensor, valid: Tensor, no_decision: Tensor
) -> None:
    _require_tensor("rewards", rewards)
    _require_tensor("values", values)
    if rewards.ndim != 2 or rewards.shape[0] < 1:
        raise ValueError(f"rewards is {list(rewards.shape)}, but [T, B] with at least one row is expected")
    rows, columns = rewards.shape
    if values.shape != (rows + 1, columns):
        raise ValueError(
            f"values is {list(values.shape)}, but rewards of [{rows}, {columns}] needs values of "
            f"[{rows + 1}, {columns}]: append the value of the observation after the last row"
        )
    masks = {"terminated": terminated, "truncated": truncated, "valid": valid, "no_decision": no_decision}
    for name, mask in masks.items():
        _same_shape(name, mask, rewards)
        if mask.dtype != torch.bool:
            raise ValueError(f"{name} is {mask.dtype}, but a mask is expected: pass {name}.bool()")


def _require_tensor(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} is a {type(value).__name__}, but a tensor is expected: pass torch.as_tensor({name})")


def _same_shape(name: str, tensor: Tensor, rewards: Tensor) -> None:
    _require_tensor(name, tensor)
    if tensor.shape != rewards.shape:
        raise ValueError(f"{name} is {list(tensor.shape)}, but {list(rewards.shape)} is expected, the shape of rewards")
