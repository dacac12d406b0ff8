"""A module's parameters, their gradients and Adam's moments, each in one contiguous buffer.

Publishing is then one memcpy, clipping one norm, Adam one fused kernel, an all-reduce one call. The module's
parameters become views of the buffer; nothing else about it changes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

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
    """Adam (arXiv:1412.6980) on a flat buffer, by torch's fused kernel."""

    def __init__(self, parameters: FlatParameters, eps: float) -> None:
        self._tensor = parameters.values
        self._tensor.grad = parameters.gradients
        self._optimizer = torch.optim.Adam([self._tensor], lr=0.0, eps=eps, fused=True)
        self.state_tensors()

    def step(self, learning_rate: float) -> None:
        self._optimizer.param_groups[0]["lr"] = learning_rate
        self._optimizer.step()

    def state_tensors(self) -> dict[str, Tensor]:
        """Return the moments and the step count, which exist from the start."""
        state = self._optimizer.state[self._tensor]
        if not state:
            state["step"] = torch.zeros((), device=self._tensor.device)
            state["exp_avg"] = torch.zeros_like(self._tensor)
            state["exp_avg_sq"] = torch.zeros_like(self._tensor)
        return {name: state[name] for name in ("step", "exp_avg", "exp_avg_sq")}
