"""The fast path of PPO, A2C and IMPALA with compiled gradients (`kernels = "numba"`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offbeat.algorithms.base import LossResult, Minibatch
from offbeat.algorithms.network_passes import FastEvaluated, FastPass
from offbeat.algorithms.on_policy import GROUP, OnPolicy
from offbeat.algorithms.on_policy_shards import NORMALIZED
from offbeat.algorithms.ppo import PPO, PPOConfig
from offbeat.fastpath import compiled
from offbeat.fastpath.actor_critic import ActorCriticFastPath, Rows, arrays_of
from offbeat.fastpath.mlp import F32
from offbeat.models.flat import FlatParameters


class CompiledFastPath(ActorCriticFastPath[OnPolicy[Any]]):
    """See `compiled`. The gradients of the policy and those of the critic are one call each."""

    kernels = "numba"

    def __init__(self, algorithm: OnPolicy[Any]) -> None:
        """Read and write the parameters of an algorithm for which `applies` is true."""
        super().__init__(algorithm)
        spec, parameters = algorithm.spec, algorithm.groups[GROUP].parameters
        policy = spec.layer_names()
        relu = spec.activation == "relu"
        self._policy = _Network(parameters, policy, relu=relu)
        self._critic_network = _Network(parameters, [name.replace("policy", "critic") for name in policy], relu=relu)
        self._discrete = spec.action.kind == "discrete"
        self._log_std: Sequence[F32] = ()
        if not self._discrete:
            buffers = parameters.values.detach().numpy(), parameters.gradients.numpy()
            self._log_std = [parameters.layout.views(buffer)["log_std"] for buffer in buffers]
        self._passes = 0
        self._x = np.zeros((0, spec.inputs), np.float32)

    def values(self, observation: Tensor) -> Tensor:
        return torch.from_numpy(self._forward(_f32(observation.numpy()), self._critic_network)[:, 0].copy())

    def evaluate(self, observation: Tensor, action: Tensor) -> FastEvaluated:
        x = _f32(observation.numpy())
        output, values = self._forward(x, self._policy), self._forward(x, self._critic_network)
        log_prob = self._head.log_prob(output[: len(action)], action.numpy())
        return FastEvaluated(torch.from_numpy(log_prob), torch.from_numpy(values[:, 0].copy()), self._passes)

    def _forward(self, x: F32, network: _Network) -> F32:
        self._passes += 1
        self._x = x
        workspace = network.of(len(x))
        compiled.forward(workspace, x)
        return workspace.output[: len(x)]

    def gradients(self, minibatch: Minibatch) -> LossResult:
        if minibatch["rows"] is not None:
            return self._by_autograd(minibatch)
        rows = arrays_of(minibatch)
        forwarded = isinstance(minibatch, FastPass) and minibatch.number == self._passes
        if isinstance(minibatch, FastPass) and forwarded:
            x, index = self._x, minibatch.valid.numpy()
        else:
            x, index = _f32(rows["observation"]), np.arange(len(rows["observation"]))
        self._passes += 1
        sums = np.zeros((2, compiled.SUMS))
        self._policy_gradients(x, forwarded, index, rows, sums[0])
        self._value_gradients(x, forwarded, index, rows, sums[1])
        return self._result(sums, len(index))

    def _policy_gradients(
        self, x: F32, forwarded: bool, index: NDArray[np.int64], rows: Rows, sums: NDArray[np.float64]
    ) -> None:
        config, algorithm = self.algorithm.config, self.algorithm
        clip = algorithm.clip if isinstance(algorithm, PPO) else math.inf
        normalized = NORMALIZED in rows
        loss = compiled.PolicyLoss(
            config.normalize_advantages and not normalized, isinstance(algorithm, PPO), clip, config.entropy_coef
        )
        advantages = _f32(rows[NORMALIZED if normalized else "advantage"])
        arguments = self._policy.of(len(x)), x, forwarded, index
        of_rows = _f32(rows["proximal_log_prob"]), advantages, loss, sums
        if self._discrete:
            compiled.categorical_gradients(*arguments, rows["action"].astype(np.int64, copy=False), *of_rows)
        else:
            action = _f32(rows["action"]).reshape(len(index), -1)
            compiled.gaussian_gradients(*arguments, action, *of_rows, *self._log_std)

    def _value_gradients(
        self, x: F32, forwarded: bool, index: NDArray[np.int64], rows: Rows, sums: NDArray[np.float64]
    ) -> None:
        config = self.algorithm.config
        clip = config.value_clip if isinstance(config, PPOConfig) and config.value_clip is not None else math.inf
        of_rows = _f32(rows["proximal_value"]), _f32(rows["value_target"])
        compiled.value_gradients(
            self._critic_network.of(len(x)), x, forwarded, index, *of_rows, clip, config.value_coef, sums
        )

    def _result(self, sums: NDArray[np.float64], rows: int) -> LossResult:
        config = self.algorithm.config
        (policy_loss, kl, ratio, clipped, _, entropy), (value_loss, *_) = (sums / rows).tolist()
        loss = policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy
        losses = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        if not isinstance(self.algorithm, PPO):
            return LossResult(loss, losses)
        ratios = {"approx_kl": kl, "ratio_mean": ratio, "clip_fraction": clipped}
        return LossResult(loss, {**losses, **ratios}, {"ratio_deviation": float(sums[0, compiled.DEVIATION])})


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
            transposed=np.zeros((len(layers) - 1, largest), np.float32),
            scratch=np.zeros((3, max(largest, compiled.BLOCK * self._widest)), np.float32),
        )

    def of(self, rows: int) -> compiled.Network:
        """Return the network with workspaces for this number of rows. Larger ones lose the activations."""
        if rows > len(self._network.output):
            self._network = self._network._replace(
                hidden=np.zeros((len(self._network.layers) - 1, rows * self._widest), np.float32),
                output=np.zeros((rows, self._outputs), np.float32),
                d_output=np.zeros((rows, self._outputs), np.float32),
            )
        return self._network


def _f32(array: NDArray[Any]) -> F32:
    return np.ascontiguousarray(array, np.float32)
