"""Converts network outputs to the most likely actions, and recorded actions to the env's actions.

An action has choices, of Discrete and MultiDiscrete spaces, and *numbers*, the continuous components of Box spaces. The
formulas work for NumPy arrays (acting) and for torch tensors (export).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from offbeat.core.types import F32, Array
from offbeat.models.spec import PolicySpec

Values = Any
"""A NumPy array or a torch tensor; the result has the same type."""


def best_choices(spec: PolicySpec, logits: Values) -> list[Values]:
    """Return the choice with the highest logit for each component, [N] each, for logits [N, logits]."""
    choices, start = [], 0
    for count in spec.action.nvec:
        choices.append(logits[:, start : start + count].argmax(1))
        start += count
    return choices


def best_numbers(spec: PolicySpec, parameters: Values, tanh: Callable[[Values], Values]) -> Values:
    """Return the most likely numbers, as recorded, [N, D]: the means, or their tanh if `spec.records_after_tanh`.

    Args:
        spec: the policy.
        parameters: parameters of the action distribution, [N, outputs].
        tanh: the function for this type of array.
    """
    means = parameters[:, spec.logits : spec.logits + spec.box_size]
    return tanh(means) if spec.records_after_tanh else means


def greedy(spec: PolicySpec, parameters: F32) -> Array:
    """Return the most likely action of each column, as recorded, [N, *shape], for parameters [N, outputs]."""
    if spec.action.kind == "box":
        numbers: Array = best_numbers(spec, parameters, np.tanh).reshape(len(parameters), *spec.action.shape)
        return numbers if spec.records_after_tanh else numbers.copy()  # the network overwrites its output
    choices = best_choices(spec, parameters)
    if spec.box_size:
        return np.column_stack([*choices, best_numbers(spec, parameters, np.tanh)]).astype(np.float32, copy=False)
    return recorded(spec, choices)


def recorded(spec: PolicySpec, choices: list[Array]) -> Array:
    """Return the actions, as recorded, for the choices [N] of each component; for actions without numbers."""
    if spec.action.kind == "discrete":
        return choices[0]
    joined = np.stack(choices, axis=1)
    return joined.reshape(len(joined), *spec.action.shape).astype(spec.action.dtype, copy=False)


class Bounds(Protocol):
    """How recorded numbers are converted to the env's range: parameters as NumPy arrays or torch tensors, [*shape].

    If a component has both bounds in the env, the policy's range for it is [-1, 1]: numbers are squashed or clipped to
    this range, and then scaled to the env's. So one initial standard deviation suits all envs.
    """

    squash: bool
    """Whether numbers are recorded before the tanh. Otherwise they are clipped."""
    scales: bool
    """Whether any number is scaled or shifted."""
    low: Any
    """The env's lower bounds."""
    high: Any
    """The env's upper bounds."""
    inner_low: Any
    """The lower bounds of the policy's range."""
    inner_high: Any
    """The upper bounds of the policy's range."""
    center: Any
    """The env's number for 0 in the policy's range; 0 without bounds."""
    half_width: Any
    """Half of the width of the env's range; 1 without bounds."""


BOUND_ARRAYS = ("low", "high", "inner_low", "inner_high", "center", "half_width")


def to_env_range(bounds: Bounds, numbers: Values, tanh: Callable[[Values], Values]) -> Values:
    """Convert recorded numbers to the env's range, [N, *shape] for bounds of [*shape]."""
    inner = tanh(numbers) if bounds.squash else numbers.clip(bounds.inner_low, bounds.inner_high)
    if not bounds.scales:
        return inner
    return (inner * bounds.half_width + bounds.center).clip(bounds.low, bounds.high)


class ToEnv:
    """Converts recorded actions to the env's range. It has the `Bounds` as NumPy arrays.

    Choices do not change; in a mixed action they come first, then the numbers. The env's dtype and the structure of
    mixed actions are restored elsewhere (envs/actions.py).
    """

    def __init__(self, spec: PolicySpec) -> None:
        self.squash = spec.distribution == "squashed"
        self._box, self._choices = bool(spec.box_size), len(spec.action.nvec)
        if self._box:
            shape = (spec.box_size,) if self._choices else spec.action.shape
            # Far from 0, many numbers of an env with float64 are the same one in float32.
            dtype: Any = np.float64 if spec.action.has_float64 else np.float32
            low, high = (np.array(each, dtype).reshape(shape) for each in (spec.action.low, spec.action.high))
            bounded = np.isfinite(low) & np.isfinite(high)
            self.low, self.high = low, high
            self.inner_low, self.inner_high = np.where(bounded, -1, low), np.where(bounded, 1, high)
            self.center = np.where(bounded, low, 0) / 2 + np.where(bounded, high, 0) / 2  # their sum may overflow
            self.half_width = np.where(bounded, self.high - self.center, 1)
            self.scales = bool((self.half_width != 1).any() or (self.center != 0).any())

    def __call__(self, action: Array) -> Array:
        if not self._box:
            return action
        if not self._choices:
            scaled: Array = to_env_range(self, action, np.tanh)
            return scaled
        choices, numbers = action[:, : self._choices], action[:, self._choices :]
        return np.concatenate([choices, to_env_range(self, numbers, np.tanh)], axis=1)

    def inverse(self, action: Array) -> Array:
        """Return the recorded numbers, [N, *shape], for numbers in the env's range; for Box actions after the tanh.

        A number with equal bounds, which cannot be known, is 0.
        """
        given = action.astype(self.center.dtype)
        inner: Array = (given - self.center) / np.where(self.half_width > 0, self.half_width, 1)
        return inner.astype(np.float32)
