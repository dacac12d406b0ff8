"""CrossQ (arXiv:1902.05605): soft actor-critic whose critics have batch renormalisation, and no slow copies.

The values of recorded and of next actions are computed in one pass. So both are normalised by the moments of the same
rows, and the values of next states are stable enough to be the targets of the same critics. The policy's loss uses the
running moments as they were before the update, because they change at its end.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from offbeat.algorithms.base import LossResult, Minibatch
from offbeat.algorithms.crossq_config import CrossQConfig
from offbeat.algorithms.sac_heads import sampled_actions
from offbeat.algorithms.soft_actor_critic import SoftActorCritic
from offbeat.losses import sac as losses
from offbeat.models.batch_norm import RunningMoments
from offbeat.models.batch_norm_critics import BatchNormCritics
from offbeat.models.flat import FlatParameters
from offbeat.models.policy_network import Body, Uniform
from offbeat.models.storage import Storage

MOMENTS = "moments"
"""Name of the output of the critic stage."""


class CrossQ(SoftActorCritic[CrossQConfig]):
    """See the module's docstring."""

    config_class = CrossQConfig
    critic_network: BatchNormCritics

    def make_critics(self, generator: torch.Generator) -> BatchNormCritics:
        return BatchNormCritics(
            Body(replace(self.spec, hidden_sizes=()), Uniform(generator)),
            self.spec.hidden_sizes,
            self.spec.activation,
            critics=self.config.critics,
            action_size=self.spec.action_size,
            generator=generator,
        )

    def build_more(self, generator: torch.Generator, storage: Storage) -> dict[str, FlatParameters]:
        sizes = self.critic_network.input_sizes
        self.moments = RunningMoments(sizes, self.config.critics, storage, self.device)
        for critics in (self.critic_network, self.networks.frozen_critics):
            assert isinstance(critics, BatchNormCritics)
            critics.moments = self.moments
        return super().build_more(generator, storage)

    def critic_loss(self, minibatch: Minibatch) -> LossResult:
        """Return the loss of the critics. The outputs have moments too, for `RunningMoments.update`."""
        networks, critics = self.networks, self.critic_network
        with torch.no_grad():
            action, log_prob = sampled_actions(networks, minibatch, "next_observation", "next_noise")
        features = [networks.features(critics, minibatch, name) for name in ("observation", "next_observation")]
        both, moments = critics.learning_pass(torch.cat(features), torch.cat((minibatch["action"], action)))
        values, next_values = both.chunk(2, dim=1)
        targets = self.targets(minibatch, next_values.detach(), log_prob)
        result = self.loss_of_values(values, targets, minibatch)
        assert isinstance(result.loss, Tensor)
        loss = result.loss + 0 * moments.sum()  # a variance may overflow where values and gradients are finite
        return result._replace(loss=loss, outputs={**result.outputs, MOMENTS: moments})

    def targets(self, minibatch: Minibatch, next_values: Tensor, log_prob: Tensor) -> Tensor:
        """Return the targets of the critics, [M], without gradients.

        Args:
            minibatch: as `minibatch` returns it.
            next_values: [critics, M], the critics' values of sampled next actions.
            log_prob: [M], the logarithm of the probability density of these actions.
        """
        rewards, discounts = minibatch["reward"], minibatch["discount"]
        return losses.soft_targets(rewards, discounts, next_values, log_prob, self.temperature())

    def after_critics(self, result: LossResult) -> None:
        super().after_critics(result)
        self.moments.update(result.outputs[MOMENTS])

    def more_arrays(self) -> dict[str, Tensor]:
        return {**self.moments.arrays(), **super().more_arrays()}
