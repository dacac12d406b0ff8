"""The clipped losses of PPO, and its estimate of the KL divergence.

``log_ratio`` is the log-probability of the recorded action under the policy being learned minus that under the policy
that the clip refers to: the policy that acted or, in decoupled PPO (arXiv:2110.00641), the *proximal* policy, which is
that of the start of the learning step. In decoupled PPO the ratio of the proximal policy to the one that acted is not
part of these losses: V-trace includes it in the advantages.

Shapes: M rows, the valid rows of a minibatch. Losses are per row, so that the caller can choose how to average.
"""

from __future__ import annotations

import torch
from torch import Tensor

from offbeat.losses.actor_critic import check_rows


def clipped_surrogate(log_ratio: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """Return PPO's clipped policy loss, [M], to be minimised (arXiv:1707.06347, equation 7, negated).

    Args:
        log_ratio: [M].
        advantages: [M].
        clip: epsilon of the paper: a ratio outside of [1 - clip, 1 + clip] does not improve the loss further.

    Raises:
        ValueError: shapes do not agree.
    """
    check_rows(log_ratio=log_ratio, advantages=advantages)
    ratio = log_ratio.exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1.0 - clip, 1.0 + clip) * advantages)


def clipped_value_loss(values: Tensor, proximal_values: Tensor, targets: Tensor, clip: float) -> Tensor:
    """Return half the squared error of the values, [M], clipped as in the first implementation of PPO.

    A value that has moved towards its target by more than `clip` since the start of the learning step gets no gradient
    (arXiv:2005.12729, section 3).

    Args:
        values: [M], of the critic being learned.
        proximal_values: [M], of the critic at the start of the learning step.
        targets: [M].
        clip: largest change of a value in a learning step, in units of the values.

    Raises:
        ValueError: shapes do not agree.
    """
    check_rows(values=values, proximal_values=proximal_values, targets=targets)
    change = (values - proximal_values).clamp(-clip, clip)
    errors = torch.maximum((values - targets).square(), (proximal_values + change - targets).square())
    return 0.5 * errors


@torch.no_grad()
def approx_kl(log_ratio: Tensor) -> Tensor:
    """Estimate KL(reference policy || policy being learned) in nats, a scalar, from actions of the reference policy.

    This is the mean of ``(ratio - 1) - log ratio``: unbiased, and not negative in any row (J. Schulman, "Approximating
    KL divergence", 2020, estimator k3).

    Raises:
        ValueError: log_ratio is not [M].
    """
    check_rows(log_ratio=log_ratio)
    return (log_ratio.expm1() - log_ratio).mean()
