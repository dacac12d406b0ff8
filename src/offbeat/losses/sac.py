"""The targets and losses of soft actor-critic (SAC).

For actions of a box arXiv:1801.01290 and, with the temperature learned, arXiv:1812.05905; for choices
arXiv:1910.07207, which takes the expectation over all actions where the others draw one. The critics are an
ensemble, of which the least value counts (arXiv:1802.09477, clipped double Q-learning).

Shapes: M transitions, E critics, n choices. ``temperature`` is alpha, the weight of the entropy in units of reward, a
scalar. Losses are per transition, so that the caller chooses how to average.
"""

from __future__ import annotations

import torch
from torch import Tensor

from offbeat.losses.actor_critic import check_rows


@torch.no_grad()
def soft_targets(
    rewards: Tensor, discounts: Tensor, next_values: Tensor, next_log_prob: Tensor, temperature: Tensor
) -> Tensor:
    """Return ``r + discount * (min_e Q_e(s', a') - alpha log pi(a'|s'))``, [M] (arXiv:1812.05905, equations 2, 3).

    Args:
        rewards: [M]; of n steps, their discounted sum.
        discounts: [M], of what follows: gamma ** n, and 0 after a termination.
        next_values: [E, M], of the ema critics, for actions a' of the current policy.
        next_log_prob: [M], of those actions.
        temperature: alpha.

    Raises:
        ValueError: shapes do not agree.
    """
    check_rows(rewards=rewards, discounts=discounts, next_log_prob=next_log_prob)
    _check_ensemble(next_values, *rewards.shape)
    return rewards + discounts * (next_values.amin(dim=0) - temperature * next_log_prob)


def critic_loss(values: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return half the squared errors of all critics, added up, [M] (arXiv:1812.05905, equation 5, for each critic).

    Args:
        values: [E, M], of the recorded actions.
        targets: [M], the same for all critics.
        weights: [M], of transitions that were sampled by priority (arXiv:1511.05952, section 3.4); None: 1.

    Raises:
        ValueError: shapes do not agree.
    """
    check_rows(targets=targets, weights=targets if weights is None else weights)
    _check_ensemble(values, *targets.shape)
    losses = 0.5 * (values - targets).square().sum(dim=0)
    return losses if weights is None else weights * losses


def policy_loss(log_prob: Tensor, values: Tensor, temperature: Tensor) -> Tensor:
    """Return ``alpha log pi(a|s) - min_e Q_e(s, a)``, [M] (arXiv:1812.05905, equation 9).

    Args:
        log_prob: [M], of actions a that the policy has drawn, through which gradients flow to it.
        values: [E, M], of those actions.
        temperature: alpha.

    Raises:
        ValueError: shapes do not agree.
    """
    check_rows(log_prob=log_prob)
    _check_ensemble(values, *log_prob.shape)
    return temperature * log_prob - values.amin(dim=0)


def temperature_loss(log_temperature: Tensor, entropy: Tensor | float, target_entropy: Tensor | float) -> Tensor:
    """Return ``log alpha * (H - target)``, of the shape of the entropy H (arXiv:1812.05905, equation 18).

    Alpha falls while the entropy is above its target. The paper has alpha in place of its logarithm; the logarithm,
    as in the authors' own code, has steps of one size at any scale of the reward.

    Args:
        log_temperature: log alpha, a scalar.
        entropy: of the policy, estimated by -log pi(a|s) or exact: [M] or their mean. It gets no gradient.
        target_entropy: in nats, a scalar.
    """
    return log_temperature * (torch.as_tensor(entropy).detach() - target_entropy)


# --- choices: the expectation over all actions in place of one that is drawn --------------------------------


@torch.no_grad()
def discrete_soft_targets(
    rewards: Tensor, discounts: Tensor, next_values: Tensor, next_log_probs: Tensor, temperature: Tensor
) -> Tensor:
    """Return ``r + discount * sum_a pi(a|s') (min_e Q_e(s', a) - alpha log pi(a|s'))``, [M] (arXiv:1910.07207, eq. 10).

    Args:
        rewards: [M].
        discounts: [M].
        next_values: [E, M, n], of the ema critics.
        next_log_probs: [M, n], of the current policy.
        temperature: alpha.

    Raises:
        ValueError: shapes do not agree.
    """
    check_rows(rewards=rewards, discounts=discounts, next_log_probs=next_log_probs[..., 0])
    _check_ensemble(next_values, *next_log_probs.shape)
    soft_values = next_values.amin(dim=0) - temperature * next_log_probs
    return rewards + discounts * (next_log_probs.exp() * soft_values).sum(dim=1)


def discrete_policy_loss(log_probs: Tensor, values: Tensor, temperature: Tensor) -> Tensor:
    """Return ``sum_a pi(a|s) (alpha log pi(a|s) - min_e Q_e(s, a))``, [M] (arXiv:1910.07207, equation 12).

    Args:
        log_probs: [M, n], of the policy.
        values: [E, M, n].
        temperature: alpha.

    Raises:
        ValueError: shapes do not agree.
    """
    check_rows(log_probs=log_probs[..., 0])
    _check_ensemble(values, *log_probs.shape)
    return (log_probs.exp() * (temperature * log_probs - values.amin(dim=0))).sum(dim=1)


def entropy_of(log_probs: Tensor) -> Tensor:
    """Return the entropy of the policy in each state in nats, [M], from log_probs [M, n]."""
    return -(log_probs.exp() * log_probs).sum(dim=1)


def _check_ensemble(values: Tensor, *shape: int) -> None:
    """Refuse anything but values of this shape from each of at least one critic.

    Raises:
        ValueError: with the shapes.
    """
    if values.shape[1:] != shape or not len(values):
        raise ValueError(f"values are {list(values.shape)}, but [E, {', '.join(map(str, shape))}] is expected")
