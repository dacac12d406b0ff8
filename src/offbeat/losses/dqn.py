"""The target and the loss of Q-learning with a network (DQN).

Mnih et al. 2015, Human-level control through deep reinforcement learning, doi:10.1038/nature14236; with the choice
and its value taken from two networks arXiv:1509.06461, double Q-learning.

Shapes: M transitions, n choices.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from offbeat.losses.actor_critic import check_rows


@torch.no_grad()
def q_targets(rewards: Tensor, discounts: Tensor, next_values: Tensor, choosing: Tensor) -> Tensor:
    """Return ``r + discount * Q_ema(s', argmax_a Q(s', a))``, [M] (arXiv:1509.06461, section "Double DQN").

    Args:
        rewards: [M]; of n steps, their discounted sum.
        discounts: [M], of what follows: gamma ** n, and 0 after a termination.
        next_values: [M, n], of the ema network.
        choosing: [M, n], whose highest value says which choice counts: those of the network that learns, or
            `next_values` again, which is the target of doi:10.1038/nature14236.

    Raises:
        ValueError: shapes do not agree.
    """
    check_rows(rewards=rewards, discounts=discounts)
    for name, values in (("next_values", next_values), ("choosing", choosing)):
        if values.ndim != 2 or values.shape != (len(rewards), next_values.shape[-1]):
            raise ValueError(f"{name} are {list(values.shape)}, but [{len(rewards)}, n] is expected, of both alike")
    return rewards + discounts * next_values.gather(1, choosing.argmax(1, keepdim=True)).squeeze(1)


def q_loss(values: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return Huber's loss, [M]: half the squared error up to an error of 1, and from there on a line.

    Its gradient is the error clipped to [-1, 1], as in doi:10.1038/nature14236, Methods, "Training algorithm".

    Args:
        values: [M], of the recorded actions.
        targets: [M].
        weights: [M], of transitions that were sampled by priority (arXiv:1511.05952, section 3.4); None: 1.

    Raises:
        ValueError: shapes do not agree.
    """
    check_rows(values=values, targets=targets, weights=targets if weights is None else weights)
    losses = functional.huber_loss(values, targets, reduction="none")
    return losses if weights is None else weights * losses
