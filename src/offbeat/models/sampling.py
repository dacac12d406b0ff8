"""Samples actions from the parameters of an action distribution, in NumPy.

Parameters are [N, P] float32: the joined logits of all components (categorical), values of all choices
(epsilon_greedy), means (gaussian, squashed, and before the tanh deterministic), logits and then means (mixed actions),
or means and then log standard deviations (tanh_gaussian). A squashed action is recorded before its tanh, where its
density is well conditioned; a tanh_gaussian or deterministic action after the tanh, because it is an input of the
critics.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from offbeat.core.choices import sample_choices
from offbeat.core.types import F32, Array
from offbeat.models.actions import greedy, recorded
from offbeat.models.spec import LOG_STD_RANGE, MASKED_LOGIT, PolicySpec

_HALF_LOG_TAU = np.float32(0.5 * math.log(2 * math.pi))


def masked(parameters: F32, mask: NDArray[np.bool_]) -> F32:
    """Return a copy of the parameters [N, P] with very low logits for choices that a mask [N, logits] does not allow.

    Such a choice is never sampled and never the most likely one. Log-probabilities are normalised over the allowed
    choices. The logits are the first columns.
    """
    result = parameters.copy()
    logits = result[:, : mask.shape[1]]
    np.copyto(logits, np.float32(MASKED_LOGIT), where=~mask)
    return result


def sample(spec: PolicySpec, parameters: F32, log_std: F32 | None, random: np.random.Generator) -> tuple[Array, F32]:
    """Sample an action for each column; return the actions as recorded and their log-probabilities [N]."""
    logits = spec.logits
    if log_std is None:
        return _sample_categorical(spec, parameters, random)
    if not logits:
        action, log_prob = _sample_gaussian(spec, parameters, log_std, random)
        return action.reshape(len(action), *spec.action.shape), log_prob
    choices, log_prob = _sample_choices(spec.action.nvec, parameters[:, :logits], random)
    numbers, numbers_log_prob = _sample_gaussian(spec, parameters[:, logits:], log_std, random)
    return np.column_stack([*choices, numbers]).astype(np.float32, copy=False), log_prob + numbers_log_prob


def sample_without_log_prob(spec: PolicySpec, parameters: F32, random: np.random.Generator) -> Array:
    """Sample an action for each column of a policy that does not record log-probabilities."""
    if spec.distribution == "tanh_gaussian":
        return _sample_tanh_gaussian(spec, parameters, random)
    return _sample_categorical(spec, parameters, random)[0]


def sample_uniform(
    spec: PolicySpec, columns: int, random: np.random.Generator, mask: NDArray[np.bool_] | None = None
) -> Array:
    """Sample uniform actions, as recorded, [N, *shape].

    A bounded box is sampled in [-1, 1]; choices are sampled from those that the mask [N, logits] allows, without a mask
    from all.
    """
    if spec.action.kind == "box":
        action: Array = random.random((columns, *spec.action.shape), dtype=np.float32) * np.float32(2) - np.float32(1)
        return action
    return sample_choices(spec.action.nvec, columns, random, mask).reshape(columns, *spec.action.shape)


def sample_deterministic(spec: PolicySpec, parameters: F32, std: np.float32, random: np.random.Generator) -> Array:
    """Return the tanh of the parameters plus Gaussian noise with this standard deviation, clipped to [-1, 1]."""
    noise = std * random.standard_normal(parameters.shape, dtype=np.float32)
    action: Array = np.minimum(np.maximum(np.tanh(parameters) + noise, -1), 1)
    return action.reshape(len(action), *spec.action.shape)


def sample_epsilon_greedy(
    spec: PolicySpec, values: F32, epsilon: np.float32, random: np.random.Generator, mask: NDArray[np.bool_] | None
) -> Array:
    """Select the choice with the highest value, or with probability epsilon a random one, for each column.

    How many random numbers are generated does not depend on which columns explore: the next call gets the same ones.
    """
    explores = random.random(len(values), dtype=np.float32) < epsilon
    return np.where(explores, sample_uniform(spec, len(values), random, mask), greedy(spec, values))


def _sample_categorical(spec: PolicySpec, logits: F32, random: np.random.Generator) -> tuple[Array, F32]:
    choices, log_prob = _sample_choices(spec.action.nvec, logits, random)
    return recorded(spec, choices), log_prob


def _sample_choices(nvec: tuple[int, ...], logits: F32, random: np.random.Generator) -> tuple[list[Array], F32]:
    """Sample a choice [N] of each component; return the choices and the sum of their log-probabilities, [N]."""
    actions, log_probs, start = [], [], 0
    for choices in nvec:
        action, log_prob = _sample_component(logits[:, start : start + choices], random)
        actions.append(action)
        log_probs.append(log_prob)
        start += choices
    return actions, log_probs[0] if len(log_probs) == 1 else np.sum(log_probs, axis=0, dtype=np.float32)


def _sample_component(logits: F32, random: np.random.Generator) -> tuple[Array, F32]:
    """Sample by the inverse of the cumulative distribution: one uniform number per column.

    With few columns the calls take the time: those of ufuncs are quicker than the methods of arrays.
    """
    shifted = logits - np.maximum.reduce(logits, axis=1, keepdims=True)
    cumulative = np.add.accumulate(np.exp(shifted), axis=1)
    total = cumulative[:, -1]
    threshold = random.random(len(logits), dtype=np.float32) * total
    action = np.add.reduce(cumulative[:, :-1] <= threshold[:, None], axis=1)
    return action, shifted[np.arange(len(logits)), action] - np.log(total)


def _sample_gaussian(spec: PolicySpec, mean: F32, log_std: F32, random: np.random.Generator) -> tuple[F32, F32]:
    """Sample continuous numbers [N, D]; return them and their log-probabilities [N].

    These are computed from the rounded numbers, which are recorded, and not from the noise: only then the learner gets
    the same ones.
    """
    std = np.exp(log_std, dtype=np.float32)
    action = np.asarray(mean + std * random.standard_normal(mean.shape, dtype=np.float32), np.float32)
    standardized = (action - mean) / std
    constant = np.add.reduce(log_std) + _HALF_LOG_TAU * np.float32(len(log_std))
    log_prob = np.float32(-0.5) * np.add.reduce(standardized * standardized, axis=1) - constant
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
