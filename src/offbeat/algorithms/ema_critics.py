"""What SAC and TD3 share: the targets of the critics are computed by an ema copy of the critics, a slow one."""

from __future__ import annotations

from typing import Generic, TypeVar

import torch
from torch import Tensor

from offbeat.algorithms.base import LossResult, Minibatch
from offbeat.algorithms.replay_actor_critic import Fast, ReplayActorCritic
from offbeat.algorithms.replay_actor_critic_config import EmaCriticsConfig
from offbeat.models.critics import Critics
from offbeat.models.flat import FlatParameters, frozen
from offbeat.models.storage import Storage

EmaSettings = TypeVar("EmaSettings", bound=EmaCriticsConfig)


class EmaCritics(ReplayActorCritic[EmaSettings, Fast], Generic[EmaSettings, Fast]):
    """See the module's docstring."""

    ema_critic_network: Critics
    """The ema critics."""

    def build_more(self, generator: torch.Generator, storage: Storage) -> dict[str, FlatParameters]:
        self.ema_critics = storage.register("ema_critics", self.critics.values.clone())
        """[size]: the slow copy of `critics.values`."""
        self.ema_critic_network = frozen(self.critic_network, self.critics.layout.views(self.ema_critics))
        return super().build_more(generator, storage)

    def values(self, minibatch: Minibatch) -> Tensor:
        """Return the critics' values of the recorded actions, [critics, M]."""
        raise NotImplementedError

    def targets(self, minibatch: Minibatch) -> Tensor:
        """Return the targets of the critics, [M], without gradients."""
        raise NotImplementedError

    def critic_loss(self, minibatch: Minibatch) -> LossResult:
        targets = self.targets(minibatch)
        return self.loss_of_values(self.values(minibatch), targets, minibatch)

    def update_ema_critics(self) -> None:
        """Move the ema critics one step towards the critics."""
        self.ema_critics.lerp_(self.critics.values, self.config.ema_rate)

    def more_arrays(self) -> dict[str, Tensor]:
        return {**self.critics.layout.views(self.ema_critics, "ema_critics."), **super().more_arrays()}
