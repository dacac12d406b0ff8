"""What is trained to compare lags."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Work:
    """A preset on an env, trained with several lags."""

    algorithm: str
    env: str
    steps: int
    """Env steps of a run."""
    score: float
    """Mean return of an evaluation at which the env steps and the seconds are counted."""
    lags: tuple[int, ...] = (0, 1, 3)
    key: str = "max_lag"
    """The setting that bounds the lag."""

    @property
    def name(self) -> str:
        """How the command line and the tables call it."""
        return f"{self.algorithm}-{self.env}"


WORKS = (
    Work("ppo", "CartPole-v1", 200_000, 475),
    Work("ppo", "LunarLander-v3", 1_000_000, 200),
    Work("ppo", "HalfCheetah-v5", 1_000_000, 3000),
    Work("ppo", "Hopper-v5", 1_000_000, 2000),
    Work("sac", "Pendulum-v1", 20_000, -200, (0, 2, 8), "max_ahead"),
    Work("sac", "HalfCheetah-v5", 200_000, 3000, (0, 2, 8), "max_ahead"),
)
