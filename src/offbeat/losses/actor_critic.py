"""The losses of actor-critics, and metrics of the learning progress.

Shapes: M rows, the valid rows of a minibatch. Losses are per row, so that the caller can choose how to average.
``log_ratio`` is the log-probability of the recorded action under one policy minus that under another policy.
"""

from __future__ import annotations

import torch
from torch import Tensor

ROUNDING_STEPS = 10
"""Standard deviation of the targets that may come from rounding alone, in units of the precision of their dtype."""


def policy_gradient_loss(log_prob: Tensor, advantages: Tensor) -> Tensor:
    """Return ``-A log pi(a|o)``, [M]: its gradient is the policy gradient (arXiv:1602.01783, section 4).

    Args:
        log_prob: [M], of the recorded actions under the policy being learned.
        advantages: [M]; advantages of V-trace already contain the weight rho (arXiv:1802.01561, section 4.2).

    Raises:
        ValueError: shapes do not agree.
    """
    check_rows(log_prob=log_prob, advantages=advantages)
    return -advantages * log_prob


def squared_value_loss(values: Tensor, targets: Tensor) -> Tensor:
    """Return half the squared error of the values, [M].

    Raises:
        ValueError: shapes do not agree.
    """
    check_rows(values=values, targets=targets)
    return 0.5 * (values - targets).square()


@torch.no_grad()
def normalized_advantages(advantages: Tensor) -> Tensor:
    """Return advantages, [M], with mean 0 and standard deviation 1 over these rows; if all are equal, 0.

    If the variance overflows, above about 1e38, the result is NaN, so that the update is refused.

    Raises:
        ValueError: not [M].
    """
    check_rows(advantages=advantages)
    variance, mean = torch.var_mean(advantages, correction=0)
    mean = mean.add(variance, alpha=0)  # NaN for an infinite variance, for which the quotient would be 0
    return (advantages - mean) / (variance.sqrt() + 1e-8)


@torch.no_grad()
def effective_sample_size(log_ratio: Tensor) -> Tensor:
    """Return Kish's ``(sum w)^2 / (M sum w^2)`` of the ratios w, a scalar in [1 / M, 1].

    It is the fraction of the rows that are effectively used after weighting: 1 on-policy, 1 / M if one row has all
    the weight.

    Raises:
        ValueError: not [M], or without rows.
    """
    check_rows(log_ratio=log_ratio)
    if not len(log_ratio):
        raise ValueError("log_ratio has no rows, but at least one is expected")
    weights = (log_ratio - log_ratio.max()).exp()  # the scale of weights cancels out; with this one exp cannot overflow
    return weights.sum().square() / (len(weights) * weights.square().sum())


@torch.no_grad()
def explained_variance(values: Tensor, targets: Tensor) -> Tensor:
    """Return ``1 - Var(targets - values) / Var(targets)``, a scalar; NaN if the targets vary by rounding errors only.

    1 is a perfect prediction; 0 is no better than a constant.

    Raises:
        ValueError: shapes do not agree.
    """
    check_rows(values=values, targets=targets)
    total = targets.var(correction=0)
    explained = 1.0 - (targets - values).var(correction=0) / total
    # Targets are values plus corrections, so they have the rounding errors of both.
    size = torch.cat((values, targets)).square().mean().sqrt()
    rounding = ROUNDING_STEPS * torch.finfo(targets.dtype).eps * size
    return torch.where(total.sqrt() > rounding, explained, torch.nan)


def check_rows(**tensors: Tensor | None) -> None:
    """Check that all tensors have the same shape [M], those that are not None.

    Raises:
        ValueError: they do not; the message has the shapes.
    """
    shapes = {name: tensor.shape for name, tensor in tensors.items() if tensor is not None}
    first, *others = shapes.values()
    if len(first) != 1 or any(shape != first for shape in others):
        given = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        raise ValueError(
            f"got {given}, but the same shape [M] is expected for all: pass one value for each row, such as "
            "tensor[valid] of [T, B], or tensor.squeeze(1) of [M, 1]"
        )
