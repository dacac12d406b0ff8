"""SAC or CrossQ of SBX, with evaluations; started by `benchmarks.replay_variants`.

    python benchmarks/peers/sbx_variants.py '{"algorithm": "CrossQ", "env": "HalfCheetah-v5", "settings": {...}, ...}'

It runs in SBX's own environment, on one thread, and prints one JSON object: the versions and the curve [env_steps,
seconds, cpu_s, return]. Evaluations are not in the CPU seconds; JAX's compilation is.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from measuring import given, installed
from stable_baselines3.common.callbacks import BaseCallback

PACKAGES = ("sbx-rl", "stable-baselines3", "jax", "flax", "torch", "numpy", "gymnasium", "mujoco")
FIRST_SEED = 10_000
"""Seed of the first episode of an evaluation; the next ones have the next seeds."""


def start_jax_on_one_thread() -> None:
    """Start JAX while only one core is usable: it makes a thread for each of them."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    import jax  # type: ignore[import-not-found]
    import torch

    jax.devices()
    torch.set_num_threads(1)
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


def make_model(work: dict[str, Any]) -> Any:
    """Return the model of a side."""
    import sbx  # type: ignore[import-not-found]

    settings = work["settings"]
    same: dict[str, Any] = {
        "learning_rate": settings["learning_rate"],
        "buffer_size": settings["capacity"],
        "learning_starts": settings["warmup"],
        "batch_size": settings["batch_size"],
        "gamma": settings["gamma"],
        "policy_kwargs": {"net_arch": settings["hidden_sizes"]},
    }
    if work["algorithm"] == "SAC":  # CrossQ has no ema critics
        same["tau"] = settings["ema_rate"]
    return getattr(sbx, work["algorithm"])("MlpPolicy", work["env"], seed=work["seed"], **same)


class Curve(BaseCallback):
    """Evaluates whenever `eval_every` divides the env steps, once all updates that are due have been made."""

    def __init__(self, work: dict[str, Any]) -> None:
        """Stop after `cpu_s` CPU seconds, or at a mean return of `goal`."""
        super().__init__()
        self._work = work
        self._envs = gymnasium.make_vec(work["env"], work["eval_episodes"], vectorization_mode="sync")
        self._evaluations_cpu_s = 0.0
        self.points: list[list[float]] = []

    def _on_training_start(self) -> None:
        self._started_s, self._started_cpu_s = time.perf_counter(), time.process_time()

    def _on_rollout_start(self) -> None:
        steps = self.num_timesteps
        if steps and steps % self._work["eval_every"] == 0:
            self.take()

    def _on_step(self) -> bool:
        if not self.points:
            return True
        _, _, cpu_s, mean = self.points[-1]
        return bool(cpu_s <= self._work["cpu_s"] and mean < self._work["goal"])

    def take(self) -> None:
        """Append a point."""
        cpu_s = time.process_time()
        used_s = cpu_s - self._started_cpu_s - self._evaluations_cpu_s
        mean = self.evaluate()
        self._evaluations_cpu_s += time.process_time() - cpu_s
        seconds = time.perf_counter() - self._started_s
        self.points.append([self.num_timesteps, round(seconds, 1), round(used_s, 1), round(mean, 1)])
        print(self.points[-1], file=sys.stderr, flush=True)

    def evaluate(self) -> float:
        """Return the mean return of greedy episodes of the env's full length: it has no failures."""
        spec, episodes = gymnasium.spec(self._work["env"]), self._work["eval_episodes"]
        assert spec.max_episode_steps is not None
        observation, _ = self._envs.reset(seed=FIRST_SEED)
        total = np.zeros(episodes)
        for _ in range(spec.max_episode_steps):
            action, _ = self.model.predict(observation, deterministic=True)
            observation, reward, *_ = self._envs.step(action)
            total += reward
        return float(total.mean())


def main() -> None:
    """Train, then print what was measured."""
    work = given()
    start_jax_on_one_thread()
    curve = Curve(work)
    make_model(work).learn(work["steps"], callback=curve)
    if curve.num_timesteps == work["steps"]:
        curve.take()
    print(json.dumps({"versions": {name: installed(name) for name in PACKAGES}, "curve": curve.points}))


if __name__ == "__main__":
    main()
