"""The part of all algorithms that saves their weights and state to a checkpoint and restores them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from offbeat.algorithms.statistics import Statistics
from offbeat.core.types import Array, Tree


class Checkpointed:
    """The methods of `base.Algorithm` for checkpoints."""

    _statistics: Statistics

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
        return self._statistics.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        self.restore_statistics(state)

    def restore_statistics(self, state: Mapping[str, Any]) -> None:
        self._statistics.restore(state)

    def close(self) -> None:
        """Do nothing: the algorithm has no threads."""
