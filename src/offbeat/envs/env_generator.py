"""Restores the state of the random generator of an env, its `np_random`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

_KINDS = {
    kind.__name__: kind
    for kind in (np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64)
}
"""Name in a state -> the bit generator of NumPy that has this state."""


def load_generator(env: Any, state: Mapping[str, Any]) -> None:
    """Restore the state of `env.np_random`, which in a new env may be a generator of another kind.

    Args:
        env: the env, without its wrappers.
        state: `env.np_random.bit_generator.state` when it was saved.
    """
    kind = _KINDS.get(state["bit_generator"])
    if kind is not None and type(env.np_random.bit_generator) is not kind:
        env.np_random = np.random.Generator(kind())
    env.np_random.bit_generator.state = state
