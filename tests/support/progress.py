"""What a progress view shows of a run, and a clock for it, without the time that it takes to load torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from offbeat.config.runtimes import RUNTIMES
from offbeat.metrics.progress.status import About, Status
from offbeat.metrics.timings import Timings

ABOUT = About(
    "ppo on CartPole-v1 (preset ppo-cartpole-v1)",
    "processes, 4 actors x 16 envs, max_lag 1, cpu",
    RUNTIMES["processes"],
    Path("runs/ppo-CartPole-v1"),
)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def status(env_steps: int, **figures: Any) -> Status:
    timings = Timings()
    timings.merge(
        {"act": 1.0, "learn/update": 2.0, "learn/publish": 0.0, "wait/actor": 1.0, "wait/actor/other_work": 0.5}
    )
    usual: dict[str, Any] = {"steps": 100_000, "updates": env_steps // 10, "timings": timings}
    return Status(env_steps=env_steps, **{**usual, **figures})
