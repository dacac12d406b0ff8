"""A policy on a plain MLP, in NumPy: for small networks on a CPU several times quicker than torch, and needing none."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from offbeat.models import sampling
from offbeat.models.numpy_mlp import NumpyMLP
from offbeat.models.spec import PolicySpec
from offbeat.types import Acted, Array, Tree

F32 = NDArray[np.float32]
OBSERVATION_CLIP = np.float32(10.0)
"""Normalised observations are clipped to +- this."""


def flatten(spec: PolicySpec, observation: Mapping[str, Array]) -> F32:
    """Join the leaves of N observations into [N, inputs] float32."""
    leaves = [np.asarray(observation[leaf.name], dtype=np.float32) for leaf in spec.observation]
    flat = [leaf.reshape(len(leaf), -1) for leaf in leaves]
    return flat[0] if len(flat) == 1 else np.concatenate(flat, axis=1)


class NumpyPolicy:
    """The published vector is read through views: loading new weights copies once and allocates nothing."""

    def __init__(self, spec: PolicySpec) -> None:
        self.spec = spec
        self.to_env = sampling.ToEnv(spec)
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
            return Acted(sampling.uniform(self.spec, columns, random), {})
        if self.spec.distribution == "epsilon_greedy":
            epsilon = self._arrays["epsilon"][0]
            return Acted(sampling.sample_epsilon_greedy(self.spec, self.forward(observation), epsilon, random), {})
        if not self.spec.records_log_prob:
            return Acted(sampling.sample_unrecorded(self.spec, self.forward(observation), random), {})
        log_std = self._arrays.get("log_std")
        action, log_prob = sampling.sample(self.spec, self.forward(observation), log_std, random)
        return Acted(action, {"behavior_log_prob": log_prob})

    def greedy(self, observation: Tree) -> Array:
        """Return the most likely action for each column."""
        return sampling.greedy(self.spec, self.forward(observation))

    def forward(self, observation: Mapping[str, Array]) -> F32:
        """Return [N, outputs], which the next call with the same N overwrites."""
        x = flatten(self.spec, observation)
        if self.spec.normalize:
            x = (x - self._arrays["observation_mean"]) * self._arrays["observation_scale"]
            np.clip(x, -OBSERVATION_CLIP, OBSERVATION_CLIP, out=x)
        return self._network.forward(x)
