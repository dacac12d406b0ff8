"""Policies that act. On a plain MLP in NumPy: for small networks several times quicker than torch, and needing none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from offbeat.core.types import Acted, Array, Tree
from offbeat.models import sampling
from offbeat.models.inputs import flatten
from offbeat.models.numpy_mlp import NumpyMLP
from offbeat.models.published import published_layout
from offbeat.models.spec import PolicySpec

F32 = NDArray[np.float32]
OBSERVATION_CLIP = np.float32(10.0)
"""Normalised observations are clipped to +- this."""


class ActingPolicy(ABC):
    """What all policies do around their network. The published vector is read through views of one copy."""

    def __init__(self, spec: PolicySpec) -> None:
        self.spec, self.state_size = spec, spec.state_size
        self.to_env = sampling.ToEnv(spec)
        self._vectors, self._mask = spec.vectors, spec.mask
        layout = published_layout(spec)
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
            if self.state_size:
                self.forward(observation, state)  # what is seen now is remembered when it chooses
            columns = len(observation[self.spec.observation[0].name])
            return Acted(sampling.uniform(self.spec, columns, random, self._allowed(observation)), {})
        parameters = self.parameters(observation, state)
        if self.spec.distribution == "epsilon_greedy":
            epsilon, allowed = self._arrays["epsilon"][0], self._allowed(observation)
            return Acted(sampling.sample_epsilon_greedy(self.spec, parameters, epsilon, random, allowed), {})
        if not self.spec.records_log_prob:
            return Acted(sampling.sample_unrecorded(self.spec, parameters, random), {})
        action, log_prob = sampling.sample(self.spec, parameters, self._arrays.get("log_std"), random)
        return Acted(action, {"behavior_log_prob": log_prob})

    def greedy(self, observation: Tree, state: F32 | None = None) -> Array:
        """Return the most likely action for each column."""
        return sampling.greedy(self.spec, self.parameters(observation, state))

    def parameters(self, observation: Tree, state: F32 | None = None) -> F32:
        """Return what `forward` does, with the logits of what is not allowed put down, if there is a mask."""
        parameters, allowed = self.forward(observation, state), self._allowed(observation)
        return parameters if allowed is None else sampling.masked(parameters, allowed)

    def _allowed(self, observation: Tree) -> NDArray[np.bool_] | None:
        return None if self._mask is None else observation[self._mask]

    def _vector_of(self, observation: Mapping[str, Array]) -> F32:
        """Return the leaves that no encoder sees, normalised and joined, [N, inputs]."""
        if not self._vectors:
            return np.zeros((len(observation[self.spec.observation[0].name]), 0), np.float32)
        x = flatten(self._vectors, observation)
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
