"""The network of a policy on batches that several actors fill: in torch, on any device.

A row of a batch of constant shape has the same bits whatever the other rows contain. (At another shape it may have
other bits: libraries choose their kernels by the shape.)
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from offbeat.core.types import F32, Array
from offbeat.models.buffer_layout import BufferLayout
from offbeat.models.network_arrays import ENCODED, INPUTS, OUTPUTS, STATE, RowArray, input_arrays
from offbeat.models.policy_network import CoreState
from offbeat.models.published import parameter_shapes
from offbeat.models.spec import PolicySpec
from offbeat.models.torch_acting import network_on

LEAST_ROWS = 4
"""Smallest number of rows of a batch. For fewer rows matrix products use slower kernels."""


class GroupNetwork:
    """A network with a buffer for the inputs of a batch."""

    def __init__(self, spec: PolicySpec, rows: int, device: str = "cpu") -> None:
        """Allocate a batch.

        Args:
            spec: the policy.
            rows: rows of a batch; at least `LEAST_ROWS` are computed.
            device: torch device of the network.
        """
        self._device, self._on_cpu = torch.device(device), torch.device(device).type == "cpu"
        self._rows = max(LEAST_ROWS, rows)
        self._weights = torch.zeros(BufferLayout.of(parameter_shapes(spec)).size, device=self._device)
        self._module = network_on(spec, self._weights).to(self._device)
        self._host = {array.name: self._buffer(array) for array in input_arrays(spec)}
        self.inputs: Mapping[str, Array] = {name: tensor.numpy() for name, tensor in self._host.items()}
        """The inputs of the next batch, [rows, *shape] by the names of `network_arrays`, to be written."""

    def _buffer(self, array: RowArray) -> Tensor:
        """Return a zeroed buffer, aligned in the same way in every process; pinned for a GPU."""
        dtype = torch.from_numpy(np.zeros(0, array.dtype)).dtype
        return torch.zeros(self._rows, *array.shape, dtype=dtype, pin_memory=not self._on_cpu)

    def load(self, vector: F32) -> None:
        """Load weights from a published vector; the parameters are at its start."""
        self._weights.copy_(torch.from_numpy(vector[: len(self._weights)]))

    @torch.inference_mode()
    def forward(self, rows: int | None = None) -> dict[str, F32]:
        """Return new arrays of the outputs, [rows, outputs], and with a core of its next state, by name.

        Args:
            rows: compute only the first rows, at least `LEAST_ROWS`; None: the whole batch. Bits are the same only for
                the same number of rows.
        """
        rows = self._rows if rows is None else max(LEAST_ROWS, rows)
        inputs = {name: self._moved(tensor[:rows]) for name, tensor in self._host.items()}
        encoded = {name.removeprefix(ENCODED): each for name, each in inputs.items() if name.startswith(ENCODED)}
        core_state = CoreState.of_one_row(inputs[STATE]) if STATE in inputs else None
        outputs, state = self._module(inputs[INPUTS], encoded, core_state)
        results = {OUTPUTS: outputs} if state is None else {OUTPUTS: outputs, STATE: state}
        return {name: tensor.cpu().numpy() for name, tensor in results.items()}

    def _moved(self, tensor: Tensor) -> Tensor:
        return tensor if self._on_cpu else tensor.to(self._device, non_blocking=True)
