"""The losses that are PPO's own.

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

from offbeat.losses.actor_critic import check_rows


def clipped_surrogate(log_ratio: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """Return PPO's clipped policy loss, [M], to be minimised (arXiv:1707.06347, equation 7, negated).

    Args:
        log_ratio: [M], of the policy being learned over the proximal one.
        advantages: [M].
        clip: epsilon; ratios gain nothing outside of [1 - clip, 1 + clip].

    Raises:
        ValueError: shapes do not agree.
    """
    check_rows(log_ratio=log_ratio, advantages=advantages)
    ratio = log_ratio.exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1.0 - clip, 1.0 + clip) * advantages)


def clipped_value_loss(values: Tensor, proximal_values: Tensor, targets: Tensor, clip: float) -> Tensor:
    """Return half the squared error of the values, [M]; clipped as PPO's first implementation did it.

    A value that has come nearer to its target by more than `clip` since the learning step began gets no gradient
    (arXiv:2005.12729, section 3).

    Args:
        values: [M], being learned.
        proximal_values: [M], at the start of the learning step.
        targets: [M].
        clip: in units of value.

    Raises:
        ValueError: shapes do not agree.
    """
    check_rows(values=values, proximal_values=proximal_values, targets=targets)
    moved = (values - proximal_values).clamp(-clip, clip)
    errors = torch.maximum((values - targets).square(), (proximal_values + moved - targets).square())
    return 0.5 * errors


@torch.no_grad()
def approx_kl(log_ratio: Tensor) -> Tensor:
    """Estimate KL(proximal || target) in nats, a scalar, from actions that the proximal policy drew.

    The mean of ``(ratio - 1) - log ratio``: unbiased, and no row of it is negative (J. Schulman,
    "Approximating KL divergence", 2020, estimator k3).

    Raises:
        ValueError: not [M].
    """
    check_rows(log_ratio=log_ratio)
    return (log_ratio.expm1() - log_ratio).mean()
