"""Inputs to compare a policy with its file: random observations, similar to those of the env, and the recurrent state.

Frame stacks are complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from offbeat.core.choices import sample_choices, write_one_hot
from offbeat.core.types import Array, Leaf, Tree
from offbeat.exporting.exported_policy import STATE, input_dtype
from offbeat.models.acting import ActingPolicy
from offbeat.models.published import published_layout
from offbeat.models.spec import PolicySpec

LARGEST = 255
"""Largest of the random whole numbers, unless the network or the dtype does not take it."""
SPREAD = 4.0
"""Standard deviation of the random values, in units of the normalisation: some values are outside of the clip range."""


class Scale(NamedTuple):
    """Mean and standard deviation of the elements of a leaf, [size] each."""

    mean: Array
    deviation: Array


def sample_observations(policy: ActingPolicy, rows: int, random: np.random.Generator, largest: int = LARGEST) -> Tree:
    """Return `rows` observations by leaf, in the order and the dtypes of a file's inputs.

    Args:
        policy: the policy.
        rows: number of observations.
        random: generator to sample with.
        largest: largest whole number of images and of other leaves of whole numbers.
    """
    spec, scales = policy.spec, _scales(policy)
    return {
        leaf.name: _sample_mask(spec.action.nvec, rows, random)
        if leaf.is_mask
        else _sample(leaf, rows, random, scales, largest)
        for leaf in spec.observation
    }


def initial_state(spec: PolicySpec, rows: int) -> Tree:
    """Return the recurrent state at the start of an episode, as an input of a file; empty without a core."""
    return {STATE: np.zeros((rows, spec.state_size), np.float32)} if spec.recurrent else {}


def _sample(leaf: Leaf, rows: int, random: np.random.Generator, scales: Mapping[str, Scale], largest: int) -> Array:
    shape, dtype = (rows, *leaf.as_given.stacked_shape), np.dtype(input_dtype(leaf))
    if leaf.choices:
        numbers: Array = sample_choices(leaf.choices, rows, random) + np.array(leaf.start or 0)
        return numbers.reshape(shape)
    if not np.issubdtype(dtype, np.floating):
        maximum = 1 if dtype == np.bool_ else min(largest, np.iinfo(dtype).max)
        return random.integers(0, maximum, shape, np.int64, endpoint=True).astype(dtype)
    numbers = random.normal(scale=SPREAD, size=(rows, leaf.size))
    if leaf.name in scales:
        numbers = scales[leaf.name].mean + scales[leaf.name].deviation * numbers
    return numbers.reshape(shape).astype(dtype)


def _sample_mask(nvec: tuple[int, ...], rows: int, random: np.random.Generator) -> Array:
    """Return masks that allow about half of the choices, and at least one of each component."""
    always = np.empty((rows, sum(nvec)), np.float32)
    write_one_hot(sample_choices(nvec, rows, random), nvec, always)
    allowed: Array = (always > 0) | (random.random(always.shape) < 0.5)
    return allowed


def _scales(policy: ActingPolicy) -> dict[str, Scale]:
    """Return the scales of the normalised leaves, by name."""
    spec, scales, start = policy.spec, {}, 0
    if not spec.normalize:
        return {}
    published = published_layout(spec).views(policy.vector)
    for leaf in spec.vectors:
        part = slice(start, start := start + leaf.inputs)
        scales[leaf.name] = Scale(published["observation_mean"][part], 1 / published["observation_scale"][part])
    return scales
