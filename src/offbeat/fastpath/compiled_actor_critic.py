"""The fast path of PPO, A2C and IMPALA with compiled gradients (`kernels = "numba"`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offbeat.algorithms.base import LossResult, Minibatch
from offbeat.algorithms.batch_network import FastOutputs, OnPolicyFastPath
from offbeat.algorithms.minibatch_types import ForwardedRows
from offbeat.algorithms.on_policy import ACTOR_CRITIC, OnPolicy
from offbeat.algorithms.on_policy_shards import NORMALIZED
from offbeat.algorithms.ppo import PPO
from offbeat.core.types import F32
from offbeat.fastpath import compiled
from offbeat.fastpath.actor_critic import arrays_of, critic_names, head_of
from offbeat.models.flat import FlatParameters
from offbeat.models.mlp import MinibatchArrays

Sums = NDArray[np.float64]
Forwarded = tuple[compiled.Network, F32, bool, NDArray[np.int64]]
"""A network, observations [N, inputs], whether the last forward pass was with them, and the M rows of the loss."""
_f32: Callable[[NDArray[Any]], F32] = partial(np.ascontiguousarray, dtype=np.float32)


class CompiledFastPath(OnPolicyFastPath):
    """See `compiled`. The gradients of the policy and those of the critic are one call each."""

    kernels = "numba"

    def __init__(self, algorithm: OnPolicy[Any]) -> None:
        """Read and write the parameters of an algorithm for which `ActorCriticFastPath.applies` is true."""
        spec, parameters = algorithm.spec, algorithm.groups[ACTOR_CRITIC].parameters
        relu, self._algorithm = spec.activation == "relu", algorithm
        self._policy = _Network(parameters, spec.layer_names(), relu=relu)
        self._value = _Network(parameters, critic_names(spec), relu=relu)
        buffers = parameters.values.detach().numpy(), parameters.gradients.numpy()
        views = [parameters.layout.views(buffer) for buffer in buffers]
        self._head = head_of(spec, *views)
        self._log_std: list[F32] = [view["log_std"] for view in views] if spec.action.kind == "box" else []
        self._ppo = algorithm if isinstance(algorithm, PPO) else None
        self._value_clip = self._ppo.config.value_clip if self._ppo else None
        self._forwarded: object = None
        """`FastOutputs.forwarded` of the activations for `_x`; None if they are not those of `evaluate`."""
        self._x = np.zeros((0, spec.inputs), np.float32)
        self._sums = np.zeros((2, compiled.SUMS))

    def values(self, observation: Tensor) -> Tensor:
        return torch.from_numpy(self._forward(_f32(observation.numpy()), self._value)[:, 0])

    def evaluate(self, observation: Tensor, action: Tensor) -> FastOutputs:
        x = _f32(observation.numpy())
        output, values = self._forward(x, self._policy), self._forward(x, self._value)
        log_prob = self._head.log_prob(output[: len(action)], action.numpy())
        self._forwarded = object()
        return FastOutputs(torch.from_numpy(log_prob), torch.from_numpy(values[:, 0]), self._forwarded)

    def _forward(self, x: F32, network: _Network) -> F32:
        self._forwarded = None
        self._x = x
        with_workspaces = network.of(len(x))
        compiled.forward(with_workspaces, x)
        return with_workspaces.output[: len(x)]

    def gradients(self, minibatch: Minibatch) -> LossResult:
        arrays = arrays_of(minibatch)
        if isinstance(minibatch, ForwardedRows) and minibatch.forwarded is self._forwarded:
            x, forwarded, index = self._x, True, minibatch.valid.numpy()
        else:
            x, forwarded, index = _f32(arrays["observation"]), False, np.arange(len(arrays["observation"]))
        self._forwarded = None  # the activations are overwritten
        self._sums[:] = 0
        self._policy_gradients((self._policy.of(len(x)), x, forwarded, index), arrays, self._sums[0])
        self._value_gradients((self._value.of(len(x)), x, forwarded, index), arrays, self._sums[1])
        return self._result(len(index))

    def _policy_gradients(self, forwarded: Forwarded, arrays: MinibatchArrays, sums: Sums) -> None:
        clip = self._ppo.clip if self._ppo else math.inf
        normalize, advantages = self._algorithm.config.normalize_advantages, arrays["advantage"]
        if normalize and NORMALIZED in arrays:  # a shard
            normalize, advantages = False, arrays[NORMALIZED]
        loss = compiled.PolicyLoss(normalize, self._ppo is not None, clip, self._algorithm.entropy_coef)
        of_rows = _f32(arrays["reference_log_prob"]), _f32(advantages), loss, sums
        if self._log_std:
            action = _f32(arrays["action"]).reshape(len(advantages), -1)
            compiled.gaussian_gradients(*forwarded, action, *of_rows, *self._log_std)
        else:
            compiled.categorical_gradients(*forwarded, arrays["action"].astype(np.int64, copy=False), *of_rows)

    def _value_gradients(self, forwarded: Forwarded, arrays: MinibatchArrays, sums: Sums) -> None:
        clip = math.inf if self._value_clip is None else self._value_clip
        of_rows = _f32(arrays["proximal_value"]), _f32(arrays["value_target"])
        compiled.value_gradients(*forwarded, *of_rows, clip, self._algorithm.config.value_coef, sums)

    def _result(self, rows: int) -> LossResult:
        (policy_loss, kl, ratio, clipped, deviation, entropy), (value_loss, *_) = self._sums.tolist()
        policy_loss, value_loss, entropy = policy_loss / rows, value_loss / rows, entropy / rows
        loss = policy_loss + self._algorithm.config.value_coef * value_loss
        loss -= self._algorithm.entropy_coef * entropy
        losses = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        if self._ppo is None:
            return LossResult(loss, losses)
        ratios = {"approx_kl": kl / rows, "ratio_mean": ratio / rows, "clip_fraction": clipped / rows}
        return LossResult(loss, {**losses, **ratios}, {"ratio_deviation": deviation})


class _Network:
    """A network for compiled functions, with workspaces that grow with the number of rows."""

    def __init__(self, parameters: FlatParameters, names: Sequence[str], *, relu: bool) -> None:
        """Find the layers by their names in the flat buffers, the head last."""
        entries = {entry.name: entry for entry in parameters.layout.entries}
        pairs = [(entries[f"{name}.weight"], entries[f"{name}.bias"]) for name in names]
        layers = np.array([(weight.offset, bias.offset, *weight.shape) for weight, bias in pairs], np.int64)
        self._widest, self._outputs = int(layers[:, compiled.OUTPUTS :].max()), int(layers[-1, compiled.OUTPUTS])
        largest = int(layers[:, compiled.OUTPUTS :].prod(axis=1).max())
        none = np.zeros((0, 0), np.float32)
        self._network = compiled.Network(
            values=parameters.values.detach().numpy(),
            gradients=parameters.gradients.numpy(),
            layers=layers,
            relu=relu,
            hidden=none,
            output=none,
            d_output=none,
            transposed=np.zeros((len(layers) - 1, compiled.SMALL), np.float32),
            scratch=np.zeros((3, max(largest, compiled.BLOCK * self._widest)), np.float32),
        )

    def of(self, rows: int) -> compiled.Network:
        """Return the network with workspaces for this number of rows. New, larger ones are without activations."""
        if rows > len(self._network.output):
            self._network = self._network._replace(
                hidden=np.zeros((len(self._network.layers) - 1, rows * self._widest), np.float32),
                output=np.zeros((rows, self._outputs), np.float32),
                d_output=np.zeros((rows, self._outputs), np.float32),
            )
        return self._network
