"""A policy on a plain MLP, in NumPy: for small networks on a CPU several times quicker than torch, and needing none."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from offbeat.models import sampling
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


class BasePolicy:
    """What all policies share: sampling on top of a network's output."""

    def __init__(self, spec: PolicySpec) -> None:
        self.spec = spec
        self.to_env = sampling.ToEnv(spec)

    def forward(self, observation: Mapping[str, Array]) -> F32:
        """Return the distribution's parameters, [N, outputs]."""
        raise NotImplementedError

    @property
    def log_std(self) -> F32 | None:
        """[outputs] for Gaussian policies, else None."""
        raise NotImplementedError

    def act(self, observation: Tree, random: np.random.Generator) -> Acted:
        """Sample an action for each column and record its log-probability."""
        action, log_prob = sampling.sample(self.spec, self.forward(observation), self.log_std, random)
        return Acted(action, {"behavior_log_prob": log_prob})

    def greedy(self, observation: Tree) -> Array:
        """Return the most likely action for each column."""
        return sampling.greedy(self.spec, self.forward(observation))


class NumpyPolicy(BasePolicy):
    """The published vector is read through views: loading new weights copies once and allocates nothing."""

    def __init__(self, spec: PolicySpec) -> None:
        super().__init__(spec)
        layout = spec.layout()
        self._vector = np.zeros(layout.size, np.float32)
        self._arrays: dict[str, F32] = layout.views(self._vector)
        names = [f"policy_body.{i}" for i in range(len(spec.hidden_sizes))] + ["policy_head"]
        self._layers = [(self._arrays[f"{n}.weight"].T, self._arrays[f"{n}.bias"]) for n in names]
        self._buffers: dict[int, list[F32]] = {}

    def load(self, vector: F32) -> None:
        self._vector[:] = vector

    @property
    def log_std(self) -> F32 | None:
        return self._arrays.get("log_std")

    def forward(self, observation: Mapping[str, Array]) -> F32:
        """Return [N, outputs], which the next call with the same N overwrites."""
        x = flatten(self.spec, observation)
        if self.spec.normalize:
            x = (x - self._arrays["observation_mean"]) * self._arrays["observation_scale"]
            np.clip(x, -OBSERVATION_CLIP, OBSERVATION_CLIP, out=x)
        for (weight, bias), out in zip(self._layers, self._outputs(len(x)), strict=True):
            np.matmul(x, weight, out=out)
            out += bias
            if weight is not self._layers[-1][0]:
                _activate(out, self.spec.activation)
            x = out
        return x

    def _outputs(self, columns: int) -> list[F32]:
        if columns not in self._buffers:
            self._buffers[columns] = [np.empty((columns, bias.size), np.float32) for _, bias in self._layers]
        return self._buffers[columns]


def _activate(x: F32, activation: str) -> None:
    if activation == "tanh":
        np.tanh(x, out=x)
    else:
        np.maximum(x, 0, out=x)
