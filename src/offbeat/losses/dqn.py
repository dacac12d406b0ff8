"""The target and the loss of Q-learning with a network (DQN).

Mnih et al. 2015, Human-level control through deep reinforcement learning, doi:10.1038/nature14236. Double Q-learning,
where one network selects the next choice and another gives its value: arXiv:1509.06461.

Shapes: M transitions, n choices.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from offbeat.losses.actor_critic import check_rows


@torch.no_grad()
def q_targets(rewards: Tensor, discounts: Tensor, next_values: Tensor, selection_values: Tensor) -> Tensor:
    """Return ``r + discount * Q_ema(s', argmax_a Q(s', a))``, [M] (arXiv:1509.06461, section "Double DQN").

    Args:
        rewards: [M], discounted sum over the steps of a target.
        discounts: [M], factor of the next value: gamma ** steps, or 0 after a termination.
        next_values: [M, n], values of the next state by the ema network.
        selection_values: [M, n], values of the next state that select the choice, the one with the highest value: those
            of the network that is learned, or `next_values` for the target of doi:10.1038/nature14236.

    Raises:
        ValueError: shapes do not agree.
    """
    check_rows(rewards=rewards, discounts=discounts)
    if next_values.ndim != 2 or len(next_values) != len(rewards) or next_values.shape != selection_values.shape:
        raise ValueError(
            f"next_values is {list(next_values.shape)} and selection_values is {list(selection_values.shape)}, but "
            f"[{len(rewards)}, n] is expected for both"
        )
    return rewards + discounts * next_values.gather(1, selection_values.argmax(1, keepdim=True)).squeeze(1)


def q_loss(values: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the Huber loss, [M]: half the squared error up to an error of 1, and linear above.

    Its gradient is the error clipped to [-1, 1], as in doi:10.1038/nature14236, Methods, "Training algorithm".

    Args:
        values: [M], values of the recorded actions.
        targets: [M].
        weights: [M], importance weights of prioritized samples (arXiv:1511.05952, section 3.4); None: all 1.

    Raises:
        ValueError: shapes do not agree.
    """
    check_rows(values=values, targets=targets, weights=weights)
    losses = functional.huber_loss(values, targets, reduction="none")
    return losses if weights is None else weights * losses
