"""Soft actor-critic (arXiv:1801.01290, arXiv:1812.05905); for choices arXiv:1910.07207.

The stages of an update are in `soft_actor_critic`. The values of next states come from the ema critics, slow copies
that are updated after each step of the critics.
"""

from __future__ import annotations

import torch
from torch import Tensor

from offbeat.algorithms.base import LossResult, Minibatch
from offbeat.algorithms.sac_config import SACConfig
from offbeat.algorithms.soft_actor_critic import SoftActorCritic
from offbeat.models.ema import EmaCopy
from offbeat.models.flat import FlatParameters
from offbeat.models.storage import Storage


class SAC(SoftActorCritic[SACConfig]):
    """See the module's docstring."""

    config_class = SACConfig

    def build_more(self, generator: torch.Generator, storage: Storage) -> dict[str, FlatParameters]:
        groups = super().build_more(generator, storage)
        self.ema_critics = EmaCopy(self.critic_network, self.critics, "ema_critics", storage)
        return groups

    def values(self, minibatch: Minibatch) -> Tensor:
        """Return the critics' values of the recorded actions, [critics, M]."""
        return self.heads.values(minibatch)

    def targets(self, minibatch: Minibatch) -> Tensor:
        """Return the targets of the critics, [M], without gradients."""
        return self.heads.targets(minibatch, self.ema_critics.network, self.temperature())

    def critic_loss(self, minibatch: Minibatch) -> LossResult:
        targets = self.targets(minibatch)
        return self.loss_of_values(self.values(minibatch), targets, minibatch)

    def after_critics(self, result: LossResult) -> None:
        super().after_critics(result)
        self.ema_critics.step(self.config.ema_rate)

    def more_arrays(self) -> dict[str, Tensor]:
        return {**super().more_arrays(), **self.ema_critics.arrays("ema_critics.")}
