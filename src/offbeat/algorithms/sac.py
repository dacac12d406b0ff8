"""Soft actor-critic (arXiv:1801.01290, arXiv:1812.05905); for choices arXiv:1910.07207.

The stages of an update are in `soft_actor_critic`. The values of next states come from the ema critics, slow copies
that are updated after each step of the critics.
"""

from __future__ import annotations

from torch import Tensor

from offbeat.algorithms.base import LossResult, Minibatch
from offbeat.algorithms.ema_critics import EmaCritics
from offbeat.algorithms.sac_config import SACConfig
from offbeat.algorithms.soft_actor_critic import SoftActorCritic, SoftFastPath


class SAC(SoftActorCritic[SACConfig], EmaCritics[SACConfig, SoftFastPath]):
    """See the module's docstring."""

    config_class = SACConfig

    def values(self, minibatch: Minibatch) -> Tensor:
        return self.heads.values(minibatch)

    def targets(self, minibatch: Minibatch) -> Tensor:
        return self.heads.targets(minibatch, self.ema_critic_network, self.temperature())

    def after_critics(self, result: LossResult) -> None:
        super().after_critics(result)
        self.update_ema_critics()
