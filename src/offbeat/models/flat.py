"""A module's parameters, their gradients and Adam's moments, each in one contiguous buffer.

Publishing is then one memcpy, clipping one norm, Adam one fused kernel, an all-reduce one call. The module's
parameters become views of the buffer; nothing else about it changes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from offbeat.models.layout import Layout


class FlatParameters:
    """One parameter group on flat buffers."""

    def __init__(self, module: nn.Module) -> None:
        named = list(module.named_parameters())
        self.layout = Layout.of((name, tuple(parameter.shape)) for name, parameter in named)
        device = named[0][1].device
        self.values = torch.zeros(self.layout.size, device=device)
        """[size]: the parameters themselves."""
        self.gradients = torch.zeros_like(self.values)
        """[size]: what backward adds to."""
        values, gradients = self.layout.views(self.values), self.layout.views(self.gradients)
        for name, parameter in named:
            values[name].copy_(parameter.detach())
            parameter.data = values[name]
            parameter.grad = gradients[name]

    def arrays(self) -> dict[str, Tensor]:
        """Return name -> view of the values."""
        return self.layout.views(self.values)


class FlatAdam:
    """Adam (arXiv:1412.6980) on a flat buffer, by torch's fused kernel, without the optimizer class around it."""

    def __init__(self, parameters: FlatParameters, eps: float) -> None:
        self._parameters, self._eps = parameters, eps
        self._step = torch.zeros((), device=parameters.values.device)
        self._exp_avg = torch.zeros_like(parameters.values)
        self._exp_avg_sq = torch.zeros_like(parameters.values)

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        adam(
            [self._parameters.values],
            [self._parameters.gradients],
            [self._exp_avg],
            [self._exp_avg_sq],
            [],
            [self._step],
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=learning_rate,
            weight_decay=0.0,
            eps=self._eps,
            maximize=False,
        )

    def state_tensors(self) -> dict[str, Tensor]:
        """Return the moments and the step count."""
        return {"step": self._step, "exp_avg": self._exp_avg, "exp_avg_sq": self._exp_avg_sq}
