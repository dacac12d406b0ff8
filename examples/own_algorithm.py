"""An algorithm of your own: Munchausen DQN, which rewards an action also for how sure the policy is of it.

    cd examples
    offbeat train munchausen CartPole-v1 --import own_algorithm --steps 50000 --set temperature=0.03

Importing this module gives the algorithm its name. It is also trained by its place, own_algorithm:MunchausenDQN, and
from Python as a class, offbeat.train(MunchausenDQN, "CartPole-v1"). It runs in every runtime, stops and goes on, and
with `--lag exact` gives the same bits in all of them, as DQN does: only the targets are its own.

Vieillard, Pietquin and Geist 2020, Munchausen Reinforcement Learning, arXiv:2007.14430.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional

import offbeat
from offbeat.algorithms.dqn import DQN, DQNConfig
from offbeat.fields import Bound, Positive, Share
from offbeat.types import Minibatch


@dataclass(frozen=True)
class MunchausenConfig(DQNConfig):
    """The settings of DQN, with those of the paper for Atari (table 1). `double` means nothing here."""

    temperature: Positive = 0.03
    """In units of reward: the policy is the softmax of values / temperature."""
    munchausen_weight: Share = 0.9
    """Weight of the reward for being sure; 0 is soft Q-learning."""
    least_log: Annotated[float, Bound(below=0)] = -1.0
    """What temperature x log-probability counts as at least."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_step != 1:
            raise offbeat.ConfigError(
                f"n_step is {self.n_step}, but the reward for being sure is that of one step: leave it out"
            )


def munchausen_targets(
    rewards: Tensor, discounts: Tensor, scaled_log_prob: Tensor, soft_values: Tensor, weight: float, least: float
) -> Tensor:
    """Return ``r + weight * [temperature log pi(a|s)] + discount * V(s')``, [M] (equation 2, [] clipped to [least, 0]).

    Args:
        rewards: [M].
        discounts: [M], of what follows; 0 after a termination.
        scaled_log_prob: [M], temperature x log-probability of the recorded action.
        soft_values: [M], V(s'): the expected value less temperature x log-probability of what may be done there.
        weight: of the reward for being sure.
        least: what scaled_log_prob counts as at least.
    """
    return rewards + weight * scaled_log_prob.clamp(least, 0) + discounts * soft_values


class MunchausenDQN(DQN):
    """DQN with targets of its own. Acting, exploring, the network and all else are DQN's."""

    config_class = MunchausenConfig
    _config: MunchausenConfig

    @torch.no_grad()
    def _targets(self, minibatch: Minibatch) -> Tensor:
        config, action = self._config, minibatch["action"][:, None]
        here = self._scaled_log_probs(self._values(self._ema_network, minibatch, "observation"))
        values = self._values(self._ema_network, minibatch, "next_observation")
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
        temperature = self._config.temperature
        return temperature * functional.log_softmax(values / temperature, dim=1)


offbeat.register_algorithm("munchausen", MunchausenDQN, "Munchausen DQN, arXiv:2007.14430")
