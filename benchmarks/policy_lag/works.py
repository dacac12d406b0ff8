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
    unroll_length: int | None = None
    """Env steps of an unroll, where the preset has others."""

    @property
    def name(self) -> str:
        """How the command line and the tables call it."""
        of_preset = f"{self.algorithm}-{self.env}"
        return of_preset if self.unroll_length is None else f"{of_preset}-unroll-{self.unroll_length}"

    @property
    def changes(self) -> dict[str, int]:
        """The settings that are not those of the preset."""
        return {} if self.unroll_length is None else {"unroll_length": self.unroll_length}


WORKS = (
    Work("ppo", "CartPole-v1", 200_000, 475),
    Work("ppo", "LunarLander-v3", 1_000_000, 200),
    Work("ppo", "LunarLander-v3", 1_000_000, 200, unroll_length=128),
    Work("ppo", "HalfCheetah-v5", 1_000_000, 3000),
    Work("ppo", "Hopper-v5", 1_000_000, 2000),
    Work("sac", "Pendulum-v1", 20_000, -200, (0, 2, 8), "max_ahead"),
    Work("sac", "HalfCheetah-v5", 200_000, 3000, (0, 2, 8), "max_ahead"),
)
