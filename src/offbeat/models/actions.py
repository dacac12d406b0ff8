"""Converts network outputs to the most likely actions, and recorded actions to the env's actions.

The formulas work for NumPy arrays (acting) and for torch tensors (export).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from offbeat.core.types import Array
from offbeat.models.spec import PolicySpec

F32 = NDArray[np.float32]
Values = Any
"""A NumPy array or a torch tensor; the result has the same type."""


def best_choices(spec: PolicySpec, logits: Values) -> list[Values]:
    """Return the choice of the highest logit of each component, [N] each, for logits [N, logits]."""
    choices, start = [], 0
    for count in spec.action.nvec:
        choices.append(logits[:, start : start + count].argmax(1))
        start += count
    return choices


def best_numbers(spec: PolicySpec, parameters: Values, tanh: Callable[[Values], Values]) -> Values:
    """Return the most likely numbers of boxes as they are recorded, [N, D]: the means, of a tanh_gaussian their tanh.

    Args:
        spec: the policy.
        parameters: of the action distribution, [N, outputs].
        tanh: of such an array.
    """
    means = parameters[:, spec.logits : spec.logits + spec.box_size]
    return tanh(means) if spec.distribution == "tanh_gaussian" else means


def greedy(spec: PolicySpec, parameters: F32) -> Array:
    """Return the most likely action of each column as it is recorded, [N, *shape], for parameters [N, outputs]."""
    if spec.action.kind == "box":
        numbers: Array = best_numbers(spec, parameters, np.tanh).reshape(len(parameters), *spec.action.shape)
        return numbers if spec.distribution == "tanh_gaussian" else numbers.copy()  # the network overwrites its output
    choices = best_choices(spec, parameters)
    if spec.box_size:
        return np.column_stack([*choices, best_numbers(spec, parameters, np.tanh)]).astype(np.float32, copy=False)
    return recorded(spec, choices)


def recorded(spec: PolicySpec, choices: list[Array]) -> Array:
    """Return the recorded actions for the choices [N] of each component, if actions have no boxes."""
    if spec.action.kind == "discrete":
        return choices[0]
    joined = np.stack(choices, axis=1)
    return joined.reshape(len(joined), *spec.action.shape).astype(spec.action.dtype, copy=False)


class Bounds(Protocol):
    """The parameters of the map from the recorded numbers of boxes to the env's, as NumPy arrays or torch tensors.

    Policies act in [-1, 1] where the env's box is bounded on both sides: squashed or clipped there, then scaled to the
    box, so that one initial standard deviation suits all envs.
    """

    squash: bool
    """Whether recorded numbers are those before the tanh; else they are clipped."""
    scales: bool
    """Whether any number is scaled or moved."""
    low: Any
    """The env's bounds; likewise high."""
    high: Any
    inner_low: Any
    """The bounds of the policy's own range; likewise inner_high."""
    inner_high: Any
    center: Any
    """The env's value for the policy's 0; 0 without bounds."""
    half_width: Any
    """The env's length of the policy's 1; 1 without bounds."""


BOUND_ARRAYS = ("low", "high", "inner_low", "inner_high", "center", "half_width")


def within(bounds: Bounds, numbers: Values, tanh: Callable[[Values], Values]) -> Values:
    """Return the env's numbers for recorded ones, of the same shape: [N, ...], as the bounds are but for N."""
    inner = tanh(numbers) if bounds.squash else numbers.clip(bounds.inner_low, bounds.inner_high)
    if not bounds.scales:
        return inner
    return (inner * bounds.half_width + bounds.center).clip(bounds.low, bounds.high)


class ToEnv:
    """`Bounds` in NumPy. Turns recorded actions into the env's, but for dtypes and the structure of mixed ones.

    In a mixed action the numbers of boxes are the last, and choices stay as they are.
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
            scaled: Array = within(self, action, np.tanh)
            return scaled
        return np.concatenate([action[:, : self._choices], within(self, action[:, self._choices :], np.tanh)], axis=1)
