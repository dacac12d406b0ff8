"""The policy network of SAC in torch: a policy alone, as its critics are an ensemble of their own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from offbeat.models.spec import PolicySpec


class SoftPolicy(nn.Module):
    """A multi-layer perceptron with the names and order of `PolicySpec.parameter_shapes`.

    All of it is initialised uniformly within 1 / sqrt(inputs of the layer), as torch's own layers are: the published
    scores of SAC were reached so.
    """

    def __init__(self, spec: PolicySpec, *, generator: torch.Generator) -> None:
        super().__init__()
        self.spec = spec
        *body, head = spec.layer_sizes()
        self.policy_body = nn.ModuleList([_linear(*sizes, generator) for sizes in body])
        self.policy_head = _linear(*head, generator)
        self._activation = torch.tanh if spec.activation == "tanh" else functional.relu

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the parameters in the order of the published layout."""
        by_name = dict(super().named_parameters(*args, **kwargs))
        yield from ((name, by_name[name]) for name, _ in self.spec.parameter_shapes())

    def forward(self, observation: Tensor) -> Tensor:
        """Return the parameters of the action distribution, [M, outputs], for observations [M, inputs]."""
        x = observation
        for layer in self.policy_body:
            x = self._activation(layer(x))
        output: Tensor = self.policy_head(x)
        return output


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")  # torch's own generator is left alone
    uniform_(layer.weight, inputs, generator)
    uniform_(layer.bias, inputs, generator)
    return layer


def uniform_(parameter: Tensor, inputs: int, generator: torch.Generator) -> Tensor:
    """Fill a parameter of a layer of so many inputs with what torch's own layers begin with; return it."""
    bound = 1 / math.sqrt(inputs)
    return nn.init.uniform_(parameter, -bound, bound, generator=generator)
