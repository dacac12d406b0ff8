"""From recorded actions to what an env's space accepts. Needs no Gymnasium: whoever loads a policy uses it too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from offbeat.core.types import ActionSpec, Array

ActionEncoder = Callable[[Array], Any]
"""Recorded actions [n, *shape] -> a fresh array, or tree of arrays [n, ...], in the env's dtypes and first choices."""


def action_encoder(spec: ActionSpec) -> ActionEncoder:
    """Return the function that turns recorded actions of n columns into what a vector env of them accepts."""
    return _encoder(spec, _Places(spec))


def apart(spec: ActionSpec, actions: Any) -> Iterable[Any]:
    """Return encoded actions column by column: what single envs accept."""
    if spec.kind != "mixed":
        return actions  # type: ignore[no-any-return]
    parts = actions.values() if spec.keys else actions
    columns = zip(*(apart(part, of_part) for part, of_part in zip(spec.parts, parts, strict=True)), strict=True)
    return (dict(zip(spec.keys, column, strict=True)) for column in columns) if spec.keys else columns


class _Places:
    """Deals out the places in a mixed action's row: choices from its start on, numbers of boxes behind them."""

    def __init__(self, spec: ActionSpec) -> None:
        self._choice, self._number = 0, len(spec.nvec)

    def take(self, part: ActionSpec) -> slice:
        if part.kind == "box":
            self._number += part.size
            return slice(self._number - part.size, self._number)
        self._choice += part.size
        return slice(self._choice - part.size, self._choice)


def _encoder(spec: ActionSpec, places: _Places) -> ActionEncoder:
    if spec.kind != "mixed":
        return _array_encoder(spec)
    encoders = [_part_encoder(part, places) for part in spec.parts]
    if spec.keys:
        return lambda actions: {key: encode(actions) for key, encode in zip(spec.keys, encoders, strict=True)}
    return lambda actions: tuple(encode(actions) for encode in encoders)


def _part_encoder(part: ActionSpec, places: _Places) -> ActionEncoder:
    if part.kind == "mixed":
        return _encoder(part, places)
    columns, encode = places.take(part), _array_encoder(part)
    return lambda actions: encode(actions[:, columns].reshape(len(actions), *part.shape))


def _array_encoder(spec: ActionSpec) -> ActionEncoder:
    dtype = np.dtype(spec.env_dtype or spec.dtype)
    if not spec.start:
        return lambda actions: np.array(actions, dtype)
    start = np.array(spec.start, dtype).reshape(spec.shape)
    return lambda actions: np.array(actions, dtype) + start
