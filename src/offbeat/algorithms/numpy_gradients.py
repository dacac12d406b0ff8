"""An actor-critic's loss and its gradient by hand, in NumPy, for plain MLPs on a CPU: the results of autograd, sooner.

An algorithm takes this path by itself where it applies; ``tests/algorithms/test_numpy_gradients.py`` holds it to
autograd. The derivatives, with A the advantage, M the rows, d the derivative of the mean loss:

    policy gradient     d / d log pi = -A / M
    categorical         d log pi(a) / d logits = onehot(a) - p          d H / d logits = -p (log p + H)
    Gaussian            d log pi / d mean = z / sigma                   d log pi / d log sigma = z^2 - 1
    value loss          d / d V = (V - target) / M

An algorithm may have another policy or value loss: it passes functions that return the loss and the first or the
last of these (``ppo_numpy.py``); the networks and distributions in between are the same for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from offbeat.models.flat import FlatParameters
from offbeat.models.numpy_mlp import NumpyMLP
from offbeat.models.spec import PolicySpec

F32 = NDArray[np.float32]
Rows = Mapping[str, NDArray[Any]]
"""A minibatch: name -> [M, ...]."""
Metrics = Mapping[str, Tensor | float]
PolicyLoss = Callable[[F32, F32, Rows], tuple[float, F32, Metrics]]
"""(log_prob [M], advantages [M], minibatch) -> (mean loss, its derivative by log_prob [M], metrics to report)."""
ValueLoss = Callable[[F32, Rows], tuple[float, F32]]
"""(values [M], minibatch) -> (mean loss, its derivative by the values [M])."""


class Coefficients(NamedTuple):
    """What the parts of the loss are weighed with."""

    value_coef: float
    entropy_coef: float
    normalize_advantages: bool


def applies(spec: PolicySpec, parameters: FlatParameters, *, shared: bool, exploration: str) -> bool:
    """Whether these settings have their derivatives above."""
    box = spec.action.kind == "box" and spec.distribution == "gaussian"
    simple = spec.plain and (box or (spec.action.kind == "discrete" and spec.mask is None))
    return simple and not shared and exploration == "entropy" and parameters.values.device.type == "cpu"


class NumpyGradients:
    """Reads values and writes gradients through views of the flat buffers."""

    def __init__(self, spec: PolicySpec, parameters: FlatParameters, weigh: Coefficients) -> None:
        values: dict[str, F32] = parameters.layout.views(parameters.values.detach().numpy())
        self._gradients: dict[str, F32] = parameters.layout.views(parameters.gradients.numpy())
        self._policy = NumpyMLP(spec.layer_names(), values, spec.activation)
        critic = [name.replace("policy", "critic") for name in spec.layer_names()]
        self._critic = NumpyMLP(critic, values, spec.activation)
        self._head: _Head = _Categorical() if spec.action.kind == "discrete" else _Gaussian(values, self._gradients)
        self._weigh = weigh

    def values(self, observation: F32) -> F32:
        """Return the critic's values, [M]."""
        return self._critic.forward(observation)[:, 0].copy()

    def log_prob(self, observation: F32, action: NDArray[Any]) -> F32:
        """Return the policy's log-probabilities of recorded actions, [M]."""
        return self._head.log_prob(self._policy.forward(observation), action)

    def write(
        self, minibatch: Mapping[str, Tensor], policy_loss: PolicyLoss, value_loss: ValueLoss
    ) -> tuple[float, Metrics]:
        """Write all gradients of the loss over a minibatch; return the loss and the metrics to report."""
        rows = {name: tensor.numpy() for name, tensor in minibatch.items()}
        with np.errstate(over="ignore", invalid="ignore"):  # the learner refuses what is not finite
            of_policy, entropy, metrics = self._write_policy(rows, policy_loss)
            of_values = self._write_critic(rows, value_loss)
        loss = of_policy + self._weigh.value_coef * of_values - self._weigh.entropy_coef * entropy
        return loss, {"policy_loss": of_policy, "value_loss": of_values, "entropy": entropy, **metrics}

    def _write_policy(self, rows: Rows, policy_loss: PolicyLoss) -> tuple[float, float, Metrics]:
        log_prob = self._head.log_prob(self._policy.forward(rows["observation"]), rows["action"])
        advantages = _normalized(rows["advantage"]) if self._weigh.normalize_advantages else rows["advantage"]
        loss, d_log_prob, metrics = policy_loss(log_prob, advantages, rows)
        d_output, entropy = self._head.backward(d_log_prob, self._weigh.entropy_coef)
        self._policy.backward(d_output, self._gradients)
        return loss, entropy, metrics

    def _write_critic(self, rows: Rows, value_loss: ValueLoss) -> float:
        loss, d_values = value_loss(self._critic.forward(rows["observation"])[:, 0], rows)
        self._critic.backward(d_values[:, None] * np.float32(self._weigh.value_coef), self._gradients)
        return loss


def policy_gradient_loss(log_prob: F32, advantages: F32) -> tuple[float, F32]:
    """Return the mean of ``-A log pi`` and its derivative by log_prob [M]."""
    rows = len(log_prob)
    return -float(advantages.dot(log_prob)) / rows, advantages * np.float32(-1 / rows)


def squared_value_loss(values: F32, targets: F32) -> tuple[float, F32]:
    """Return half the mean squared error and its derivative by the values [M]."""
    rows = len(values)
    error = values - targets
    return 0.5 * float(error.dot(error)) / rows, error * np.float32(1 / rows)


def _normalized(advantages: F32) -> F32:
    centered = advantages - np.add.reduce(advantages) * np.float32(1 / len(advantages))
    result: F32 = centered / (math.sqrt(centered.dot(centered) / len(centered)) + 1e-8)
    return result


class _Head(Protocol):
    """From the policy network's output to log-probabilities, and back."""

    def log_prob(self, output: F32, action: NDArray[Any]) -> F32: ...

    def backward(self, d_log_prob: F32, entropy_coef: float) -> tuple[F32, float]:
        """Return d loss / d output, [M, P], and the mean entropy; `log_prob` was called before."""
        ...


class _Categorical:
    """One categorical component. Works on [choices, M], as sums over few choices are quicker down the columns."""

    def log_prob(self, output: F32, action: NDArray[Any]) -> F32:
        logits = np.ascontiguousarray(output.T)
        logits -= logits.max(axis=0)
        self._probs = np.exp(logits)
        total = self._probs.sum(axis=0)
        self._probs /= total
        self._log_probs = logits - np.log(total)
        self._chosen = (action.astype(np.intp, copy=False), np.arange(len(action)))
        chosen: F32 = self._log_probs[self._chosen]
        return chosen

    def backward(self, d_log_prob: F32, entropy_coef: float) -> tuple[F32, float]:
        surprise = self._probs * self._log_probs
        entropy = -surprise.sum(axis=0)
        d = self._probs * -d_log_prob
        d[self._chosen] += d_log_prob
        if entropy_coef:
            # d (-coef mean H) / d logits = coef / M * p (log p + H)
            d += (surprise + self._probs * entropy) * np.float32(entropy_coef / len(entropy))
        return np.ascontiguousarray(d.T), float(entropy.mean())


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
        # The entropy is the sum of log sigma and a constant, whatever the mean.
        np.matmul(d_log_prob, self._squares, out=self._d_log_std)
        self._d_log_std -= d_log_prob.sum() + np.float32(entropy_coef)
        entropy = float(self._log_std.sum()) + 0.5 * math.log(2 * math.pi * math.e) * len(self._log_std)
        return self._z * self._inverse_std * d_log_prob[:, None], entropy
