"""A policy on a plain MLP, in NumPy: for small networks on a CPU several times quicker than torch, and needing none."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from offbeat.models import sampling
from offbeat.models.inputs import flatten
from offbeat.models.numpy_mlp import NumpyMLP
from offbeat.models.spec import PolicySpec
from offbeat.types import Acted, Array, Tree

F32 = NDArray[np.float32]
OBSERVATION_CLIP = np.float32(10.0)
"""Normalised observations are clipped to +- this."""


class NumpyPolicy:
    """The published vector is read through views: loading new weights copies once and allocates nothing."""

    def __init__(self, spec: PolicySpec) -> None:
        self.spec = spec
        self.to_env = sampling.ToEnv(spec)
        self._seen, self._mask = spec.seen, spec.mask
        layout = spec.layout()
        self._vector = np.zeros(layout.size, np.float32)
        self._arrays: dict[str, F32] = layout.views(self._vector)
        self._uniform = self._arrays.get("uniform")
        self._network = NumpyMLP(spec.layer_names(), self._arrays, spec.activation)

    def load(self, vector: F32) -> None:
        self._vector[:] = vector

    def act(self, observation: Tree, random: np.random.Generator) -> Acted:
        """Sample an action for each column and record its log-probability, where the spec says so."""
        if self._uniform is not None and self._uniform[0]:
            columns = len(observation[self.spec.observation[0].name])
            return Acted(sampling.uniform(self.spec, columns, random, self._allowed(observation)), {})
        parameters = self._parameters(observation)
        if not self.spec.records_log_prob:
            return Acted(sampling.sample_unrecorded(self.spec, parameters, random), {})
        action, log_prob = sampling.sample(self.spec, parameters, self._arrays.get("log_std"), random)
        return Acted(action, {"behavior_log_prob": log_prob})

    def greedy(self, observation: Tree) -> Array:
        """Return the most likely action for each column."""
        return sampling.greedy(self.spec, self._parameters(observation))

    def _parameters(self, observation: Tree) -> F32:
        """Return [N, outputs] with the logits of what is not allowed put down, if there is a mask."""
        parameters, allowed = self.forward(observation), self._allowed(observation)
        return parameters if allowed is None else sampling.masked(parameters, allowed)

    def _allowed(self, observation: Tree) -> NDArray[np.bool_] | None:
        return None if self._mask is None else observation[self._mask]

    def forward(self, observation: Mapping[str, Array]) -> F32:
        """Return [N, outputs], which the next call with the same N overwrites."""
        x = flatten(self._seen, observation)
        if self.spec.normalize:
            x = (x - self._arrays["observation_mean"]) * self._arrays["observation_scale"]
            np.clip(x, -OBSERVATION_CLIP, OBSERVATION_CLIP, out=x)
        return self._network.forward(x)
