"""The exact values of the envs whose values are known, from the rewards that follow each position."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from offbeat.envs.testing.known_values import WALKS, Observation


def exact_values(env_id: str, observation: Observation, gamma: float) -> NDArray[np.float64]:
    """Return the discounted value of each observation, [...] for observations [..., 2].

    A truncated episode has the value of the process that would continue; after a termination the value is 0.
    At position p, with P positions:

    * ChainTruncates: sum over k < P of gamma^k ((p + k) mod P + 1), over 1 - gamma^P; gamma must be below 1;
    * ChainTerminates and FailsOnLastStep: sum over k < P - p of gamma^k (p + k + 1);
    * OneStep: p + 1, and 0 at position P, where every step leads.

    Raises:
        KeyError: `env_id` is none of these envs.
    """
    arguments = WALKS[env_id]
    table = _table(arguments["positions"], gamma, arguments)
    values: NDArray[np.float64] = table[observation[..., 0].astype(np.int64)]
    return values


def _table(positions: int, gamma: float, arguments: dict[str, Any]) -> NDArray[np.float64]:
    """Return the value of each position 0 .. positions."""
    if arguments.get("one_step"):
        return np.array([*range(1, positions + 1), 0], np.float64)
    ring = arguments.get("ring", False)
    walks = [_walk(start, positions if ring else positions - start, positions, gamma) for start in range(positions + 1)]
    return np.array(walks) / (1 - gamma**positions if ring else 1)


def _walk(start: int, steps: int, positions: int, gamma: float) -> float:
    """Return the discounted sum of the rewards of the next `steps` steps."""
    return sum(gamma**k * ((start + k) % positions + 1) for k in range(steps))
