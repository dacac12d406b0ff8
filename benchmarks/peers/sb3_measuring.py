"""What the scripts of Stable-Baselines3 and SBX share: classes, schedules, the curve of a run and its report."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

import torch
from measuring import ACTIVATIONS, report
from stable_baselines3.common.callbacks import BaseCallback


class Curve(BaseCallback):
    """Takes points before an env step, when the updates that are due have been made."""

    def __init__(self, every: int) -> None:
        """Take a point whenever `every` divides the env steps."""
        super().__init__()
        self._every = every
        self.points: list[tuple[int, float, float | None]] = []

    def _on_training_start(self) -> None:
        self.started_s = time.perf_counter()

    def _on_rollout_start(self) -> None:
        if self.num_timesteps % self._every == 0:
            self.take()

    def _on_step(self) -> bool:
        return True

    def take(self) -> None:
        """Append [env_steps, wall_time_s, mean return of the last 100 training episodes]."""
        returns = [episode["r"] for episode in self.model.ep_info_buffer]
        mean = float(sum(returns)) / len(returns) if returns else None
        self.points.append((self.num_timesteps, time.perf_counter() - self.started_s, mean))


def algorithm_of(peer: str, name: str) -> Any:
    """Return the class of an algorithm; only one of the two libraries is there."""
    return getattr(importlib.import_module({"sb3": "stable_baselines3", "sbx": "sbx"}[peer]), name)


def activation_of(peer: str, name: str) -> Any:
    """Return the activation in the peer's own framework."""
    if peer == "sbx":
        return getattr(importlib.import_module("flax.linen"), name)
    return ACTIVATIONS[name]


def scheduled(value: float, schedule: str) -> float | Callable[[float], float]:
    """Return a number that stays, or a function of the share of the training that is left, which falls to 0."""
    if schedule == "constant":
        return value
    return lambda share_left: value * share_left


def measure(
    work: dict[str, Any], make_model: Callable[[dict[str, Any]], Any], packages: tuple[str, ...], every: int
) -> None:
    """Train, then print the versions and the curve, with a point whenever `every` divides the env steps."""
    torch.set_num_threads(work["threads"])
    curve = Curve(every)
    make_model(work).learn(work["steps"], callback=curve)
    curve.take()
    report(packages, curve.points)
