"""An algorithm of your own: Munchausen DQN, which adds the log-probability of the action to the reward.

    cd examples
    offbeat train munchausen CartPole-v1 --import own_algorithm --steps 50000 --set temperature=0.03

Importing this module registers the name `munchausen`. The algorithm can also be named by its place,
own_algorithm:MunchausenDQN, or from Python by its class, offbeat.train(MunchausenDQN, "CartPole-v1"). Only the targets
differ from DQN. Runtimes, resuming and `--lag exact` work as for DQN.

Vieillard, Pietquin and Geist 2020, Munchausen Reinforcement Learning, arXiv:2007.14430.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional

import offbeat
from offbeat.algorithms.base import Minibatch
from offbeat.algorithms.dqn import DQN, DQNConfig
from offbeat.core.fields import Bound, Positive, Share


@dataclass(frozen=True)
class MunchausenConfig(DQNConfig):
    """The settings of DQN, and those of the paper for Atari (table 1)."""

    double: bool = False
    """Double Q-learning: not supported."""
    temperature: Positive = 0.03
    """In units of reward: the policy is the softmax of values / temperature."""
    munchausen_weight: Share = 0.9
    """Weight of the log-probability in the reward; 0 is soft Q-learning."""
    least_log: Annotated[float, Bound(below=0)] = -1.0
    """Lower bound of temperature x log-probability."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_step != 1:
            raise offbeat.ConfigError(
                f"n_step is {self.n_step}, but Munchausen DQN supports only n_step 1: leave it out"
            )
        if self.double:
            raise offbeat.ConfigError("double is true, which Munchausen DQN does not support: leave it out")


def munchausen_targets(
    rewards: Tensor, discounts: Tensor, scaled_log_prob: Tensor, soft_values: Tensor, weight: float, least: float
) -> Tensor:
    """Return ``r + weight * [temperature log pi(a|s)] + discount * V(s')``, [M] (equation 2, [] clipped to [least, 0]).

    Args:
        rewards: [M].
        discounts: [M], of what follows; 0 after a termination.
        scaled_log_prob: [M], temperature x log-probability of the recorded action.
        soft_values: [M], V(s'): the expectation of value minus temperature x log-probability over the next actions.
        weight: of the log-probability in the reward.
        least: lower bound of scaled_log_prob.
    """
    return rewards + weight * scaled_log_prob.clamp(least, 0) + discounts * soft_values


class MunchausenDQN(DQN):
    """DQN with other targets. Acting, exploration, network and everything else are DQN's."""

    config_class = MunchausenConfig
    config: MunchausenConfig

    @torch.no_grad()
    def targets(self, minibatch: Minibatch) -> Tensor:
        config, action = self.config, minibatch["action"][:, None]
        here = self._scaled_log_probs(self.values(self.ema_network, minibatch, "observation"))
        values = self.values(self.ema_network, minibatch, "next_observation")
        there = self._scaled_log_probs(values)
        soft_values = ((there / config.temperature).exp() * (values - there)).sum(1)
        return munchausen_targets(
            minibatch["reward"],
            minibatch["discount"],
            here.gather(1, action).squeeze(1),
            soft_values,
            config.munchausen_weight,
            config.least_log,
        )

    def _scaled_log_probs(self, values: Tensor) -> Tensor:
        """Return temperature x the log-probabilities of all choices, [M, n]."""
        temperature = self.config.temperature
        return temperature * functional.log_softmax(values / temperature, dim=1)


offbeat.register_algorithm("munchausen", MunchausenDQN, "Munchausen DQN, arXiv:2007.14430")
