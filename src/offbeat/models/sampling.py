"""From the parameters of an action distribution to actions, in NumPy: the same for every policy network.

Parameters are [N, P] float32: logits of all components side by side (categorical), values of all choices
(epsilon_greedy), means (gaussian, squashed), logits and then means (mixed actions), or means and then log standard
deviations (tanh_gaussian). A squashed action is recorded before its tanh, where its density is well conditioned; a
tanh_gaussian's after it, as what is recorded is what a critic is given.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from offbeat.core.choices import draw_choices
from offbeat.core.types import Array
from offbeat.models.spec import LOG_STD_RANGE, MASKED_LOGIT, PolicySpec

F32 = NDArray[np.float32]
_HALF_LOG_TAU = np.float32(0.5 * math.log(2 * math.pi))


def masked(parameters: F32, mask: NDArray[np.bool_]) -> F32:
    """Return a copy of [N, P] in which the logits, which come first, of what a mask [N, logits] forbids are put down.

    No such choice is ever drawn or the most likely one, and log-probabilities are those among what is allowed.
    """
    result = parameters.copy()
    logits = result[:, : mask.shape[1]]
    np.copyto(logits, np.float32(MASKED_LOGIT), where=~mask)
    return result


def sample(spec: PolicySpec, parameters: F32, log_std: F32 | None, random: np.random.Generator) -> tuple[Array, F32]:
    """Draw an action for each column; return the actions as recorded and their log-probabilities [N]."""
    logits = spec.logits
    if log_std is None:
        return _sample_categorical(spec, parameters, random)
    if not logits:
        action, log_prob = _sample_gaussian(spec, parameters, log_std, random)
        return action.reshape(len(action), *spec.action.shape), log_prob
    choices, log_prob = _sample_choices(spec.action.nvec, parameters[:, :logits], random)
    numbers, of_numbers = _sample_gaussian(spec, parameters[:, logits:], log_std, random)
    return np.column_stack([*choices, numbers]).astype(np.float32, copy=False), log_prob + of_numbers


def sample_unrecorded(spec: PolicySpec, parameters: F32, random: np.random.Generator) -> Array:
    """Draw an action for each column of a policy whose log-probabilities nobody asks for, as recorded."""
    if spec.distribution == "tanh_gaussian":
        return _sample_tanh_gaussian(spec, parameters, random)
    return _sample_categorical(spec, parameters, random)[0]


def uniform(
    spec: PolicySpec, columns: int, random: np.random.Generator, mask: NDArray[np.bool_] | None = None
) -> Array:
    """Draw evenly among all choices, or those that a mask [N, logits] allows, or in [-1, 1], which is all of a bounded
    box; as recorded, [N, *shape].
    """
    if spec.action.kind == "box":
        drawn: Array = random.random((columns, *spec.action.shape), dtype=np.float32) * np.float32(2) - np.float32(1)
        return drawn
    return draw_choices(spec.action.nvec, columns, random, mask).reshape(columns, *spec.action.shape)


def sample_epsilon_greedy(
    spec: PolicySpec, values: F32, epsilon: np.float32, random: np.random.Generator, mask: NDArray[np.bool_] | None
) -> Array:
    """Take the choice of the highest value, or any with probability epsilon, for each column.

    As many numbers are drawn whatever becomes of them, so that the stream goes on alike.
    """
    explores = random.random(len(values), dtype=np.float32) < epsilon
    return np.where(explores, uniform(spec, len(values), random, mask), greedy(spec, values))


def _sample_categorical(spec: PolicySpec, logits: F32, random: np.random.Generator) -> tuple[Array, F32]:
    choices, log_prob = _sample_choices(spec.action.nvec, logits, random)
    return _recorded(spec, choices), log_prob


def _sample_choices(nvec: tuple[int, ...], logits: F32, random: np.random.Generator) -> tuple[list[Array], F32]:
    """Draw a choice [N] of each component; return the log-probabilities of all of them, [N]."""
    actions, log_probs, start = [], [], 0
    for choices in nvec:
        action, log_prob = _sample_component(logits[:, start : start + choices], random)
        actions.append(action)
        log_probs.append(log_prob)
        start += choices
    return actions, log_probs[0] if len(log_probs) == 1 else np.sum(log_probs, axis=0, dtype=np.float32)


def _recorded(spec: PolicySpec, choices: list[Array]) -> Array:
    """Return choices [N] of each component as an action is recorded, where there is nothing else in it."""
    if spec.action.kind == "discrete":
        return choices[0]
    joined = np.stack(choices, axis=1)
    return joined.reshape(len(joined), *spec.action.shape).astype(spec.action.dtype, copy=False)


def _sample_component(logits: F32, random: np.random.Generator) -> tuple[Array, F32]:
    """Sample by the inverse of the cumulative distribution: one uniform number per column."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    weights = np.exp(shifted)
    cumulative = np.cumsum(weights, axis=1)
    total = cumulative[:, -1]
    threshold = random.random(len(logits), dtype=np.float32) * total
    action = (cumulative[:, :-1] <= threshold[:, None]).sum(axis=1)
    return action, shifted[np.arange(len(logits)), action] - np.log(total)


def _sample_gaussian(spec: PolicySpec, mean: F32, log_std: F32, random: np.random.Generator) -> tuple[F32, F32]:
    """Draw numbers [N, D]; return their log-probabilities [N] too."""
    noise = random.standard_normal(mean.shape, dtype=np.float32)
    action = np.asarray(mean + np.exp(log_std, dtype=np.float32) * noise, np.float32)
    log_prob = -(0.5 * noise * noise + (log_std + _HALF_LOG_TAU)).sum(axis=1)
    if spec.distribution == "squashed":
        log_prob -= log_tanh_slope(action).sum(axis=1)
    return action, log_prob


def _sample_tanh_gaussian(spec: PolicySpec, parameters: F32, random: np.random.Generator) -> Array:
    mean, log_std = parameters[:, : spec.action_size], parameters[:, spec.action_size :]
    std = np.exp(np.minimum(np.maximum(log_std, LOG_STD_RANGE[0]), LOG_STD_RANGE[1]))
    action: Array = np.tanh(mean + std * random.standard_normal(mean.shape, dtype=np.float32))
    return action.reshape(len(mean), *spec.action.shape)


def log_tanh_slope(u: F32) -> F32:
    """Return log(1 - tanh(u)^2) elementwise, without overflow: 2 (log 2 - u - softplus(-2 u))."""
    slope: F32 = np.float32(2.0) * (np.float32(math.log(2.0)) - u - np.logaddexp(np.float32(0.0), -2 * u))
    return slope


def greedy(spec: PolicySpec, parameters: F32) -> Array:
    """Return the most likely action of each column (Gaussian: the mean; tanh_gaussian: its tanh), as recorded."""
    if spec.distribution == "tanh_gaussian":
        return np.tanh(parameters[:, : spec.action_size]).reshape(len(parameters), *spec.action.shape)
    if spec.action.kind == "box":
        return parameters.reshape(len(parameters), *spec.action.shape).copy()  # the network overwrites its output
    choices, start = [], 0
    for count in spec.action.nvec:
        choices.append(parameters[:, start : start + count].argmax(axis=1))
        start += count
    if spec.box_size:
        return np.column_stack([*choices, parameters[:, start:]]).astype(np.float32, copy=False)
    return _recorded(spec, choices)


class ToEnv:
    """Turns recorded actions into what the env accepts, but for its dtypes and the structure of mixed ones.

    Policies act in [-1, 1] where the env's box is bounded on both sides: squashed or clipped there, then scaled
    to the box, so that one initial standard deviation suits all envs. In a mixed action the numbers of boxes are the
    last, and choices stay as they are.
    """

    def __init__(self, spec: PolicySpec) -> None:
        self.squash = spec.distribution == "squashed"
        self._box, self._choices = bool(spec.box_size), len(spec.action.nvec)
        if self._box:
            shape = (spec.box_size,) if self._choices else spec.action.shape
            low = np.array(spec.action.low, np.float32).reshape(shape)
            high = np.array(spec.action.high, np.float32).reshape(shape)
            bounded = np.isfinite(low) & np.isfinite(high)
            self.low, self.high = low, high
            self.inner_low, self.inner_high = np.where(bounded, -1, low), np.where(bounded, 1, high)
            self.center = (np.where(bounded, low, 0) + np.where(bounded, high, 0)) / 2
            self.half_width = np.where(bounded, self.high - self.center, 1)
            self.scales = bool((self.half_width != 1).any() or (self.center != 0).any())

    def __call__(self, action: Array) -> Array:
        if not self._box:
            return action
        if not self._choices:
            return self._scaled(action)
        return np.concatenate([action[:, : self._choices], self._scaled(action[:, self._choices :])], axis=1)

    def _scaled(self, action: Array) -> Array:
        inner: Array = np.tanh(action) if self.squash else np.clip(action, self.inner_low, self.inner_high)
        if not self.scales:
            return inner
        scaled: Array = np.clip(inner * self.half_width + self.center, self.low, self.high)
        return scaled
