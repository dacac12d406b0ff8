"""The targets and the policy's loss of twin delayed deep deterministic policy gradient (TD3, arXiv:1802.09477).

Shapes: M transitions, E critics, D components of an action in [-1, 1]. The loss of the critics is in `losses.critics`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from offbeat.losses.actor_critic import check_rows
from offbeat.losses.critics import check_ensemble


@torch.no_grad()
def smoothed_actions(actions: Tensor, noise: Tensor, std: float, clip: float) -> Tensor:
    """Return ``clip(a + clip(std * noise, -c, c), -1, 1)``, [M, D]: target policy smoothing (section 5.3).

    Args:
        actions: [M, D], actions a of the ema policy in [-1, 1].
        noise: [M, D], standard normal.
        std: standard deviation of the noise.
        clip: c, the largest size of the noise in a component.

    Raises:
        ValueError: shapes do not agree.
    """
    if actions.shape != noise.shape:
        raise ValueError(f"actions is {list(actions.shape)}, but noise is {list(noise.shape)}")
    return (actions + (std * noise).clamp(-clip, clip)).clamp(-1, 1)


@torch.no_grad()
def clipped_targets(rewards: Tensor, discounts: Tensor, next_values: Tensor) -> Tensor:
    """Return ``r + discount * min_e Q_e(s', a')``, [M]: clipped double Q-learning (section 4.2).

    Args:
        rewards: [M], discounted sum over the steps of a target.
        discounts: [M], factor of the next value: gamma ** steps, or 0 after a termination.
        next_values: [E, M], values by the ema critics, of smoothed actions a'.

    Raises:
        ValueError: shapes do not agree.
    """
    check_rows(rewards=rewards, discounts=discounts)
    check_ensemble(next_values, *rewards.shape)
    return rewards + discounts * next_values.amin(dim=0)


def policy_loss(values: Tensor) -> Tensor:
    """Return ``-Q_1(s, pi(s))``, [M]: its gradient is the deterministic policy gradient.

    Args:
        values: [M], values by the first critic, differentiable by the policy's parameters.

    Raises:
        ValueError: the shape is wrong.
    """
    check_rows(values=values)
    return -values
