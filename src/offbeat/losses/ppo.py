"""The losses of PPO, and the figures that tell whether it is well.

``log_ratio`` is the log-probability of the recorded action under the policy being learned, less the one
under the policy that it is compared with. The clip compares with the *proximal* policy, the one at the
start of the learning step (decoupled PPO, arXiv:2110.00641). Where another policy acted, the weight between
those two belongs in the advantages, which is where V-trace puts it.

Shapes: M rows, the valid ones of a minibatch. Losses are per row, so that the caller chooses how to
average.
"""

from __future__ import annotations

import torch
from torch import Tensor


def clipped_surrogate(log_ratio: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """Return PPO's clipped policy loss, [M], to be minimised (arXiv:1707.06347, equation 7, negated).

    Args:
        log_ratio: [M], of the policy being learned over the proximal one.
        advantages: [M].
        clip: epsilon; ratios gain nothing outside of [1 - clip, 1 + clip].

    Raises:
        ValueError: shapes do not agree.
    """
    _check_rows(log_ratio=log_ratio, advantages=advantages)
    ratio = log_ratio.exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1.0 - clip, 1.0 + clip) * advantages)


def clipped_value_loss(values: Tensor, proximal_values: Tensor, targets: Tensor, clip: float | None) -> Tensor:
    """Return half the squared error of the values, [M]; clipped as PPO's first implementation did it.

    With a clip, a value that has come nearer to its target by more than `clip` since the learning step began
    gets no gradient (arXiv:2005.12729, section 3). With None the error is not clipped.

    Args:
        values: [M], being learned.
        proximal_values: [M], at the start of the learning step.
        targets: [M].
        clip: in units of value, or None.

    Raises:
        ValueError: shapes do not agree.
    """
    _check_rows(values=values, proximal_values=proximal_values, targets=targets)
    errors = (values - targets).square()
    if clip is not None:
        moved = (values - proximal_values).clamp(-clip, clip)
        errors = torch.maximum(errors, (proximal_values + moved - targets).square())
    return 0.5 * errors


@torch.no_grad()
def normalized(advantages: Tensor) -> Tensor:
    """Return advantages, [M], with mean 0 and standard deviation 1 over these rows; equal ones become 0.

    Raises:
        ValueError: not [M].
    """
    _check_rows(advantages=advantages)
    variance, mean = torch.var_mean(advantages, correction=0)
    return (advantages - mean) / (variance.sqrt() + 1e-8)


@torch.no_grad()
def approx_kl(log_ratio: Tensor) -> Tensor:
    """Estimate KL(proximal || target) in nats, a scalar, from actions that the proximal policy drew.

    The mean of ``(ratio - 1) - log ratio``: unbiased, and no row of it is negative (J. Schulman,
    "Approximating KL divergence", 2020, estimator k3).

    Raises:
        ValueError: not [M].
    """
    _check_rows(log_ratio=log_ratio)
    return (log_ratio.expm1() - log_ratio).mean()


@torch.no_grad()
def effective_sample_size(log_ratio: Tensor) -> Tensor:
    """Return Kish's ``(sum w)^2 / (M sum w^2)`` of the ratios w, a scalar in [1 / M, 1].

    It is the fraction of the rows that still speak for the policy being learned: 1 on-policy, 1 / M when one
    row outweighs all others.

    Raises:
        ValueError: not [M].
    """
    _check_rows(log_ratio=log_ratio)
    weights = (log_ratio - log_ratio.max()).exp()  # the scale cancels; this one cannot overflow
    return weights.sum().square() / (len(weights) * weights.square().sum())


@torch.no_grad()
def explained_variance(values: Tensor, targets: Tensor) -> Tensor:
    """Return ``1 - Var(targets - values) / Var(targets)``, a scalar; 1 is perfect, 0 a constant.

    NaN when the targets do not vary: there is nothing to explain.

    Raises:
        ValueError: shapes do not agree.
    """
    _check_rows(values=values, targets=targets)
    total = targets.var(correction=0)
    explained = 1.0 - (targets - values).var(correction=0) / total
    return torch.where(total > 0, explained, torch.nan)


def _check_rows(**tensors: Tensor) -> None:
    """Refuse anything but [M] tensors of one length."""
    rows = {tuple(tensor.shape) for tensor in tensors.values()}
    if len(rows) > 1 or len(rows.pop()) != 1:
        given = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in tensors.items())
        raise ValueError(f"got {given}, but [M] of one length is expected: pass each tensor[valid]")
