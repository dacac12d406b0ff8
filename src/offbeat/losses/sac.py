"""The targets of soft actor-critic (SAC), and the losses of its policy and its temperature.

For box actions: arXiv:1801.01290, and with a learned temperature arXiv:1812.05905. For choices: arXiv:1910.07207, which
computes the expectation over all actions instead of sampling one. The critics are an ensemble; the smallest of their
values is used (clipped double Q-learning, arXiv:1802.09477). Their loss is in `losses.critics`.

Shapes: M transitions, E critics, n choices. ``temperature`` is alpha, the weight of the entropy in units of reward, a
scalar. Losses are per transition, so that the caller can choose how to average.
"""

from __future__ import annotations

import torch
from torch import Tensor

from offbeat.losses.actor_critic import check_rows
from offbeat.losses.critics import check_ensemble


@torch.no_grad()
def soft_targets(
    rewards: Tensor, discounts: Tensor, next_values: Tensor, next_log_prob: Tensor, temperature: Tensor
) -> Tensor:
    """Return ``r + discount * (min_e Q_e(s', a') - alpha log pi(a'|s'))``, [M] (arXiv:1812.05905, equations 2, 3).

    Args:
        rewards: [M], discounted sum over the steps of a target.
        discounts: [M], factor of the next value: gamma ** steps, or 0 after a termination.
        next_values: [E, M], values by the ema critics (CrossQ: the critics), of actions a' sampled from the current
            policy.
        next_log_prob: [M], log-probabilities of the actions a'.
        temperature: alpha.

    Raises:
        ValueError: shapes do not agree.
    """
    check_rows(rewards=rewards, discounts=discounts, next_log_prob=next_log_prob)
    check_ensemble(next_values, *rewards.shape)
    return rewards + discounts * (next_values.amin(dim=0) - temperature * next_log_prob)


def policy_loss(log_prob: Tensor, values: Tensor, temperature: Tensor) -> Tensor:
    """Return ``alpha log pi(a|s) - min_e Q_e(s, a)``, [M] (arXiv:1812.05905, equation 9).

    Args:
        log_prob: [M], log-probabilities of actions a sampled from the policy, differentiable by its parameters.
        values: [E, M], values of the actions a, differentiable in the same way.
        temperature: alpha.

    Raises:
        ValueError: shapes do not agree.
    """
    check_rows(log_prob=log_prob)
    check_ensemble(values, *log_prob.shape)
    return temperature * log_prob - values.amin(dim=0)


def temperature_loss(log_temperature: Tensor, entropy: Tensor | float, target_entropy: Tensor | float) -> Tensor:
    """Return ``log alpha * (H - target)``, of the shape of the entropy H (arXiv:1812.05905, equation 18).

    Alpha decreases while the entropy is above its target. The paper has alpha instead of log alpha. With log alpha, as
    in the authors' code, relative steps of alpha have the same size at any scale of the reward.

    Args:
        log_temperature: log alpha, a scalar.
        entropy: entropy of the policy, exact or estimated by -log pi(a|s): [M], or the mean. It gets no gradient.
        target_entropy: in nats, a scalar.
    """
    return log_temperature * (torch.as_tensor(entropy).detach() - target_entropy)


# --- choices: the expectation over all actions instead of a sampled action ----------------------------------


@torch.no_grad()
def discrete_soft_targets(
    rewards: Tensor, discounts: Tensor, next_values: Tensor, next_log_probs: Tensor, temperature: Tensor
) -> Tensor:
    """Return ``r + discount * sum_a pi(a|s') (min_e Q_e(s', a) - alpha log pi(a|s'))``, [M] (arXiv:1910.07207, eq. 10).

    Args:
        rewards: [M], as in `soft_targets`.
        discounts: [M], as in `soft_targets`.
        next_values: [E, M, n], values by the ema critics.
        next_log_probs: [M, n], log-probabilities under the current policy.
        temperature: alpha.

    Raises:
        ValueError: shapes do not agree.
    """
    check_rows(rewards=rewards, discounts=discounts, next_log_probs=next_log_probs[..., 0])
    check_ensemble(next_values, *next_log_probs.shape)
    soft_values = next_values.amin(dim=0) - temperature * next_log_probs
    return rewards + discounts * (next_log_probs.exp() * soft_values).sum(dim=1)


def discrete_policy_loss(log_probs: Tensor, values: Tensor, temperature: Tensor) -> Tensor:
    """Return ``sum_a pi(a|s) (alpha log pi(a|s) - min_e Q_e(s, a))``, [M] (arXiv:1910.07207, equation 12).

    Args:
        log_probs: [M, n], log-probabilities under the policy.
        values: [E, M, n], values by the critics.
        temperature: alpha.

    Raises:
        ValueError: shapes do not agree.
    """
    check_rows(log_probs=log_probs[..., 0])
    check_ensemble(values, *log_probs.shape)
    return (log_probs.exp() * (temperature * log_probs - values.amin(dim=0))).sum(dim=1)


def entropy_of(log_probs: Tensor) -> Tensor:
    """Return the entropy of the policy in each state in nats, [M], from log_probs [M, n]."""
    return -(log_probs.exp() * log_probs).sum(dim=1)
