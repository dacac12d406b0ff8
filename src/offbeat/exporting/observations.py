"""Observations drawn at random, as an env might give them, to see what a policy makes of them; stacks are whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from offbeat.core.choices import draw_choices, write_one_hot
from offbeat.core.types import Array, Leaf, Tree
from offbeat.models.acting import ActingPolicy
from offbeat.models.published import published_layout
from offbeat.models.whole_policy import input_dtype

SPREAD = 4.0
"""In standard deviations: of numbers that are normalised, some lie where they are clipped."""


class Scale(NamedTuple):
    """What the numbers of a leaf are like, [size] each."""

    mean: Array
    deviation: Array


def draw_observations(policy: ActingPolicy, rows: int, random: np.random.Generator) -> Tree:
    """Return `rows` observations by leaf, in the order and the dtypes of a file's inputs."""
    spec, scales = policy.spec, _scales(policy)
    return {
        leaf.name: _draw_mask(spec.action.nvec, rows, random) if leaf.is_mask else _draw(leaf, rows, random, scales)
        for leaf in spec.observation
    }


def _draw(leaf: Leaf, rows: int, random: np.random.Generator, scales: Mapping[str, Scale]) -> Array:
    shape, dtype = (rows, *leaf.seen), np.dtype(input_dtype(leaf))
    if leaf.choices:
        numbers: Array = draw_choices(leaf.choices, rows, random) + np.array(leaf.start or 0)
        return numbers.reshape(shape)
    if not np.issubdtype(dtype, np.floating):
        most = 1 if dtype == np.bool_ else min(255, np.iinfo(dtype).max)
        return random.integers(0, most, shape, np.int64, endpoint=True).astype(dtype)
    numbers = random.normal(scale=SPREAD, size=(rows, leaf.size))
    if leaf.name in scales:
        numbers = scales[leaf.name].mean + scales[leaf.name].deviation * numbers
    return numbers.reshape(shape).astype(dtype)


def _draw_mask(nvec: tuple[int, ...], rows: int, random: np.random.Generator) -> Array:
    """Return masks that forbid about half of the choices, and leave one at least of each component."""
    kept = np.empty((rows, sum(nvec)), np.float32)
    write_one_hot(draw_choices(nvec, rows, random), nvec, kept)
    allowed: Array = (kept > 0) | (random.random(kept.shape) < 0.5)
    return allowed


def _scales(policy: ActingPolicy) -> dict[str, Scale]:
    """Return those of the leaves that are normalised."""
    spec, scales, start = policy.spec, {}, 0
    if not spec.normalize:
        return {}
    published = published_layout(spec).views(policy.vector)
    for leaf in spec.vectors:
        part = slice(start, start := start + leaf.inputs)
        scales[leaf.name] = Scale(published["observation_mean"][part], 1 / published["observation_scale"][part])
    return scales
