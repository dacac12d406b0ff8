"""The temperature of SAC and CrossQ, the weight of the entropy: fixed or learned."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from offbeat.algorithms.sac_config import SoftActorCriticConfig
from offbeat.models.flat import FlatParameters
from offbeat.models.storage import Storage


class Temperature:
    """A fixed temperature."""

    log_alpha: Tensor
    """The learned parameter, a scalar; a fixed temperature has none."""
    parameters: FlatParameters | None = None
    """The parameter group with log alpha; None if the temperature is fixed."""

    def __init__(self, alpha: float, device: str) -> None:
        self._alpha = torch.tensor(alpha, device=device)

    def __call__(self) -> Tensor:
        """Return alpha, a scalar without a gradient."""
        return self._alpha


class LearnedTemperature(Temperature):
    """A learned temperature: the exponential of a parameter, which has its own parameter group."""

    parameters: FlatParameters

    def __init__(self, initial: float, device: str, group: str, storage: Storage) -> None:
        module = _LogAlpha(initial).to(device)
        self.parameters = FlatParameters(module, group, storage)
        self.log_alpha = module.log_alpha

    def __call__(self) -> Tensor:
        return self.log_alpha.detach().exp()


class _LogAlpha(nn.Module):
    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor(math.log(initial)))


def make_temperature(config: SoftActorCriticConfig, device: str, group: str, storage: Storage) -> Temperature:
    """Return the temperature that the settings describe."""
    if config.temperature is not None:
        return Temperature(config.temperature, device)
    return LearnedTemperature(config.initial_temperature, device, group, storage)
