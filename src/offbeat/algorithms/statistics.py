"""Running statistics of observations and returns, as an algorithm learns and publishes with them.

They are constant during a learning step and change at its end: for one version of the weights, actors and learner
normalise observations in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from offbeat.core.types import Tree
from offbeat.models.collective import Collective
from offbeat.models.inputs import one_hot_inputs
from offbeat.models.spec import PolicySpec
from offbeat.models.storage import Storage
from offbeat.models.tensor_inputs import normalized


class Statistics:
    """Normalises observations and returns, where the settings ask for it."""

    return_std: float
    """What the critic's values are multiplied with, to be in units of reward; 1 without normalisation."""

    def __init__(self, spec: PolicySpec, storage: Storage, *, returns: bool, device: str) -> None:
        """Normalise observations if `spec.normalize`, and returns if `returns`."""
        self._of_observations, self._of_returns, self._device = spec.normalize, returns, device
        self._one_hot, inputs = one_hot_inputs(spec.vectors), spec.inputs
        self._observations, self._returns = storage.statistics("observations", inputs), storage.statistics("returns", 1)
        self._fix()

    def normalized(self, observation: Tensor) -> Tensor:
        """Return observations [..., inputs] as the networks see them."""
        if not self._of_observations:
            return observation
        return normalized(observation, self._mean, self._scale)

    def update(self, observations: Tensor, returns: Tensor, collective: Collective) -> None:
        """Add raw observations [M, inputs] and returns [M] in units of reward.

        Args:
            observations: of this learner.
            returns: of this learner.
            collective: the learners; the rows of all are added.
        """
        if self._of_observations:
            self._observations.update(observations.cpu().numpy(), collective)
        if self._of_returns:
            self._returns.update(returns.cpu().numpy()[:, None], collective)
        self._fix()

    def _fix(self) -> None:
        """Compute the mean and the scale for the next learning step and its actors."""
        mean, scale = self._observations.published()
        mean[self._one_hot], scale[self._one_hot] = 0, 1  # they stay as they are, see models/inputs.py
        self.published: Tree = {"observation_mean": mean, "observation_scale": scale} if self._of_observations else {}
        """What is published beside the policy's parameters."""
        self._mean, self._scale = torch.from_numpy(mean).to(self._device), torch.from_numpy(scale).to(self._device)
        self.return_std = float(1.0 / self._returns.published()[1][0])

    def arrays(self) -> Tree:
        """Return the arrays that a checkpoint saves with the weights."""
        arrays = dict(self.published)
        if self._of_returns:
            arrays["return_std"] = np.array([self.return_std], np.float32)
        return arrays

    def state(self) -> dict[str, Any]:
        """Return the statistics in full, as a resumed run needs them."""
        return {"observations": self._observations.state(), "returns": self._returns.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over `state()`."""
        self._observations.restore(state["observations"])
        self._returns.restore(state["returns"])
        self._fix()
