"""The parameters of a module, their gradients and Adam's moments, each in one contiguous buffer.

Publishing weights is then one memcpy, gradient clipping one norm, Adam one fused kernel, and an all-reduce one call.
The module's parameters become views of the buffer; nothing else changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from typing import TypeVar

import torch
from torch import Tensor, nn

from offbeat.models.buffer_layout import BufferLayout
from offbeat.models.storage import PrivateStorage, Storage

BETA2 = 0.999
"""Adam's decay of the mean squared gradient."""


def largest_step(beta1: float) -> float:
    """Return the limit of the change of a parameter in one Adam step, in units of the learning rate, if others write.

    Without other workers the limit, which has a margin of 40 %, is never reached: if the moments m and v are sums over
    the same gradients, then |m| / sqrt(v) is at most (1 - beta1) / sqrt((1 - beta2) (1 - beta1^2 / beta2)) by the
    Cauchy-Schwarz inequality, 7.3 for beta1 = 0.9, and bias correction does not increase it. But if another worker
    updates one of the two moments between our two reads, the step can divide by a value close to zero.
    """
    return 1.4 * (1 - beta1) / math.sqrt((1 - BETA2) * (1 - beta1**2 / BETA2))


class FlatParameters:
    """One parameter group on flat buffers."""

    def __init__(self, module: nn.Module, name: str = "parameters", storage: Storage | None = None) -> None:
        """Move a module's parameters to a flat buffer.

        Args:
            module: the module; it can be used as before.
            name: name of the parameter group in the storage.
            storage: registers the buffer and the moments; None: private to this process.
        """
        named = list(module.named_parameters())
        self.layout = BufferLayout.of((name, tuple(parameter.shape)) for name, parameter in named)
        self.module, self.name, self._storage = module, name, storage or PrivateStorage()
        self.shared = self._storage.shared
        """Whether other workers change the parameters too."""
        self.master = self._storage.register(f"{name}/values", self._joined(named))
        """[size]: the parameters that the optimizer changes."""
        self.values = self.master.clone() if self._storage.separate else self.master
        """[size]: the parameters of the module: the same tensor as `master`, or a copy that `pull` updates."""
        self.gradients = torch.zeros_like(self.values)
        """[size]: the gradients; backward adds to them."""
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

    @property
    def is_copy(self) -> bool:
        """Whether `values` is a copy of `master`."""
        return self.values is not self.master

    def pull(self) -> None:
        """Copy `master` to `values`, if they are not the same tensor."""
        if self.is_copy:
            self.values.copy_(self.master)

    def moments(self, name: str, initial: Tensor) -> Tensor:
        """Register a moment of the optimizer under this name, and return its tensor."""
        return self._storage.register_moments(f"{self.name}/{name}", initial)

    def arrays(self) -> dict[str, Tensor]:
        """Return the parameters: name -> view of `values`."""
        return self.layout.views(self.values)


Module = TypeVar("Module", bound=nn.Module)


def frozen(module: Module, values: Mapping[str, Tensor]) -> Module:
    """Return a copy of a module that uses other tensors as parameters, by name, without gradients."""
    copy = deepcopy(module).requires_grad_(False)
    for name, parameter in copy.named_parameters():
        parameter.data = values[name]
    return copy


class FlatAdam:
    """Adam (arXiv:1412.6980) on a flat buffer. It calls torch's fused kernel directly, without torch.optim.Adam."""

    def __init__(self, parameters: FlatParameters, eps: float, beta1: float = 0.9) -> None:
        """Make the moments of these parameters; eps and beta1 are Adam's."""
        self._parameters, self._eps, self._beta1 = parameters, eps, beta1
        self._largest_step = largest_step(beta1)
        self._step = parameters.moments("step", torch.zeros((), device=parameters.values.device))
        self._exp_avg = parameters.moments("exp_avg", torch.zeros_like(parameters.values))
        self._exp_avg_sq = parameters.moments("exp_avg_sq", torch.zeros_like(parameters.values))
        self._change = torch.zeros_like(parameters.values) if parameters.shared else None

    def step(self, learning_rate: float, refused: Tensor | None = None) -> None:
        """Apply the gradients to the parameters.

        Args:
            learning_rate: learning rate of this step.
            refused: bool, a scalar on the device of the parameters: if it is true, nothing changes, and the step is not
                counted. The host does not wait for its value.
        """
        if self._change is None:
            self._apply(self._parameters.master, learning_rate, refused)
            return
        # Compute the change apart, from zeros, and then add it: changes by other workers can only be lost during the
        # addition. The result is the same, bit for bit, because 0 - x is exact.
        self._apply(self._change.zero_(), learning_rate, refused)
        limit = self._largest_step * learning_rate
        self._parameters.master.add_(self._change.clamp_(-limit, limit))
        self._parameters.pull()

    def _apply(self, values: Tensor, learning_rate: float, refused: Tensor | None) -> None:
        """Apply one step of Adam to `values`, in place."""
        found_inf = None if refused is None else refused.float()
        self._step.add_(1)
        torch._fused_adam_(  # torch.optim's own checks take longer than the kernel
            [values],
            [self._parameters.gradients],
            [self._exp_avg],
            [self._exp_avg_sq],
            [],
            [self._step],
            amsgrad=False,
            beta1=self._beta1,
            beta2=BETA2,
            lr=learning_rate,
            weight_decay=0.0,
            eps=self._eps,
            maximize=False,
            found_inf=found_inf,
        )
        if found_inf is not None:
            self._step.sub_(found_inf)

    def state_tensors(self) -> dict[str, Tensor]:
        """Return the moments and the step count."""
        return {"step": self._step, "exp_avg": self._exp_avg, "exp_avg_sq": self._exp_avg_sq}
