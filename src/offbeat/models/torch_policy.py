"""A policy whose network has encoders, a core or normalised layers: it acts in torch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from offbeat.core.types import Array
from offbeat.models.buffer_layout import BufferLayout
from offbeat.models.dense import Unfilled
from offbeat.models.numpy_policy import ActingPolicy
from offbeat.models.policy_network import PolicyNetwork, Remembered
from offbeat.models.published import parameter_shapes
from offbeat.models.spec import PolicySpec

F32 = NDArray[np.float32]


class TorchPolicy(ActingPolicy):
    """The network's parameters are views of the published vector: loading new weights is one copy."""

    def __init__(self, spec: PolicySpec) -> None:
        super().__init__(spec)
        self._network = PolicyNetwork(spec, Unfilled(), head_gain=1.0).requires_grad_(False)
        views = BufferLayout.of(parameter_shapes(spec)).views(torch.from_numpy(self.vector))
        self._network.load_state_dict(views, assign=True)

    @torch.inference_mode()
    def forward(self, observation: Mapping[str, Array], state: F32 | None = None) -> F32:
        vector = torch.from_numpy(self._vector_of(observation))
        encoded = {leaf.name: torch.from_numpy(observation[leaf.name]) for leaf in self.spec.encoded}
        parameters, after = self._network.moved_on(vector, encoded, self._remembered(state))
        if state is not None and after is not None:
            state[...] = after.numpy()
        return parameters.numpy()

    def _remembered(self, state: F32 | None) -> Remembered | None:
        """Return what the core goes on from: one row, which ends nothing."""
        if not self.spec.recurrent:
            return None
        if state is None:
            raise ValueError("a policy with a recurrent core needs the state of each column: pass zeros at first")
        return Remembered(torch.from_numpy(state), torch.zeros(1, len(state), dtype=torch.bool))
