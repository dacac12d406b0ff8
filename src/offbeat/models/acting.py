"""Policies that select actions. Plain MLPs run in NumPy (`mlp`), several times faster than torch if they are small."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import isfinite
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from offbeat.config.registry import EncoderFactory, own_encoder, restore_encoder
from offbeat.core.errors import NetworkFailed
from offbeat.core.types import F32, Acted, Array, Tree
from offbeat.models import actions, sampling
from offbeat.models.buffer_layout import BufferLayout
from offbeat.models.inputs import flatten, normalized
from offbeat.models.mlp import NumpyNetwork
from offbeat.models.published import published_layout
from offbeat.models.spec import PolicySpec

IF_NOT_FINITE = (
    "If the encoder or the algorithm is your own, look in it for a division by zero or a logarithm of 0; else lower "
    "learning_rate or pass --set normalize_observations=true"
)
"""What to do about a network that returns NaN or infinity."""


class ActingNetwork(Protocol):
    """The network of a policy. It reads its parameters from the published vector, through views.

    Several threads may call it at once, as users may share a policy between threads.
    """

    def forward(self, inputs: F32, observation: Mapping[str, Array], state: F32 | None) -> F32:
        """Return [N, outputs], which the next call in this thread may overwrite; with a core, advance `state`.

        Args:
            inputs: [N, inputs], the leaves without an encoder, normalised and joined.
            observation: all leaves, [N, *shape].
            state: the core's state, [N, state_size]; None without a core.
        """
        ...


MakeNetwork = Callable[[PolicySpec, F32], ActingNetwork]
"""Returns the network that reads its parameters from a published vector."""


def make_policy(spec: PolicySpec) -> ActingPolicy:
    """Return a policy with all weights zero."""
    if spec.plain:
        return ActingPolicy(spec, NumpyNetwork)
    from offbeat.models.torch_acting import TorchNetwork  # here: actors on plain MLPs need no torch

    return ActingPolicy(spec, TorchNetwork)


class ActingPolicy:
    """A network with its input normalisation, action sampling, masks and bounds.

    Loading new weights is one copy, as the network reads the published vector through views.
    """

    def __init__(self, spec: PolicySpec, make_network: MakeNetwork | None, layout: BufferLayout | None = None) -> None:
        """Make a policy with all weights zero.

        Args:
            spec: the policy as plain data.
            make_network: makes its network; None: the network is computed elsewhere, and only `sample` can be used.
            layout: the result of `published_layout(spec)`, if it is known. To compute it may need torch.
        """
        self.spec, self.state_size = spec, spec.state_size
        self._make_network = make_network
        self.to_env = actions.ToEnv(spec)
        self._vectors, self._mask = spec.vectors, spec.mask
        layout = layout or published_layout(spec)
        self.vector = np.zeros(layout.size, np.float32)
        """[size]: the published weights; `load` writes them."""
        self._arrays: dict[str, F32] = layout.views(self.vector)
        self._uniform = self._arrays.get("uniform")
        self.network = make_network(spec, self.vector) if make_network else None

    def __reduce__(self) -> tuple[Any, ...]:
        """Let a copy and an unpickled policy make its own network: copied views would not read its vector.

        Another process may not know the user's encoder, so it is sent too.
        """
        return _with_weights, (self.spec, self._make_network, self.vector, own_encoder(self.spec.encoder))

    def load(self, vector: F32) -> None:
        self.vector[:] = vector

    def forward(self, observation: Mapping[str, Array], state: F32 | None = None) -> F32:
        """Return [N, outputs], which the next call in this thread may overwrite; with a core, advance `state`."""
        if self.network is None:
            raise ValueError("this policy has no network: an inference worker computes it")
        return self.network.forward(self.inputs(observation), observation, state)

    @property
    def needs_network(self) -> bool:
        """Whether `act` computes the network: a recurrent state must include an observation of uniform actions too."""
        return not self._is_uniform or self.state_size > 0

    def act(self, observation: Tree, random: np.random.Generator, state: F32 | None = None) -> Acted:
        """Sample an action for each column, with its log-probability if `spec.records_log_prob`."""
        return self.sample(observation, self.forward(observation, state) if self.needs_network else None, random)

    def sample(self, observation: Tree, outputs: F32 | None, random: np.random.Generator) -> Acted:
        """Do the second part of `act`.

        Args:
            observation: the observation of each column.
            outputs: the result of `forward`; None if `needs_network` is False.
            random: random stream.

        Raises:
            NetworkFailed: outputs of a policy with choices are not finite. A choice hides it; a number is not finite
                itself, and is looked at if the env fails (workers/policy_faults.py).
        """
        if self._is_uniform or outputs is None:
            columns = len(observation[self.spec.observation[0].name])
            return Acted(sampling.sample_uniform(self.spec, columns, random, self._allowed(observation)), {})
        if self.spec.logits:
            require_finite(outputs)
        parameters = self._masked(outputs, observation)
        if self.spec.distribution == "epsilon_greedy":
            epsilon, allowed = self._arrays["epsilon"][0], self._allowed(observation)
            return Acted(sampling.sample_epsilon_greedy(self.spec, parameters, epsilon, random, allowed), {})
        if self.spec.distribution == "deterministic":
            std = self._arrays["exploration_noise"][0]
            return Acted(sampling.sample_deterministic(self.spec, parameters, std, random), {})
        if not self.spec.records_log_prob:
            return Acted(sampling.sample_without_log_prob(self.spec, parameters, random), {})
        action, log_prob = sampling.sample(self.spec, parameters, self.log_std, random)
        return Acted(action, {"behavior_log_prob": log_prob})

    @property
    def log_std(self) -> F32 | None:
        """The log standard deviations of all numbers, [D], if they do not depend on the observation; else None."""
        return self._arrays.get("log_std")

    @property
    def _is_uniform(self) -> bool:
        """Whether actions are uniformly random."""
        return self._uniform is not None and bool(self._uniform[0])

    def greedy(self, observation: Tree, state: F32 | None = None) -> Array:
        """Return the most likely action for each column.

        Raises:
            NetworkFailed: outputs of the network are not finite.
        """
        parameters = self.parameters(observation, state)
        require_finite(parameters)
        return actions.greedy(self.spec, parameters)

    def parameters(self, observation: Tree, state: F32 | None = None) -> F32:
        """Return the parameters of the action distribution, [N, outputs].

        With a mask, the logits of choices that are not allowed are very low.
        """
        return self._masked(self.forward(observation, state), observation)

    def _masked(self, outputs: F32, observation: Tree) -> F32:
        allowed = self._allowed(observation)
        return outputs if allowed is None else sampling.masked(outputs, allowed)

    def _allowed(self, observation: Tree) -> NDArray[np.bool_] | None:
        return None if self._mask is None else observation[self._mask]

    def inputs(self, observation: Mapping[str, Array]) -> F32:
        """Return the leaves without an encoder, normalised and joined, [N, inputs]."""
        if not self._vectors:
            return np.zeros((len(observation[self.spec.observation[0].name]), 0), np.float32)
        x = flatten(self._vectors, observation)
        if not self.spec.normalize:
            return x
        return normalized(x, self._arrays["observation_mean"], self._arrays["observation_scale"])


def _with_weights(
    spec: PolicySpec, make_network: MakeNetwork | None, vector: F32, encoder: EncoderFactory | str | None
) -> ActingPolicy:
    if encoder is not None:
        spec = replace(spec, encoder=restore_encoder(spec.encoder, encoder))
    policy = ActingPolicy(spec, make_network)
    policy.load(vector)
    return policy


def require_finite(outputs: F32) -> None:
    """Raise NetworkFailed if outputs [N, K] have NaN or infinity."""
    # One sum finds out, except if the sum of finite outputs is too large.
    if not isfinite(np.add.reduce(outputs, axis=None)) and not np.isfinite(outputs).all():
        raise NetworkFailed(f"the network of the policy returned NaN or infinity. {IF_NOT_FINITE}")
