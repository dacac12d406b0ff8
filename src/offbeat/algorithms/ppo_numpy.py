"""PPO's loss and its gradient by hand, in NumPy, for plain MLPs on a CPU: the same figures as autograd's, sooner.

`PPO` takes this path by itself where it applies; ``tests/algorithms/test_ppo_numpy.py`` holds it to autograd.
The derivatives, with A the advantage, r the ratio, M the rows, d the derivative of the mean loss:

    clipped surrogate   d / d log pi = -A r / M, or 0 where the clip holds r
    categorical         d log pi(a) / d logits = onehot(a) - p          d H / d logits = -p (log p + H)
    Gaussian            d log pi / d mean = z / sigma                   d log pi / d log sigma = z^2 - 1
    value loss          d / d V = (V - target) / M, or 0 where the clip holds V
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from offbeat.models.flat import FlatParameters
from offbeat.models.numpy_mlp import NumpyMLP
from offbeat.models.spec import PolicySpec

F32 = NDArray[np.float32]
Figures = dict[str, float]


class Coefficients(NamedTuple):
    """What the loss is weighed with, in one update."""

    clip: float
    value_clip: float | None
    value_coef: float
    entropy_coef: float
    normalize_advantages: bool


def applies(spec: PolicySpec, parameters: FlatParameters, *, shared: bool, exploration: str) -> bool:
    """Whether these settings have their derivatives above."""
    simple = spec.action.kind == "discrete" or spec.distribution == "gaussian"
    return simple and not shared and exploration == "entropy" and parameters.values.device.type == "cpu"


class NumpyGradients:
    """Reads values and writes gradients through views of the flat buffers."""

    def __init__(self, spec: PolicySpec, parameters: FlatParameters) -> None:
        values: dict[str, F32] = parameters.layout.views(parameters.values.detach().numpy())
        self._gradients: dict[str, F32] = parameters.layout.views(parameters.gradients.numpy())
        self._policy = NumpyMLP(spec.layer_names(), values, spec.activation)
        critic = [name.replace("policy", "critic") for name in spec.layer_names()]
        self._critic = NumpyMLP(critic, values, spec.activation)
        self._head: _Head = _Categorical() if spec.action.kind == "discrete" else _Gaussian(values, self._gradients)

    def values(self, observation: F32) -> F32:
        """Return the critic's values, [M]."""
        return self._critic.forward(observation)[:, 0].copy()

    def log_prob(self, observation: F32, action: NDArray[Any]) -> F32:
        """Return the policy's log-probabilities of recorded actions, [M]."""
        return self._head.log_prob(self._policy.forward(observation), action)

    def write(self, minibatch: Mapping[str, Tensor], weigh: Coefficients) -> tuple[float, Figures]:
        """Write all gradients of the loss over a minibatch; return the loss and the figures to report."""
        with np.errstate(over="ignore", invalid="ignore"):  # the learner refuses what is not finite
            return self._write(minibatch, weigh)

    def _write(self, minibatch: Mapping[str, Tensor], weigh: Coefficients) -> tuple[float, Figures]:
        arrays = {name: tensor.numpy() for name, tensor in minibatch.items()}
        observation = arrays["observation"]
        log_prob = self._head.log_prob(self._policy.forward(observation), arrays["action"])
        advantages = _normalized(arrays["advantage"]) if weigh.normalize_advantages else arrays["advantage"]
        policy_loss, d_log_prob, figures = _surrogate(log_prob - arrays["proximal_log_prob"], advantages, weigh.clip)
        d_output, entropy = self._head.backward(d_log_prob, weigh.entropy_coef)
        self._policy.backward(d_output, self._gradients)
        values = self._critic.forward(observation)[:, 0]
        value_loss, d_values = _value_loss(values, arrays["proximal_value"], arrays["value_target"], weigh.value_clip)
        self._critic.backward(d_values[:, None] * np.float32(weigh.value_coef), self._gradients)
        loss = policy_loss + weigh.value_coef * value_loss - weigh.entropy_coef * entropy
        return loss, {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy, **figures}


def _normalized(advantages: F32) -> F32:
    centered = advantages - advantages.mean()
    result: F32 = centered / (math.sqrt(centered.dot(centered) / len(centered)) + 1e-8)
    return result


def _surrogate(log_ratio: F32, advantages: F32, clip: float) -> tuple[float, F32, Figures]:
    """Return the clipped surrogate's mean, its derivative by log_prob [M], and figures of the ratio."""
    rows = len(log_ratio)
    ratio = np.exp(log_ratio)
    gain, clipped = ratio * advantages, np.clip(ratio, 1 - clip, 1 + clip) * advantages
    derivative = np.where(gain <= clipped, gain, 0) * np.float32(-1 / rows)
    deviation = np.abs(ratio - 1)
    figures = {
        "approx_kl": float((np.expm1(log_ratio) - log_ratio).mean()),
        "ratio_mean": float(ratio.mean()),
        "clip_fraction": np.count_nonzero(deviation > clip) / rows,
        "ratio_deviation": float(deviation.max()),
    }
    return -float(np.minimum(gain, clipped).mean()), derivative, figures


def _value_loss(values: F32, proximal: F32, targets: F32, clip: float | None) -> tuple[float, F32]:
    """Return half the mean squared error, clipped or not, and its derivative by the values [M]."""
    rows = len(values)
    error = values - targets
    if clip is None:
        return 0.5 * float(error.dot(error)) / rows, error * np.float32(1 / rows)
    moved = values - proximal
    held = np.abs(moved) > clip
    clipped = proximal + np.clip(moved, -clip, clip) - targets
    square, clipped_square = error * error, clipped * clipped
    loss = 0.5 * float(np.maximum(square, clipped_square).mean())
    return loss, np.where(held & (clipped_square > square), 0, error) * np.float32(1 / rows)


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
