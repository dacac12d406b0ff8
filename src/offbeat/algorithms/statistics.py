"""Running statistics of observations and returns, for the learner's normalisation and the actors'.

They are constant during a learning step and change at its end. So, for each version of the weights, actors and learner
normalise observations in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from offbeat.core.types import Tree
from offbeat.models.inputs import one_hot_inputs
from offbeat.models.spec import PolicySpec
from offbeat.models.storage import Storage
from offbeat.models.tensor_inputs import normalized


class Statistics:
    """Running statistics of observations, if `spec.normalize`, and of returns, if `returns`."""

    return_unit: float
    """A normalised value times this is in units of reward: the standard deviation of returns, 1 before the first row,
    divided by `return_scale`. 1 without normalisation."""

    def __init__(
        self, spec: PolicySpec, storage: Storage, *, returns: bool, return_scale: float = 1.0, device: str
    ) -> None:
        """Register the statistics.

        Args:
            spec: the policy.
            storage: registers the statistics.
            returns: whether returns are normalised.
            return_scale: standard deviation of normalised returns.
            device: device of the observations to normalise.
        """
        self._normalizes_observations, self._normalizes_returns = spec.normalize, returns
        self._return_scale = return_scale if returns else 1.0
        self.used = spec.normalize or returns
        """Whether there is anything to update."""
        self._device = device
        self._one_hot, inputs = one_hot_inputs(spec.vectors), spec.inputs
        self._observations, self._returns = storage.statistics("observations", inputs), storage.statistics("returns", 1)
        self._update_constants()

    def normalized(self, observation: Tensor) -> Tensor:
        """Return observations [..., inputs] normalised if `spec.normalize`, otherwise unchanged."""
        if not self._normalizes_observations:
            return observation
        return normalized(observation, self._mean, self._scale)

    def update(self, observations: Tensor, returns: Tensor) -> None:
        """Add rows to the statistics.

        Args:
            observations: observations, not normalised, [M, inputs].
            returns: returns, in units of reward, [M].
        """
        if self._normalizes_observations:
            self._observations.update(observations.cpu().numpy())
        if self._normalizes_returns:
            self._returns.update(returns.cpu().numpy()[:, None])
        self._update_constants()

    def _update_constants(self) -> None:
        """Compute mean, scale and `return_unit` for the next learning step and its actors."""
        mean, scale = self._observations.published()
        mean[self._one_hot], scale[self._one_hot] = 0, 1  # one-hot inputs are not normalised, see models/inputs.py
        self.published: Tree = (
            {"observation_mean": mean, "observation_scale": scale} if self._normalizes_observations else {}
        )
        """The arrays that are published with the policy's parameters."""
        self._mean, self._scale = torch.from_numpy(mean).to(self._device), torch.from_numpy(scale).to(self._device)
        return_std = float(1.0 / self._returns.published()[1][0]) if self._normalizes_returns else 1.0
        self.return_unit = return_std / self._return_scale

    def arrays(self) -> Tree:
        """Return the arrays that a checkpoint saves with the weights."""
        arrays = dict(self.published)
        if self._normalizes_returns:
            arrays["return_unit"] = np.array([self.return_unit], np.float32)
        return arrays

    def state(self) -> dict[str, Any]:
        """Return the complete statistics, which a resumed run needs."""
        return {"observations": self._observations.state(), "returns": self._returns.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state()`."""
        self._observations.restore(state["observations"])
        self._returns.restore(state["returns"])
        self._update_constants()
