"""A slow copy of a network, an exponential moving average (ema) of its parameters."""

from __future__ import annotations

from typing import Generic

from torch import Tensor

from offbeat.models.flat import FlatParameters, Module, frozen
from offbeat.models.storage import Storage


class EmaCopy(Generic[Module]):
    """A slow copy of a network. It starts with the same parameters."""

    def __init__(self, network: Module, parameters: FlatParameters, name: str, storage: Storage) -> None:
        """Make the copy.

        Args:
            network: the network.
            parameters: the parameters of the network.
            name: name of the copied parameters in the storage.
            storage: registers them.
        """
        self._parameters = parameters
        self.values = storage.register(name, parameters.values.clone())
        """[size]: the slow copy of `parameters.values`."""
        self.network: Module = frozen(network, parameters.layout.views(self.values))
        """The network with these parameters, without gradients."""

    def step(self, rate: float) -> None:
        """Move one step towards the network; `rate`: the step as a fraction of the difference."""
        self.values.lerp_(self._parameters.values, rate)

    def arrays(self, prefix: str) -> dict[str, Tensor]:
        """Return the parameters: prefix + name -> view of `values`."""
        return self._parameters.layout.views(self.values, prefix)
