"""An ensemble of critics with batch renormalisation of each layer's input (`batch_norm`)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from offbeat.models.batch_norm import EPS, RunningMoments
from offbeat.models.critics import Critics
from offbeat.models.policy_network import Body
from offbeat.models.spec import Activation


class BatchNormCritics(Critics):
    """E multi-layer perceptrons, as `Critics`, whose action is an input.

    The input of each layer i is normalised, with its own `scales.{i}` and `shifts.{i}` [E, inputs_i], initially 1 and
    0.
    """

    moments: RunningMoments
    """The running moments. Set by the algorithm, before the first call."""

    def __init__(
        self,
        body: Body,
        hidden_sizes: Sequence[int],
        activation: Activation,
        *,
        critics: int,
        action_size: int,
        generator: torch.Generator,
    ) -> None:
        """Make a new ensemble; arguments are as in `Critics`."""
        super().__init__(
            body,
            hidden_sizes,
            activation,
            critics=critics,
            choices=None,
            action_size=action_size,
            generator=generator,
        )
        self.input_sizes = [body.features + action_size, *hidden_sizes]
        """Inputs of each layer."""
        self.scales = nn.ParameterList(torch.ones(critics, size) for size in self.input_sizes)
        self.shifts = nn.ParameterList(torch.zeros(critics, size) for size in self.input_sizes)

    def forward(self, features: Tensor, action: Tensor | None = None) -> Tensor:
        """Return the values of the actions by the running moments, [E, M]; arguments are as in `Critics`."""
        assert action is not None
        x = torch.cat((features, action), dim=1).expand(len(self.biases[0]), -1, -1)
        for i in range(len(self.weights)):
            mean, variance = self.moments.means[i], self.moments.variances[i]
            x = self._layer(i, (x - mean.unsqueeze(1)) * (variance + EPS).rsqrt().unsqueeze(1))
        return x.squeeze(2)

    def learning_pass(self, features: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return the values of the actions by the moments of these rows, [E, M].

        Args:
            features: [M, F], the output of `body`.
            action: [M, action_size].

        Returns:
            The values, and the moments of these rows, without gradients, for `RunningMoments.update`.
        """
        x = torch.cat((features, action), dim=1).expand(len(self.biases[0]), -1, -1)
        moments: list[tuple[Tensor, Tensor]] = []
        for i in range(len(self.weights)):
            mean, variance = x.mean(dim=1), x.var(dim=1, unbiased=False)
            moments.append((mean.detach(), variance.detach()))
            r, d = self.moments.correction(i, *moments[-1])
            standard = (x - mean.unsqueeze(1)) * (variance + EPS).rsqrt().unsqueeze(1)
            x = self._layer(i, standard * r.unsqueeze(1) + d.unsqueeze(1))
        return x.squeeze(2), self.moments.flat(moments)

    def _layer(self, i: int, standard: Tensor) -> Tensor:
        """Return the outputs of layer i, [E, M, outputs], from its normalised input [E, M, inputs]."""
        x = standard * self.scales[i].unsqueeze(1) + self.shifts[i].unsqueeze(1)
        x = torch.baddbmm(self.biases[i].unsqueeze(1), x, self.weights[i].transpose(1, 2))
        return self._activation(x) if i < len(self.weights) - 1 else x
