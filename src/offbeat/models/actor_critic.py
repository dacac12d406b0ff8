"""A policy and a critic on multi-layer perceptrons, in torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from offbeat.models.distributions import ActionDistribution, make_distribution
from offbeat.models.spec import PolicySpec


class ActorCritic(nn.Module):
    """Policy and critic, with bodies of their own or one that both share.

    The policy's parameters come first, so that in the flat buffer they are one range, and have the names and
    order of `PolicySpec.parameter_shapes`. Observations come in normalised and flattened, [M, inputs].
    """

    def __init__(self, spec: PolicySpec, *, shared: bool, log_std_init: float, generator: torch.Generator) -> None:
        super().__init__()
        self.spec = spec
        *body, head = spec.layer_sizes()
        self.policy_body = _body(body, generator)
        # A small last layer makes the first policy nearly uniform, arXiv:2006.05990, section 3.2.
        self.policy_head = _linear(*head, 0.01, generator)
        self.log_std = (
            None
            if spec.distribution == "categorical"
            else nn.Parameter(torch.full((spec.box_size,), float(log_std_init)))
        )
        self.critic_body = None if shared else _body(body, generator)
        self.critic_head = _linear(head[0], 1, 1.0, generator)
        self._activation = torch.tanh if spec.activation == "tanh" else functional.relu

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the policy's parameters first, in the order of the published layout."""
        by_name = dict(super().named_parameters(*args, **kwargs))
        first = [name for name, _ in self.spec.parameter_shapes()]
        yield from ((name, by_name.pop(name)) for name in first)
        yield from by_name.items()

    def forward(self, observation: Tensor, mask: Tensor | None = None) -> tuple[ActionDistribution, Tensor]:
        """Return the action distribution, over what a mask [M, logits] allows if there is one, and the values [M]."""
        features = self._features(self.policy_body, observation)
        distribution = make_distribution(self.spec, self.policy_head(features), self.log_std, mask)
        if self.critic_body is not None:
            features = self._features(self.critic_body, observation)
        return distribution, self.critic_head(features).squeeze(-1)

    def parameters_of_distribution(self, observation: Tensor) -> Tensor:
        """Return logits or means, [M, outputs]."""
        head: Tensor = self.policy_head(self._features(self.policy_body, observation))
        return head

    def value(self, observation: Tensor) -> Tensor:
        """Return the critic's values alone, [M]."""
        body = self.policy_body if self.critic_body is None else self.critic_body
        values: Tensor = self.critic_head(self._features(body, observation)).squeeze(-1)
        return values

    def _features(self, body: nn.ModuleList, x: Tensor) -> Tensor:
        for layer in body:
            x = self._activation(layer(x))
        return x


def _body(sizes: list[tuple[int, int]], generator: torch.Generator) -> nn.ModuleList:
    return nn.ModuleList([_linear(inputs, outputs, math.sqrt(2), generator) for inputs, outputs in sizes])


def _linear(inputs: int, outputs: int, gain: float, generator: torch.Generator) -> nn.Linear:
    """Return a layer with orthogonal weights (arXiv:1312.6120) and no bias."""
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
