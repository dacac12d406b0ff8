"""The envs of `defaults.py`: how long both sides train on each, and the returns that normalise its scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium

MINIGRID = "MiniGrid-Empty-5x5-v0"
FLAT_MINIGRID = f"untuned/{MINIGRID}"


@dataclass(frozen=True)
class Untuned:
    """An env, how long it is trained, and the returns that count as 0 and 1."""

    env: str
    steps: dict[str, int]
    """Algorithm -> env steps. SAC, which costs far more per env step, has fewer, and only envs with box actions."""
    random: float
    """Mean return of 50 episodes with random actions."""
    solved: float
    """The reward threshold that Gymnasium registers; where there is none, about the best return."""

    def normalized(self, mean_return: float) -> float:
        """Return a score: 0 is random, 1 is solved."""
        return (mean_return - self.random) / (self.solved - self.random)


ON_POLICY = {"ppo": 100_000}
BOTH = {"ppo": 100_000, "sac": 20_000}
UNTUNED = (
    Untuned("Acrobot-v1", ON_POLICY, -500, -100),
    Untuned("MountainCar-v0", ON_POLICY, -200, -110),
    Untuned("MountainCarContinuous-v0", BOTH, -33, 90),
    Untuned("Pendulum-v1", {"ppo": 100_000, "sac": 10_000}, -1166, -150),
    Untuned("LunarLander-v3", ON_POLICY, -193, 200),
    Untuned("BipedalWalker-v3", BOTH, -98, 300),
    Untuned("InvertedDoublePendulum-v5", BOTH, 50, 9100),
    Untuned("Reacher-v5", BOTH, -43, -3.75),
    Untuned(FLAT_MINIGRID, ON_POLICY, 0.17, 0.955),
    Untuned("FrozenLake-v1", ON_POLICY, 0.02, 0.7),
)


def flat_minigrid(**kwargs: Any) -> gymnasium.Env[Any, Any]:
    """Return MiniGrid's empty room of 5 x 5 with its flat wrapper: image and mission as one vector of bytes."""
    import minigrid  # noqa: F401 - registers its envs
    from minigrid.wrappers import FlatObsWrapper

    wrapped: gymnasium.Env[Any, Any] = FlatObsWrapper(gymnasium.make(MINIGRID, **kwargs))
    return wrapped


gymnasium.register(FLAT_MINIGRID, flat_minigrid)
