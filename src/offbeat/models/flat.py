"""A module's parameters, their gradients and Adam's moments, each in one contiguous buffer.

Publishing is then one memcpy, clipping one norm, Adam one fused kernel, an all-reduce one call. The module's
parameters become views of the buffer; nothing else about it changes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from offbeat.models.layout import Layout
from offbeat.models.storage import PrivateStorage, Storage


class FlatParameters:
    """One parameter group on flat buffers."""

    def __init__(self, module: nn.Module, name: str = "parameters", storage: Storage | None = None) -> None:
        """Move a module's parameters to a flat buffer.

        Args:
            module: which keeps working as it did.
            name: of the group, under which the storage knows it.
            storage: where the buffer lies; None: in this process.
        """
        named = list(module.named_parameters())
        self.layout = Layout.of((name, tuple(parameter.shape)) for name, parameter in named)
        self.name, self._storage = name, storage or PrivateStorage()
        self.master = self._storage.keep(f"{name}/values", self._joined(named))
        """[size]: the parameters as the optimizer changes them."""
        self.values = self.master.clone() if self._storage.separate else self.master
        """[size]: the parameters as the module sees them: the same ones, or a copy that `pull` renews."""
        self.gradients = torch.zeros_like(self.values)
        """[size]: what backward adds to."""
        values, gradients = self.layout.views(self.values), self.layout.views(self.gradients)
        for key, parameter in named:
            parameter.data = values[key]
            parameter.grad = gradients[key]

    def _joined(self, named: list[tuple[str, nn.Parameter]]) -> Tensor:
        joined = torch.zeros(self.layout.size, device=named[0][1].device)
        views = self.layout.views(joined)
        for key, parameter in named:
            views[key].copy_(parameter.detach())
        return joined

    def pull(self) -> None:
        """Renew the values, where they are a copy."""
        if self.values is not self.master:
            self.values.copy_(self.master)

    def moments(self, name: str, initial: Tensor) -> Tensor:
        """Return where an optimizer keeps what it knows of this group."""
        return self._storage.keep_moments(f"{self.name}/{name}", initial)

    def arrays(self) -> dict[str, Tensor]:
        """Return name -> view of the values."""
        return self.layout.views(self.values)


class FlatAdam:
    """Adam (arXiv:1412.6980) on a flat buffer, by torch's fused kernel, without the optimizer class around it."""

    def __init__(self, parameters: FlatParameters, eps: float) -> None:
        self._parameters, self._eps = parameters, eps
        self._step = parameters.moments("step", torch.zeros((), device=parameters.values.device))
        self._exp_avg = parameters.moments("exp_avg", torch.zeros_like(parameters.values))
        self._exp_avg_sq = parameters.moments("exp_avg_sq", torch.zeros_like(parameters.values))

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Change the parameters by their gradients, and renew what is a copy of them."""
        adam(
            [self._parameters.master],
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
        self._parameters.pull()

    def state_tensors(self) -> dict[str, Tensor]:
        """Return the moments and the step count."""
        return {"step": self._step, "exp_avg": self._exp_avg, "exp_avg_sq": self._exp_avg_sq}
