"""From the leaves of observations to what a network on vectors sees: joined, and choices one-hot. Torch's twin of
`flatten` is in ``tensor_inputs.py``.

One-hot inputs are never normalised. They have one scale already; divided by their deviation, a choice that comes once
in a thousand rows would weigh thirty times as much as the numbers beside it, and shrink as it is met more often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from offbeat.core.choices import write_one_hot
from offbeat.core.types import Array, Leaf


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
    """Return which of the joined inputs are choices, [inputs]."""
    chosen = np.array([bool(leaf.choices) for leaf in leaves], np.bool_)
    return np.repeat(chosen, np.array([leaf.inputs for leaf in leaves], np.int64))
