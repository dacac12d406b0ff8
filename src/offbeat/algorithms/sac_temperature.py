"""The temperature of SAC and CrossQ, the weight of the entropy: fixed or learned."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from offbeat.algorithms.sac_config import SoftActorCriticConfig
from offbeat.models.flat import FlatParameters
from offbeat.models.storage import Storage


class Temperature:
    """The temperature that the settings describe."""

    def __init__(self, config: SoftActorCriticConfig, device: str, group: str, storage: Storage) -> None:
        """Make it; `group` is the name of the parameter group of a learned one, which `storage` registers."""
        fixed = config.temperature
        self._fixed = None if fixed is None else torch.tensor(fixed, device=device)
        module = nn.ParameterDict({"log_alpha": torch.tensor(math.log(config.initial_temperature))}).to(device)
        self.log_alpha: Tensor = module["log_alpha"]
        """The parameter of a learned temperature, a scalar: it is the exponential of this."""
        self.parameters = FlatParameters(module, group, storage) if fixed is None else None
        """The parameter group with `log_alpha`; None if the temperature is fixed."""

    def __call__(self) -> Tensor:
        """Return alpha, a scalar without a gradient."""
        return self.log_alpha.detach().exp() if self._fixed is None else self._fixed
