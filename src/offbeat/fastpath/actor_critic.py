"""Analytic gradients of an actor-critic's loss in NumPy, for plain MLPs on a CPU: the results of autograd, faster.

``tests/fastpath/test_actor_critic.py`` compares them with autograd. The derivatives, for the mean loss L, the advantage
A, the number of rows M, the entropy H and z = (a - mean) / sigma:

    policy gradient     d L / d log pi = -A / M
    categorical         d log pi(a) / d logits = onehot(a) - p          d H / d logits = -p (log p + H)
    Gaussian            d log pi / d mean = z / sigma                   d log pi / d log sigma = z^2 - 1
    value loss          d L / d V = (V - target) / M

A subclass may have another policy loss or value loss (``ppo.py``): its methods return the loss and d L / d log pi, or
the loss and d L / d V. The code for networks and distributions is the same for all algorithms. In names, `d_x` is the
derivative of the loss by x.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offbeat.algorithms.base import LossResult, Minibatch
from offbeat.algorithms.batch_network import FastOutputs
from offbeat.algorithms.minibatch_types import ForwardedRows, RowRange
from offbeat.algorithms.on_policy import ACTOR_CRITIC, OnPolicy
from offbeat.algorithms.on_policy_shards import NORMALIZED
from offbeat.core.types import F32
from offbeat.fastpath.mlp_pair import MLPPair, PairLayers
from offbeat.models.mlp import MLP, Layers, MinibatchArrays
from offbeat.models.spec import PolicySpec

Owner = TypeVar("Owner", bound=OnPolicy[Any])


class ActorCriticFastPath(Generic[Owner]):
    """Reads values and writes gradients through views of the flat buffers, in place of `OnPolicy.loss` and autograd."""

    def __init__(self, algorithm: Owner) -> None:
        """Read and write the parameters of an algorithm for which `applies` is true."""
        spec, parameters = algorithm.spec, algorithm.groups[ACTOR_CRITIC].parameters
        values: dict[str, F32] = parameters.layout.views(parameters.values.detach().numpy())
        self.algorithm = algorithm
        gradients: dict[str, F32] = parameters.layout.views(parameters.gradients.numpy())
        critic = critic_names(spec)
        self._critic_layers = Layers.of(values, critic)
        self._critic = MLP(self._critic_layers.sizes, spec.activation)
        both = parameters.layout, spec.layer_names(), critic
        self._networks = MLPPair(
            PairLayers(parameters.values.detach().numpy(), *both),
            PairLayers(parameters.gradients.numpy(), *both),
            spec.activation,
        )
        self._head = head_of(spec, values, gradients)
        self._forwarded: object = None
        """`FastOutputs.forwarded` of the activations in `_networks`; None if they are not those of `evaluate`."""

    @staticmethod
    def applies(algorithm: OnPolicy[Any]) -> bool:
        """Whether the fast path supports the settings, the policy and the device of an algorithm."""
        config, spec = algorithm.config, algorithm.spec
        box = spec.action.kind == "box" and spec.distribution == "gaussian"
        simple = spec.plain and not spec.no_decision and (box or (spec.action.kind == "discrete" and spec.mask is None))
        on_cpu = algorithm.groups[ACTOR_CRITIC].parameters.values.device.type == "cpu"
        return simple and not config.shares_trunk(spec) and config.exploration == "entropy" and on_cpu

    def values(self, observation: Tensor) -> Tensor:
        """Return the critic's values, [M], of observations [M, inputs]."""
        return torch.from_numpy(self._critic.forward(self._critic_layers, observation.numpy())[:, 0])

    def evaluate(self, observation: Tensor, action: Tensor) -> FastOutputs:
        """Run policy and critic on observations [N, inputs]; the first M have recorded actions [M, ...]."""
        output, values = self._networks.forward(observation.numpy())
        log_prob = self._head.log_prob(output[: len(action)], action.numpy())
        self._forwarded = object()
        return FastOutputs(torch.from_numpy(log_prob), torch.from_numpy(values), self._forwarded)

    def gradients(self, minibatch: Minibatch) -> LossResult:
        """Write all gradients of `OnPolicy.loss` for a minibatch; return the same result, with a float as the loss."""
        arrays, forwarded = arrays_of(minibatch), self._forwarded
        self._forwarded = None  # the activations are overwritten
        with np.errstate(over="ignore", invalid="ignore"):  # the learner refuses updates that are not finite
            if isinstance(minibatch, ForwardedRows) and minibatch.forwarded is forwarded:
                output, values = self._networks.outputs()
                valid, count = minibatch.valid.numpy(), len(values)
                result, d_output, d_values = self._loss(output[valid], values[valid], arrays)
                self._networks.backward(_scattered(d_output, valid, count), _scattered(d_values, valid, count))
            else:
                output, values = self._networks.forward(arrays["observation"])
                result, d_output, d_values = self._loss(output, values, arrays)
                self._networks.backward(d_output, d_values)
        return result

    def _loss(self, output: F32, values: F32, arrays: MinibatchArrays) -> tuple[LossResult, F32, F32]:
        """Return the result of `OnPolicy.loss`, and its derivatives by the outputs of the policy, [M, P], and of the
        critic, [M], for these outputs.
        """
        config, entropy_coef = self.algorithm.config, self.algorithm.entropy_coef
        log_prob = self._head.log_prob(output, arrays["action"])
        advantages = _advantages(arrays) if config.normalize_advantages else arrays["advantage"]
        (policy_loss, metrics, outputs), d_log_prob = self.policy_loss(log_prob, advantages, arrays)
        d_output, entropy = self._head.backward(d_log_prob, entropy_coef)
        value_loss, d_values = self.value_loss(values, arrays)
        loss = policy_loss + config.value_coef * value_loss - entropy_coef * entropy
        losses = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        result = LossResult(loss, {**losses, **metrics}, outputs)
        return result, d_output, d_values * np.float32(config.value_coef)

    # --- the losses of the algorithm and their derivatives --------------------------------------------------

    def policy_loss(self, log_prob: F32, advantages: F32, arrays: MinibatchArrays) -> tuple[LossResult, F32]:  # noqa: ARG002
        """Return the result of `OnPolicy.policy_loss`, with a float as the loss, and d loss / d log_prob, [M]."""
        loss, derivative = policy_gradient_loss(log_prob, advantages)
        return LossResult(loss, {}), derivative

    def value_loss(self, values: F32, arrays: MinibatchArrays) -> tuple[float, F32]:
        """Return the result of `OnPolicy.value_loss`, as a float, and d loss / d values, [M]."""
        return squared_value_loss(values, arrays["value_target"])


def critic_names(spec: PolicySpec) -> list[str]:
    """Return the names of the critic's layers, the head last."""
    return [name.replace("policy", "critic") for name in spec.layer_names()]


def arrays_of(minibatch: Minibatch) -> MinibatchArrays:
    """Return the arrays of a minibatch, without those that are None."""
    if isinstance(minibatch, RowRange):
        return minibatch.arrays()
    return {name: value.numpy() for name, value in minibatch.items() if isinstance(value, Tensor)}


def _scattered(rows: F32, index: NDArray[np.int64], count: int) -> F32:
    """Return an array of `count` rows with some rows at their indices, and zeros elsewhere."""
    array = np.zeros((count, *rows.shape[1:]), np.float32)
    array[index] = rows
    return array


def policy_gradient_loss(log_prob: F32, advantages: F32) -> tuple[float, F32]:
    """Return the mean of ``-A log pi`` and its derivative by log_prob [M]."""
    rows = len(log_prob)
    return -float(advantages.dot(log_prob)) / rows, advantages * np.float32(-1 / rows)


def squared_value_loss(values: F32, targets: F32) -> tuple[float, F32]:
    """Return half the mean squared error and its derivative by the values [M]."""
    rows = len(values)
    error = values - targets
    return 0.5 * float(error.dot(error)) / rows, error * np.float32(1 / rows)


def _advantages(arrays: MinibatchArrays) -> F32:
    """Return the normalised advantages of a minibatch, [M]; in a shard they are normalised over the whole minibatch."""
    return arrays[NORMALIZED] if NORMALIZED in arrays else _normalized(arrays["advantage"])


def _normalized(advantages: F32) -> F32:
    mean = float(np.add.reduce(advantages) * np.float32(1 / len(advantages)))
    centered = advantages - mean
    std = _root_mean_square(centered)
    if std <= 1e-6 * abs(mean):  # perhaps only the rounding error of the mean, which must not be scaled up to 1
        centered = advantages - np.float32(advantages.mean(dtype=np.float64))
        std = _root_mean_square(centered)
    if std == math.inf:  # the squares overflow: the quotient would be 0, and the update would not be refused
        std = math.nan
    result: F32 = centered / (std + 1e-8)
    return result


def _root_mean_square(x: F32) -> float:
    return math.sqrt(x.dot(x) / len(x))


def head_of(spec: PolicySpec, values: Mapping[str, F32], gradients: Mapping[str, F32]) -> _Head:
    """Return the action distribution of a policy, with views of all parameters and gradients by name."""
    return _Categorical() if spec.action.kind == "discrete" else _Gaussian(values, gradients)


class _Head(Protocol):
    """An action distribution: forward from the policy network's output to log-probabilities, and backward."""

    def log_prob(self, output: F32, action: NDArray[Any]) -> F32:
        """Return the log-probabilities of recorded actions, [M], for the network's output [M, P]."""
        ...

    def backward(self, d_log_prob: F32, entropy_coef: float) -> tuple[F32, float]:
        """Return d loss / d output, [M, P], and the mean entropy, for the arguments of the last `log_prob`."""
        ...


class _Categorical:
    """One categorical component. Arrays are [choices, M], because sums over few choices are faster along this axis."""

    def __init__(self) -> None:
        self._columns = np.arange(0)

    def log_prob(self, output: F32, action: NDArray[Any]) -> F32:
        logits = np.ascontiguousarray(output.T)
        logits -= np.maximum.reduce(logits)
        self._probs = np.exp(logits)
        total = np.add.reduce(self._probs)
        self._probs /= total
        self._log_probs = logits - np.log(total)
        if len(action) != len(self._columns):
            self._columns = np.arange(len(action))
        self._chosen = action.astype(np.intp, copy=False) * len(action) + self._columns
        chosen: F32 = self._log_probs.take(self._chosen)
        return chosen

    def backward(self, d_log_prob: F32, entropy_coef: float) -> tuple[F32, float]:
        p_log_p = self._probs * self._log_probs
        entropy = -np.add.reduce(p_log_p)
        d = self._probs * -d_log_prob
        d.reshape(-1)[self._chosen] += d_log_prob
        if entropy_coef:
            # d (-coef mean H) / d logits = coef / M * p (log p + H)
            d += (p_log_p + self._probs * entropy) * np.float32(entropy_coef / len(entropy))
        return np.ascontiguousarray(d.T), float(np.add.reduce(entropy)) / len(entropy)


class _Gaussian:
    """A diagonal Gaussian whose log standard deviation is a parameter."""

    def __init__(self, values: Mapping[str, F32], gradients: Mapping[str, F32]) -> None:
        self._log_std, self._d_log_std = values["log_std"], gradients["log_std"]

    def log_prob(self, output: F32, action: NDArray[Any]) -> F32:
        self._inverse_std = np.exp(-self._log_std)
        self._z = (action.reshape(output.shape) - output) * self._inverse_std
        self._squares = self._z * self._z
        constant = self._log_std.sum() + np.float32(0.5 * math.log(2 * math.pi) * output.shape[1])
        log_prob: F32 = self._squares.sum(axis=1) * np.float32(-0.5) - constant
        return log_prob

    def backward(self, d_log_prob: F32, entropy_coef: float) -> tuple[F32, float]:
        # The entropy is the sum of log sigma plus a constant. It does not depend on the mean.
        np.matmul(d_log_prob, self._squares, out=self._d_log_std)
        self._d_log_std -= d_log_prob.sum() + np.float32(entropy_coef)
        entropy = float(self._log_std.sum()) + 0.5 * math.log(2 * math.pi * math.e) * len(self._log_std)
        return self._z * self._inverse_std * d_log_prob[:, None], entropy
