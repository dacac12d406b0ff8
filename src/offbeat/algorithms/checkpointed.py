"""The part of all algorithms that saves their weights and state to a checkpoint and restores them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from offbeat.algorithms.statistics import Statistics
from offbeat.core.types import Array, Tree
from offbeat.models.storage import Storage


class Checkpointed:
    """The methods of `base.Algorithm` for checkpoints."""

    _statistics: Statistics
    _storage: Storage

    def arrays(self) -> dict[str, Tensor]:
        """Return views of all trained tensors, by their names in a checkpoint; the policy's names are those of its
        `PolicySpec`.
        """
        raise NotImplementedError

    def weights(self) -> Tree:
        return {name: view.cpu().numpy() for name, view in self.arrays().items()} | self._statistics.arrays()

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, Array]) -> None:
        for name, view in self.arrays().items():
            view.copy_(torch.from_numpy(weights[name]))

    def state(self) -> dict[str, Any]:
        registered = {name: tensor.detach().cpu().numpy() for name, tensor in self._more_registered().items()}
        return {**self._statistics.state(), "registered": registered}

    @torch.no_grad()
    def restore(self, state: Mapping[str, Any]) -> None:
        self.restore_statistics(state)
        for name, tensor in self._more_registered().items():
            tensor.copy_(torch.from_numpy(state["registered"][name]))

    def _more_registered(self) -> dict[str, Tensor]:
        """Return the registered tensors that are not among `arrays`, by the names of their registration."""
        saved = {view.untyped_storage().data_ptr() for view in self.arrays().values()}
        registered = self._storage.registered.items()
        return {name: tensor for name, tensor in registered if tensor.untyped_storage().data_ptr() not in saved}

    def restore_statistics(self, state: Mapping[str, Any]) -> None:
        self._statistics.restore(state)

    def close(self) -> None:
        """Do nothing: the algorithm has no threads."""
