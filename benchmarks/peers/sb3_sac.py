"""SAC of Stable-Baselines3, or of SBX (the same in JAX), on one piece of work; started by `speed.py`.

    python benchmarks/peers/sb3_sac.py '{"peer": "sbx", "env": "HalfCheetah-v5", ..., "seed": 1, "threads": 2}'

It runs in the peer's own environment, and prints one JSON object: the versions and the curve [env_steps, wall_time_s,
episode_return_mean]. A point is taken when all env steps so far have been learned from, as in offbeat's metrics.jsonl.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

POINT_EVERY = 100
"""Env steps between the points of a curve."""
PACKAGES = {"sb3": ("stable-baselines3", "torch"), "sbx": ("sbx-rl", "stable-baselines3", "jax", "flax", "torch")}


class Curve(BaseCallback):
    """Takes points before an env step, when the updates that are due have been made."""

    def __init__(self) -> None:
        super().__init__()
        self.points: list[tuple[int, float, float | None]] = []

    def _on_training_start(self) -> None:
        self.started_s = time.perf_counter()

    def _on_rollout_start(self) -> None:
        if self.num_timesteps % POINT_EVERY == 0:
            self.take()

    def _on_step(self) -> bool:
        return True

    def take(self) -> None:
        """Append [env_steps, wall_time_s, mean return of the last 100 training episodes]."""
        returns = [episode["r"] for episode in self.model.ep_info_buffer]
        mean = float(sum(returns)) / len(returns) if returns else None
        self.points.append((self.num_timesteps, time.perf_counter() - self.started_s, mean))


def algorithm_of(peer: str) -> Any:
    """Return the class; only one of them is there."""
    if peer == "sbx":
        from sbx import SAC  # type: ignore[import-not-found]
    else:
        from stable_baselines3 import SAC
    return SAC


def activation_of(peer: str, name: str) -> Any:
    """Return the activation in the peer's own framework."""
    if peer == "sbx":
        from flax import linen  # type: ignore[import-not-found]

        return {"tanh": linen.tanh, "relu": linen.relu}[name]
    return {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}[name]


def make_model(work: dict[str, Any]) -> Any:
    """Return SAC with a learned temperature and two critics, which makes utd_ratio updates after each env step."""
    peer = work["peer"]
    envs = make_vec_env(work["env"], n_envs=work["envs"], seed=work["seed"], env_kwargs={"disable_env_checker": True})
    return algorithm_of(peer)(
        "MlpPolicy",
        envs,
        learning_rate=work["learning_rate"],
        buffer_size=work["capacity"],
        learning_starts=work["warmup"],
        batch_size=work["batch_size"],
        tau=work["ema_rate"],
        gamma=work["gamma"],
        train_freq=1,
        gradient_steps=work["envs"] * work["utd_ratio"],
        policy_kwargs={
            "net_arch": work["hidden_sizes"],
            "activation_fn": activation_of(peer, work["activation"]),
            "n_critics": work["critics"],
        },
        seed=work["seed"],
        device="cpu",
    )


def installed(name: str) -> str | None:
    """Return the installed version of a package, None if it is not there."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def main() -> None:
    """Train, then print what was measured."""
    work = json.loads(sys.argv[1])
    torch.set_num_threads(work["threads"])
    curve = Curve()
    make_model(work).learn(work["steps"], callback=curve)
    curve.take()
    names = (*PACKAGES[work["peer"]], "numpy", "gymnasium", "mujoco")
    print(json.dumps({"versions": {name: installed(name) for name in names}, "curve": curve.points}))


if __name__ == "__main__":
    main()
