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
    """None, a small and a large one."""
    key: str = "max_lag"
    """The setting that bounds the lag."""
    clip_reference: str | None = None
    """The setting of PPO, where it is not the default. It makes no difference without lag."""

    @property
    def preset(self) -> str:
        """The name of the work without the change."""
        return f"{self.algorithm}-{self.env}"

    @property
    def name(self) -> str:
        """How the command line and the tables call it."""
        return self.preset if self.clip_reference is None else f"{self.preset}-{self.clip_reference}"

    def name_of(self, lag: int) -> str:
        """Return the name of the runs with a lag: without one they are those of the preset."""
        return self.name if lag else self.preset

    @property
    def changes(self) -> dict[str, str]:
        """The settings that are not those of the preset."""
        return {} if self.clip_reference is None else {"clip_reference": self.clip_reference}


WORKS = (
    Work("ppo", "CartPole-v1", 200_000, 475),
    Work("ppo", "LunarLander-v3", 1_000_000, 200),
    Work("ppo", "Hopper-v5", 1_000_000, 2000),
    Work("ppo", "HalfCheetah-v5", 1_000_000, 3000),
    Work("ppo", "CartPole-v1", 200_000, 475, clip_reference="proximal"),
    Work("ppo", "LunarLander-v3", 1_000_000, 200, clip_reference="proximal"),
    Work("ppo", "Hopper-v5", 1_000_000, 2000, clip_reference="proximal"),
    Work("sac", "Pendulum-v1", 20_000, -200, (0, 2, 8), "max_ahead"),
    Work("sac", "HalfCheetah-v5", 200_000, 3000, (0, 2, 8), "max_ahead"),
)
