"""The network of a policy that acts in NumPy: a plain MLP. Actors that need no other never import torch."""

from __future__ import annotations

from collections.abc import Mapping

from offbeat.core.types import Array
from offbeat.fastpath.mlp import F32, MLP, Layers
from offbeat.models.published import published_layout
from offbeat.models.spec import PolicySpec


class NumpyNetwork:
    """`models.acting.ActingNetwork`, for specs that are plain."""

    def __init__(self, spec: PolicySpec, vector: F32) -> None:
        """Read the parameters from a published vector, through views."""
        self._layers = Layers.of(published_layout(spec).views(vector), spec.layer_names())
        self._mlp = MLP(self._layers.sizes, spec.activation)

    def forward(self, vector: F32, observation: Mapping[str, Array], state: F32 | None) -> F32:  # noqa: ARG002
        return self._mlp.forward(self._layers, vector)
