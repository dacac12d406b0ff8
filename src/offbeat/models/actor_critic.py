"""A policy and a critic, in torch."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from offbeat.models.dense import Dense
from offbeat.models.distributions import ActionDistribution, make_distribution
from offbeat.models.policy_network import NONE_ENCODED, Body, Orthogonal, PolicyNetwork, Remembered
from offbeat.models.spec import PolicySpec


class ActorCritic(PolicyNetwork):
    """Policy and critic, with bodies of their own or one that both share.

    The policy's parameters come first, so that in the flat buffer they are one range. Arguments are those of
    `PolicyNetwork.forward`.
    """

    def __init__(self, spec: PolicySpec, *, shared: bool, log_std_init: float, generator: torch.Generator) -> None:
        init = Orthogonal(generator)
        # A small last layer makes the first policy nearly uniform, arXiv:2006.05990, section 3.2.
        super().__init__(spec, init, head_gain=0.01, log_std_init=log_std_init)
        self.critic_body = None if shared else Body(spec, init)
        self.critic_head = Dense(self.policy_body.features, 1, init, 1.0)

    def both(
        self,
        vector: Tensor,
        encoded: Mapping[str, Tensor] = NONE_ENCODED,
        remembered: Remembered | None = None,
        *,
        rows: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> tuple[ActionDistribution, Tensor]:
        """Return the action distribution and the values [M].

        Args:
            vector: as all here that is not below, see `PolicyNetwork.forward`.
            encoded: likewise.
            remembered: likewise.
            rows: of which the distribution is; None: of all.
            mask: what is allowed in these rows, [.., logits].
        """
        with self.precision():
            features, _ = self.policy_body(vector, encoded, remembered)
            critical = features if self.critic_body is None else self.critic_body(vector, encoded, remembered)[0]
        features = features.float()
        parameters = self.policy_head(features if rows is None else features[rows])
        values = self.critic_head(critical.float()).squeeze(-1)
        return make_distribution(self.spec, parameters, self.log_std, mask), values

    def value(
        self, vector: Tensor, encoded: Mapping[str, Tensor] = NONE_ENCODED, remembered: Remembered | None = None
    ) -> Tensor:
        """Return the critic's values alone, [M]."""
        body = self.policy_body if self.critic_body is None else self.critic_body
        with self.precision():
            features, _ = body(vector, encoded, remembered)
        values: Tensor = self.critic_head(features.float()).squeeze(-1)
        return values
