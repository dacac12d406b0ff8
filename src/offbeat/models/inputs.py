"""Converts the leaves of observations to network inputs in NumPy: flattened, one-hot for choices, joined, normalised.

``tensor_inputs.py`` does the same in torch.

One-hot inputs are never normalised, because they already have the same scale. If the input of a choice that occurs once
in a thousand rows were divided by its standard deviation, it would be thirty times as large as other inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from offbeat.core.choices import write_one_hot
from offbeat.core.types import Array, Leaf

OBSERVATION_CLIP = np.float32(10.0)
"""Normalised observations are clipped to +- this."""


def normalized(x: NDArray[np.float32], mean: NDArray[np.float32], scale: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return rows [N, inputs] shifted by a mean, scaled and clipped, for a mean and a scale of [inputs]."""
    result: NDArray[np.float32] = (x - mean) * scale
    return np.clip(result, -OBSERVATION_CLIP, OBSERVATION_CLIP, out=result)


def flatten(leaves: Sequence[Leaf], observation: Mapping[str, Array]) -> NDArray[np.float32]:
    """Join the leaves of N observations, [N, *shape] each, into [N, inputs] float32."""
    if len(leaves) == 1 and not leaves[0].choices:
        only = np.asarray(observation[leaves[0].name], dtype=np.float32)
        return only.reshape(len(only), -1)
    rows = len(observation[leaves[0].name])
    joined, start = np.empty((rows, sum(leaf.inputs for leaf in leaves)), np.float32), 0
    for leaf in leaves:
        part, values = joined[:, start : start + leaf.inputs], observation[leaf.name].reshape(rows, leaf.size)
        if leaf.choices:
            write_one_hot(values, leaf.choices, part)
        else:
            part[...] = values
        start += leaf.inputs
    return joined


def one_hot_inputs(leaves: Sequence[Leaf]) -> NDArray[np.bool_]:
    """Return which of the joined inputs are one-hot, [inputs]."""
    one_hot = np.array([bool(leaf.choices) for leaf in leaves], np.bool_)
    return np.repeat(one_hot, np.array([leaf.inputs for leaf in leaves], np.int64))
