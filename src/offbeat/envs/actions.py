"""Random actions, and the conversion of recorded actions to those of an env. Gymnasium is not imported.

Actions are recorded as one array per row (see `ActionSpec`). Envs get them in their own dtype, counted from their own
first choice, and as Dicts or Tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from offbeat.core.choices import sample_choices
from offbeat.core.previous_inputs import action_parts
from offbeat.core.types import ActionSpec, Array, EnvSpec, Tree
from offbeat.envs.contract import Advanced, Outcome
from offbeat.envs.episode_infos import EpisodeInfos

# --- encoding -----------------------------------------------------------------------------------------------

ActionEncoder = Callable[[Array], Any]
"""Recorded actions [n, *shape] -> a new array, or tree of arrays [n, ...], as the env's action space defines them."""


def action_encoder(spec: ActionSpec) -> ActionEncoder:
    """Return a function that converts the recorded actions of n columns to the actions of a vector env."""
    return _encoder(spec, _SliceAllocator(spec))


def split_columns(spec: ActionSpec, actions: Any) -> Iterable[Any]:
    """Yield the action of each column, for single envs, from the encoded actions of all columns."""
    if spec.kind != "mixed":
        return actions  # type: ignore[no-any-return]
    parts = actions.values() if spec.keys else actions
    columns = zip(*(split_columns(part, of_part) for part, of_part in zip(spec.parts, parts, strict=True)), strict=True)
    return (dict(zip(spec.keys, column, strict=True)) for column in columns) if spec.keys else columns


class _SliceAllocator:
    """Assigns slices of a mixed action's row to its parts: choices come first, then the values of boxes."""

    def __init__(self, spec: ActionSpec) -> None:
        self._next_choice, self._next_value = 0, len(spec.nvec)

    def take(self, part: ActionSpec) -> slice:
        if part.kind == "box":
            self._next_value += part.size
            return slice(self._next_value - part.size, self._next_value)
        self._next_choice += part.size
        return slice(self._next_choice - part.size, self._next_choice)


def _encoder(spec: ActionSpec, slices: _SliceAllocator) -> ActionEncoder:
    if spec.kind != "mixed":
        return _array_encoder(spec)
    encoders = [_part_encoder(part, slices) for part in spec.parts]
    return partial(_encode_parts, spec.keys, encoders)


def _part_encoder(part: ActionSpec, slices: _SliceAllocator) -> ActionEncoder:
    if part.kind == "mixed":
        return _encoder(part, slices)
    return partial(_encode_columns, slices.take(part), part.shape, _array_encoder(part))


def _array_encoder(spec: ActionSpec) -> ActionEncoder:
    dtype = np.dtype(spec.env_dtype or spec.dtype)
    if spec.env_dtype == "float64":  # a bound such as 0.1 is another number in float32, perhaps outside of the space
        return partial(_within, *(np.array(bounds).reshape(spec.shape) for bounds in (spec.low, spec.high)))
    if not spec.start:
        return partial(np.array, dtype=dtype)
    return partial(_counted_from, np.array(spec.start, dtype).reshape(spec.shape))


# Encoders are partial functions of the following ones, as a loaded policy can be pickled.


def _encode_parts(keys: Sequence[str], encoders: Sequence[ActionEncoder], actions: Array) -> Any:
    parts = (encode(actions) for encode in encoders)
    return dict(zip(keys, parts, strict=True)) if keys else tuple(parts)


def _encode_columns(columns: slice, shape: tuple[int, ...], encode: ActionEncoder, actions: Array) -> Any:
    return encode(actions[:, columns].reshape(len(actions), *shape))


def _within(low: Array, high: Array, actions: Array) -> Array:
    return np.clip(np.array(actions, np.float64), low, high)


def _counted_from(start: Array, actions: Array) -> Array:
    first_is_0: Array = np.array(actions, start.dtype)
    return first_is_0 + start


def recorded_parts(spec: ActionSpec, name: str) -> Iterator[tuple[str, ActionSpec, slice]]:
    """Yield the parts of an action by name, as `action_parts`, each with its slice of a flat recorded action."""
    slices = _SliceAllocator(spec)
    for part_name, part in action_parts(spec, name):
        yield part_name, part, slices.take(part)


# --- random actions -----------------------------------------------------------------------------------------


def random_actions(
    spec: ActionSpec, columns: int, random: np.random.Generator, mask: NDArray[np.bool_] | None = None
) -> Array:
    """Return uniform random actions as they are recorded, [columns, *shape]; of float64 if the env's numbers are.

    The values of a Box are sampled between its bounds; with only one bound, within 1 of it; with none, within 1 of 0.

    Args:
        spec: Spec of the actions.
        columns: Number of actions.
        random: Generator to sample with.
        mask: Allowed choices, [columns, sum(nvec)]. None allows all.
    """
    if spec.kind == "box":
        return _random_numbers(spec, columns, random).reshape(columns, *spec.shape)
    choices = sample_choices(spec.nvec, columns, random, mask)
    if spec.kind == "mixed":
        return np.concatenate([choices, _random_numbers(spec, columns, random)], axis=1, dtype=_dtype_of_numbers(spec))
    return choices.reshape(columns, *spec.shape)


def _random_numbers(spec: ActionSpec, columns: int, random: np.random.Generator) -> Array:
    low, high = _finite_bounds(spec)
    return random.uniform(low, high, (columns, low.size)).astype(_dtype_of_numbers(spec))


def _dtype_of_numbers(spec: ActionSpec) -> type[np.floating[Any]]:
    return np.float64 if spec.has_float64 else np.float32


def _finite_bounds(spec: ActionSpec) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    low, high = np.array(spec.low), np.array(spec.high)
    below = np.where(high == inf, -1.0, high - 1.0)
    above = np.where(low == -inf, 1.0, low + 1.0)
    return np.where(low == -inf, below, low), np.where(high == inf, above, high)


# --- random steps -------------------------------------------------------------------------------------------


class StepUnit(NamedTuple):
    """Columns that can only be stepped together: one env, or a whole vector env."""

    columns: slice
    step: Callable[[Array], Outcome]
    """Takes recorded actions [n, *shape]."""


def take_random_steps(
    spec: EnvSpec,
    observation: Tree,
    units: Sequence[StepUnit],
    steps: NDArray[np.int64],
    random: np.random.Generator,
    before_step: Callable[[], None],
) -> Advanced:
    """Carry out `Envs.advance`: step each unit as often as the largest of its columns' `steps`.

    The actions of a unit are sampled for all its steps at once. With an action mask they are sampled step by step.

    Args:
        spec: Spec of the envs.
        observation: Leaves of the observation, [N, ...]; the envs write each new observation into them.
        units: Columns that are stepped together.
        steps: Number of steps of each column, [N].
        random: Generator of the actions.
        before_step: Called before each step.
    """
    returns, lengths = np.zeros(spec.columns), np.zeros(spec.columns, np.int32)
    infos = EpisodeInfos(spec.info, spec.columns)
    for unit in units:
        for actions in _unit_actions(spec, observation, unit, int(steps[unit.columns].max()), random):
            before_step()
            outcome = unit.step(actions)
            add_to_episodes(outcome, returns[unit.columns], lengths[unit.columns])
            infos.add_outcome(outcome, unit.columns)
    return Advanced(observation, returns, lengths, infos.numbers)


def _unit_actions(
    spec: EnvSpec, observation: Tree, unit: StepUnit, steps: int, random: np.random.Generator
) -> Iterator[Array]:
    """Yield the actions of each step of a unit, [n, *shape]."""
    columns = unit.columns.stop - unit.columns.start
    if spec.mask is None:
        yield from random_actions(spec.action, steps * columns, random).reshape(-1, columns, *spec.action.shape)
        return
    mask = observation[spec.mask][unit.columns]
    for _ in range(steps):
        yield random_actions(spec.action, columns, random, mask)


def add_to_episodes(outcome: Outcome, returns: NDArray[np.float64], lengths: NDArray[np.int32]) -> None:
    """Add a step to the returns and lengths so far, [n]; set them to 0 where an episode has ended."""
    returns += outcome.reward
    lengths += outcome.valid
    ended = outcome.ended
    returns[ended], lengths[ended] = 0, 0
