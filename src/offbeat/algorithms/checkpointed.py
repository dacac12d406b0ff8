"""What every algorithm does alike with all that it has learned: a checkpoint keeps it, and gives it back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from offbeat.algorithms.statistics import Statistics
from offbeat.core.types import Array, Tree


class Checkpointed:
    """The half of `base.Algorithm` that has to do with checkpoints."""

    _statistics: Statistics

    def arrays(self) -> dict[str, Tensor]:
        """Return views of all that is learned, by the names of a checkpoint; the policy's as `PolicySpec` has them."""
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
        """Nothing was started."""
