"""Policies that act. On a plain MLP in NumPy: for small networks several times quicker than torch, and needing none."""

from __future__ import annotations

from abc import ABC, abstractmethod
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
    """Join the leaves of N observations that no encoder sees into [N, inputs] float32."""
    leaves = [np.asarray(observation[leaf.name], dtype=np.float32) for leaf in spec.vectors]
    flat = [leaf.reshape(len(leaf), -1) for leaf in leaves]
    if not flat:
        return np.zeros((len(observation[spec.encoded[0].name]), 0), np.float32)
    return flat[0] if len(flat) == 1 else np.concatenate(flat, axis=1)


class ActingPolicy(ABC):
    """What all policies do around their network. The published vector is read through views of one copy."""

    def __init__(self, spec: PolicySpec) -> None:
        self.spec, self.state_size = spec, spec.state_size
        self.to_env = sampling.ToEnv(spec)
        layout = spec.layout()
        self.vector = np.zeros(layout.size, np.float32)
        """What `load` writes."""
        self._arrays: dict[str, F32] = layout.views(self.vector)
        self._uniform = self._arrays.get("uniform")

    @abstractmethod
    def forward(self, observation: Mapping[str, Array], state: F32 | None = None) -> F32:
        """Return [N, outputs], which the next call may overwrite; with a core, move `state` on."""

    def load(self, vector: F32) -> None:
        self.vector[:] = vector

    def act(self, observation: Tree, random: np.random.Generator, state: F32 | None = None) -> Acted:
        """Sample an action for each column and record its log-probability, where the spec says so."""
        if self._uniform is not None and self._uniform[0]:
            columns = len(observation[self.spec.observation[0].name])
            return Acted(sampling.uniform(self.spec, columns, random), {})
        if not self.spec.records_log_prob:
            return Acted(sampling.sample_unrecorded(self.spec, self.forward(observation, state), random), {})
        log_std = self._arrays.get("log_std")
        action, log_prob = sampling.sample(self.spec, self.forward(observation, state), log_std, random)
        return Acted(action, {"behavior_log_prob": log_prob})

    def greedy(self, observation: Tree, state: F32 | None = None) -> Array:
        """Return the most likely action for each column."""
        return sampling.greedy(self.spec, self.forward(observation, state))

    def _vector_of(self, observation: Mapping[str, Array]) -> F32:
        """Return the leaves that no encoder sees, normalised and joined, [N, inputs]."""
        x = flatten(self.spec, observation)
        if self.spec.normalize:
            x = (x - self._arrays["observation_mean"]) * self._arrays["observation_scale"]
            np.clip(x, -OBSERVATION_CLIP, OBSERVATION_CLIP, out=x)
        return x


class NumpyPolicy(ActingPolicy):
    """A policy on a plain MLP."""

    def __init__(self, spec: PolicySpec) -> None:
        super().__init__(spec)
        self._network = NumpyMLP(spec.layer_names(), self._arrays, spec.activation)

    def forward(self, observation: Mapping[str, Array], state: F32 | None = None) -> F32:  # noqa: ARG002
        return self._network.forward(self._vector_of(observation))


def make_policy(spec: PolicySpec) -> ActingPolicy:
    """Return a policy with all weights zero, in NumPy where it is plain; else in torch."""
    if spec.plain:
        return NumpyPolicy(spec)
    from offbeat.models.torch_policy import TorchPolicy  # here: actors on plain MLPs need no torch

    return TorchPolicy(spec)
