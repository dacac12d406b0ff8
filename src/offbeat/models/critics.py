"""An ensemble of critics, evaluated as one batched product a layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from offbeat.models.encoders import Encoders, OwnEncoder
from offbeat.models.policy_network import NONE_ENCODED, uniform_
from offbeat.models.spec import Activation


class Critics(nn.Module):
    """E multi-layer perceptrons of one shape, each with parameters of its own.

    Layer i has `weights.{i}` [E, outputs_i, inputs_i] and `biases.{i}` [E, outputs_i]; each critic begins as torch's
    own layers do.
    """

    def __init__(
        self,
        inputs: int,
        hidden_sizes: Sequence[int],
        activation: Activation,
        *,
        critics: int,
        choices: int | None,
        generator: torch.Generator,
        encoders: Encoders | OwnEncoder | None = None,
    ) -> None:
        """Make a new ensemble.

        Args:
            inputs: numbers that a critic sees: of the observation, of what encoders make of it, and of the action after
                them where it is given one.
            hidden_sizes: units of each hidden layer.
            activation: between the layers.
            critics: E.
            choices: how many actions there are, if the critics value them all; None: they value the one given.
            generator: for the initial parameters.
            encoders: which all critics share.
        """
        super().__init__()
        self.encoders = encoders
        layers = list(pairwise((inputs, *hidden_sizes, choices or 1)))
        self.weights = nn.ParameterList(
            uniform_(torch.empty(critics, outputs, fan_in), fan_in, generator) for fan_in, outputs in layers
        )
        self.biases = nn.ParameterList(
            uniform_(torch.empty(critics, outputs), fan_in, generator) for fan_in, outputs in layers
        )
        self._one = choices is None
        self._activation = torch.tanh if activation == "tanh" else functional.relu

    def forward(
        self, vector: Tensor, encoded: Mapping[str, Tensor] = NONE_ENCODED, action: Tensor | None = None
    ) -> Tensor:
        """Return the values [E, M] of the actions [M, action_size], or those of all choices, [E, M, choices].

        Args:
            vector: as for `PolicyNetwork.forward`, like the next.
            encoded: leaf -> [M, *seen].
            action: where critics are given one.
        """
        features = self.encoders(encoded) if self.encoders is not None else None
        parts = [part for part in (vector, features, action) if part is not None and part.shape[1]]
        x = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        x = x.expand(len(self.biases[0]), *x.shape)
        last = len(self.weights) - 1
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))
            if i < last:
                x = self._activation(x)
        return x.squeeze(2) if self._one else x
