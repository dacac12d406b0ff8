"""A policy and a critic, in torch."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from offbeat.models.dense import Dense
from offbeat.models.distributions import ActionDistribution, make_distribution
from offbeat.models.policy_network import NONE_ENCODED, Body, CoreState, Orthogonal, PolicyNetwork
from offbeat.models.spec import PolicySpec


class ActorCritic(PolicyNetwork):
    """Policy and critic, each with its own body or with a shared one.

    If the env has rows without a decision, their values have a head of their own. An agent can see the same when it is
    on turn and when it waits, with opposite values: a board looks alike for both players of many games.

    The policy's parameters come first, so that they are one range of the flat buffer. Arguments are as in
    `PolicyNetwork.forward`.
    """

    def __init__(self, spec: PolicySpec, *, shared: bool, log_std_init: float, generator: torch.Generator) -> None:
        init = Orthogonal(generator)
        # A small last layer makes the first policy nearly uniform, arXiv:2006.05990, section 3.2.
        super().__init__(spec, init, head_gain=0.01, log_std_init=log_std_init)
        self.critic_body = None if shared else Body(spec, init)
        self.critic_head = Dense(self.policy_body.features, 1, init, 1.0)
        self.no_decision_head = Dense(self.policy_body.features, 1, init, 1.0) if spec.no_decision else None

    def distribution_and_values(
        self,
        inputs: Tensor,
        encoded: Mapping[str, Tensor] = NONE_ENCODED,
        core_state: CoreState | None = None,
        *,
        rows: Tensor | None = None,
        mask: Tensor | None = None,
        no_decision: Tensor | None = None,
    ) -> tuple[ActionDistribution, Tensor]:
        """Return the action distribution and the values [M].

        Args:
            inputs: see `PolicyNetwork.forward`.
            encoded: see `PolicyNetwork.forward`.
            core_state: see `PolicyNetwork.forward`.
            rows: indices of the rows for which the distribution is returned; None: all rows.
            mask: the allowed choices in these rows, [rows, logits].
            no_decision: [M], bool, the rows without a decision; None: there are none.
        """
        with self.precision():
            features, _ = self.policy_body(inputs, encoded, core_state)
            critic_features = features
            if self.critic_body is not None:
                critic_features, _ = self.critic_body(inputs, encoded, core_state)
        features = features.float()
        parameters = self.policy_head(features if rows is None else features[rows])
        values = self._values(critic_features.float(), no_decision)
        return make_distribution(self.spec, parameters, self.log_std, mask), values

    def value(
        self,
        inputs: Tensor,
        encoded: Mapping[str, Tensor] = NONE_ENCODED,
        core_state: CoreState | None = None,
        *,
        no_decision: Tensor | None = None,
    ) -> Tensor:
        """Return only the critic's values, [M]. Arguments are as in `distribution_and_values`."""
        body = self.policy_body if self.critic_body is None else self.critic_body
        with self.precision():
            features, _ = body(inputs, encoded, core_state)
        return self._values(features.float(), no_decision)

    def _values(self, features: Tensor, no_decision: Tensor | None) -> Tensor:
        """Return the values, [M], for the critic's features [M, features]."""
        values: Tensor = self.critic_head(features).squeeze(-1)
        if self.no_decision_head is None or no_decision is None:
            return values
        return torch.where(no_decision, self.no_decision_head(features).squeeze(-1), values)
