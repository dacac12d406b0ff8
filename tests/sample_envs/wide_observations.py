"""An env whose observations have all kinds of spaces, with numbers that need their dtypes; an encoder that records."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.jit import is_tracing  # type: ignore[attr-defined]

NUMBERS = spaces.Dict(
    table=spaces.MultiDiscrete(np.array([[300, 70_000], [3, 2]])),
    card=spaces.Discrete(200, start=-3),
    flags=spaces.MultiBinary(3),
    place=spaces.Box(-1, 1, (2,), np.float64),
    pixels=spaces.Box(0, 255, (4, 4), np.uint8),
    counts=spaces.Box(-(2**40), 2**40, (2,), np.int64),
    pair=spaces.Tuple((spaces.Discrete(400), spaces.Box(0, 60_000, (), np.uint16))),
)
SPACES: dict[str, gym.Space[Any]] = {"dict": NUMBERS, "numbers": spaces.MultiDiscrete([300, 1000])}
SEEN: dict[str, set[tuple[str, str]]] = {}
"""Key of an observation -> dtype and value, as text, of each row that an encoder was given."""


def extremes(space: gym.Space[Any]) -> tuple[Any, Any]:
    """Return the smallest and the largest element of a space."""
    if isinstance(space, spaces.Dict):
        parts = {key: extremes(part) for key, part in space.items()}
        return {key: part[0] for key, part in parts.items()}, {key: part[1] for key, part in parts.items()}
    if isinstance(space, spaces.Tuple):
        both = [extremes(part) for part in space]
        return tuple(part[0] for part in both), tuple(part[1] for part in both)
    if isinstance(space, spaces.Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start.copy(), space.start + space.nvec - 1
    if isinstance(space, spaces.MultiBinary):
        return np.zeros(space.shape, np.int8), np.ones(space.shape, np.int8)
    assert isinstance(space, spaces.Box)
    return space.low.copy(), space.high.copy()


class WideObservations(gym.Env[Any, Any]):
    """Returns the smallest and the largest observation in turn; an episode has 10 steps."""

    def __init__(self, kind: str = "dict", box_actions: bool = False) -> None:
        self.observation_space = SPACES[kind]
        self.action_space = spaces.Box(-1, 1, (1,), np.float32) if box_actions else spaces.Discrete(2)
        self._both = extremes(self.observation_space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self._age = 0
        return self._both[0], {}

    def step(self, action: Any) -> Any:  # noqa: ARG002
        self._age += 1
        return self._both[self._age % 2], 1.0, False, self._age == 10, {}


class Recording(nn.Module):
    """Records what it is given, in `SEEN`; the descriptions of its constructor under 'leaves'."""

    def __init__(self, observation: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 4)
        leaves = observation if isinstance(observation, dict) else {"": observation}
        SEEN["leaves"] = {(key, leaf.dtype) for key, leaf in leaves.items()}

    def forward(self, observations: Any) -> Tensor:
        parts = observations if isinstance(observations, dict) else {"": observations}
        for key, part in parts.items():
            rows = part.tolist() if not is_tracing() else ()
            SEEN.setdefault(key, set()).update((str(part.dtype), str(row)) for row in rows)
        flat = [leaf.to(torch.float32).reshape(leaf.shape[0], -1).mean(1, keepdim=True) for leaf in parts.values()]
        features: Tensor = self.layer(torch.stack(flat).sum(0) / 1e12)
        return features
