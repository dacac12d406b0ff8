"""Twin delayed deep deterministic policy gradient (TD3, arXiv:1802.09477).

The policy is deterministic; actors explore with Gaussian noise. Against values that are too high, a target uses the
smallest value of an ensemble of critics (clipped double Q-learning), the next action has clipped noise (target policy
smoothing), and the policy and all ema networks, slow copies that targets use, are changed only in every n-th update.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from offbeat.algorithms.base import LossResult, Minibatch
from offbeat.algorithms.replay_actor_critic import ReplayActorCritic, ReplayFastPath
from offbeat.algorithms.td3_config import TD3Config
from offbeat.core.types import Array
from offbeat.losses import td3 as losses
from offbeat.models.critics import first_critic
from offbeat.models.ema import EmaCopy
from offbeat.models.flat import FlatParameters
from offbeat.models.storage import Storage


class TD3(ReplayActorCritic[TD3Config, ReplayFastPath]):
    """See the module's docstring."""

    config_class = TD3Config

    # --- networks -------------------------------------------------------------------------------------------

    def build_more(self, generator: torch.Generator, storage: Storage) -> dict[str, FlatParameters]:
        self.ema_policy = EmaCopy(self.policy_network, self.policy, "ema_policy", storage)
        self.ema_critics = EmaCopy(self.critic_network, self.critics, "ema_critics", storage)
        self._exploration_noise = storage.register("exploration_noise", torch.tensor([self.config.exploration_noise]))
        """[1]: the published standard deviation of exploration."""
        self.published_extras["exploration_noise"] = self._exploration_noise
        return super().build_more(generator, storage)

    def policy_critics(self) -> dict[str, Tensor]:
        return first_critic(self.critics.arrays())

    # --- updates --------------------------------------------------------------------------------------------

    def noise(self, rows: int, random: np.random.Generator) -> dict[str, Tensor]:
        """Return next_noise, [M, action_size], standard normal, for target policy smoothing."""
        noise = random.standard_normal((rows, self.spec.action_size), dtype=np.float32)
        return {"next_noise": torch.from_numpy(noise)}

    def critic_loss(self, minibatch: Minibatch) -> LossResult:
        targets = self.targets(minibatch)
        return self.loss_of_values(self.values(minibatch), targets, minibatch)

    def values(self, minibatch: Minibatch) -> Tensor:
        """Return the critics' values of the recorded actions, [critics, M]."""
        return self.networks.values(self.networks.critic_network, minibatch, "observation", minibatch["action"])

    @torch.no_grad()
    def targets(self, minibatch: Minibatch) -> Tensor:
        """Return the targets of the critics, [M], without gradients."""
        config, networks = self.config, self.networks
        output = self.forward(self.ema_policy.network, minibatch, "next_observation")
        action = losses.smoothed_actions(
            output.tanh(), minibatch["next_noise"], config.target_policy_noise, config.target_noise_clip
        )
        next_values = networks.values(self.ema_critics.network, minibatch, "next_observation", action)
        return losses.clipped_targets(minibatch["reward"], minibatch["discount"], next_values)

    def policy_loss(self, minibatch: Minibatch) -> LossResult:
        networks = self.networks
        action = networks.distribution_parameters(minibatch, "observation").tanh()
        (values,) = networks.values(networks.frozen_critics, minibatch, "observation", action)
        loss = losses.policy_loss(values).mean()
        return LossResult(loss, {"policy_loss": loss.detach()})

    def after_policy(self, result: LossResult) -> None:
        super().after_policy(result)
        self.ema_critics.step(self.config.ema_rate)
        self.ema_policy.step(self.config.ema_rate)

    # --- checkpoints ----------------------------------------------------------------------------------------

    def load_weights(self, weights: Mapping[str, Array]) -> None:
        super().load_weights(weights)
        self._exploration_noise.fill_(self.config.exploration_noise)  # the weights may be of a run with another value

    def more_arrays(self) -> dict[str, Tensor]:
        return {**self.ema_policy.arrays("ema_"), **self.ema_critics.arrays("ema_critics."), **super().more_arrays()}
