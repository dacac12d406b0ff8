"""An ensemble of critics, evaluated with one batched matrix product per layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from offbeat.core.errors import ConfigError
from offbeat.models.policy_network import Body, uniform_
from offbeat.models.spec import Activation

NORM_EPS = 1e-5
"""Is added to the variance in layer normalisation."""


class Critics(nn.Module):
    """E multi-layer perceptrons of the same sizes, each with its own parameters, on shared features.

    Layer i has `weights.{i}` [E, outputs_i, inputs_i] and `biases.{i}` [E, outputs_i]. They are initialised like
    torch.nn.Linear. With layer normalisation hidden layer i also has `scales.{i}` and `shifts.{i}`, [E, outputs_i],
    initially 1 and 0.
    """

    def __init__(
        self,
        body: Body,
        hidden_sizes: Sequence[int],
        activation: Activation,
        *,
        critics: int,
        choices: int | None,
        action_size: int = 0,
        generator: torch.Generator,
        layer_norm: bool = False,
    ) -> None:
        """Make a new ensemble.

        Args:
            body: the network from observations to the features that all critics share.
            hidden_sizes: units of each hidden layer.
            activation: activation of the hidden layers.
            critics: E.
            choices: number of choices, if the critics return the values of all choices; None: the action is an input.
            action_size: size of the action, if it is an input.
            generator: generator of the initial parameters.
            layer_norm: whether each hidden layer's outputs are normalised before the activation (arXiv:1607.06450).

        Raises:
            ConfigError: the action is an input, but there is no hidden layer.
        """
        super().__init__()
        if action_size and not hidden_sizes:
            raise ConfigError(
                "hidden_sizes is empty, but without a hidden layer the critics would be linear in the action, and the "
                "same action would be the best in all states: pass --set hidden_sizes=256,256"
            )
        self.body = body
        layers = list(pairwise((body.features + action_size, *hidden_sizes, choices or 1)))
        self.weights = nn.ParameterList(
            uniform_(torch.empty(critics, outputs, fan_in), fan_in, generator) for fan_in, outputs in layers
        )
        self.biases = nn.ParameterList(
            uniform_(torch.empty(critics, outputs), fan_in, generator) for fan_in, outputs in layers
        )
        normalized = list(hidden_sizes) if layer_norm else []
        self.scales = nn.ParameterList(torch.ones(critics, units) for units in normalized)
        self.shifts = nn.ParameterList(torch.zeros(critics, units) for units in normalized)
        self._action_is_input = choices is None
        self._activation = torch.tanh if activation == "tanh" else functional.relu

    def forward(self, features: Tensor, action: Tensor | None = None) -> Tensor:
        """Return the values of the actions, [E, M], or the values of all choices, [E, M, choices].

        Args:
            features: [M, F], the output of `body`.
            action: [M, action_size], if the action is an input of the critics.
        """
        x = features if action is None else torch.cat((features, action), dim=1)
        x = x.expand(len(self.biases[0]), *x.shape)
        last = len(self.weights) - 1
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))
            if i < last:
                x = self._activation(self._normalized(i, x))
        return x.squeeze(2) if self._action_is_input else x

    def _normalized(self, i: int, x: Tensor) -> Tensor:
        """Return the outputs of hidden layer i, [E, M, units], normalised if the critics have layer normalisation."""
        if not self.scales:
            return x
        standard = functional.layer_norm(x, x.shape[2:], eps=NORM_EPS)
        normalized: Tensor = standard * self.scales[i].unsqueeze(1) + self.shifts[i].unsqueeze(1)
        return normalized


def first_critic(arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return views of the parameters of an ensemble with only its first critic; other parameters as they are."""
    own = ("weights.", "biases.", "scales.", "shifts.")
    return {name: array[:1] if name.startswith(own) else array for name, array in arrays.items()}
