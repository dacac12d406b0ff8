"""The network of a policy that acts in torch, for any spec."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from offbeat.core.types import F32, Array
from offbeat.models.buffer_layout import BufferLayout
from offbeat.models.dense import Unfilled
from offbeat.models.policy_network import CoreState, PolicyNetwork
from offbeat.models.published import parameter_shapes
from offbeat.models.spec import PolicySpec


class TorchNetwork:
    """An `acting.ActingNetwork` in torch."""

    def __init__(self, spec: PolicySpec, vector: F32) -> None:
        """Read the parameters from a published vector, through views."""
        self._spec = spec
        self.module = network_on(spec, torch.from_numpy(vector))

    @torch.inference_mode()
    def forward(self, inputs: F32, observation: Mapping[str, Array], state: F32 | None) -> F32:
        encoded = {leaf.name: torch.from_numpy(observation[leaf.name]) for leaf in self._spec.encoded}
        core_state = self._core_state(state)
        parameters: Tensor
        parameters, next_state = self.module(torch.from_numpy(inputs), encoded, core_state)
        if state is not None and next_state is not None:
            state[...] = next_state.numpy()
        return parameters.numpy()

    def _core_state(self, state: F32 | None) -> CoreState | None:
        if not self._spec.recurrent:
            return None
        if state is None:
            raise ValueError("a policy with a recurrent core needs the state of each column: pass zeros at first")
        return CoreState.of_one_row(torch.from_numpy(state))


def network_on(spec: PolicySpec, vector: Tensor) -> PolicyNetwork:
    """Return a network without gradients whose parameters are views of a vector, in the order of a published one."""
    network = PolicyNetwork(spec, Unfilled(), head_gain=1.0).requires_grad_(False)
    views = BufferLayout.of(parameter_shapes(spec)).views(vector)
    for name, parameter in network.named_parameters():
        parameter.data = views[name]
    return network
