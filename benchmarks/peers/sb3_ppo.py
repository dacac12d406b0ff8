"""PPO of Stable-Baselines3 on one piece of work; started by `speed.py` in the peer's own environment.

    python benchmarks/peers/sb3_ppo.py '{"env": "CartPole-v1", ..., "seed": 1, "threads": 1}'

Prints one JSON object: the versions and the curve [env_steps, wall_time_s, episode_return_mean]. A point is
taken when all env steps so far have been learned from, as in offbeat's metrics.jsonl.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

ACTIVATIONS = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}


class Curve(BaseCallback):
    """Takes a point after each learning step."""

    def __init__(self) -> None:
        super().__init__()
        self.points: list[tuple[int, float, float | None]] = []

    def _on_training_start(self) -> None:
        self.started_s = time.perf_counter()

    def _on_rollout_start(self) -> None:
        self.take()

    def _on_step(self) -> bool:
        return True

    def take(self) -> None:
        """Append [env_steps, wall_time_s, mean return of the last 100 training episodes]."""
        returns = [episode["r"] for episode in self.model.ep_info_buffer]
        mean = float(sum(returns)) / len(returns) if returns else None
        self.points.append((self.num_timesteps, time.perf_counter() - self.started_s, mean))


def make_envs(work: dict[str, Any]) -> VecEnv:
    """Return the vector env; the monitors inside see the returns before they are normalised."""
    quick = {"disable_env_checker": True}
    envs = make_vec_env(work["env"], n_envs=work["envs"], seed=work["seed"], env_kwargs=quick)
    observations, returns = work["normalize_observations"], work["normalize_returns"]
    if not (observations or returns):
        return envs
    return VecNormalize(envs, norm_obs=observations, norm_reward=returns, gamma=work["gamma"])


def make_model(work: dict[str, Any]) -> PPO:
    """Return PPO with a network each for policy and value."""
    return PPO(
        "MlpPolicy",
        make_envs(work),
        learning_rate=work["learning_rate"],
        n_steps=work["unroll_length"],
        batch_size=work["minibatch_size"],
        n_epochs=work["epochs"],
        gamma=work["gamma"],
        gae_lambda=work["gae_lambda"],
        clip_range=work["clip"],
        ent_coef=work["entropy_coef"],
        vf_coef=work["value_coef"] / 2,  # here the loss is the whole squared error, in offbeat half of it
        max_grad_norm=work["max_grad_norm"],
        policy_kwargs={
            "net_arch": work["hidden_sizes"],
            "activation_fn": ACTIVATIONS[work["activation"]],
            "log_std_init": work["log_std_init"],
            "ortho_init": work.get("ortho_init", True),
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
    names = ("stable-baselines3", "torch", "numpy", "gymnasium", "mujoco")
    print(json.dumps({"versions": {name: installed(name) for name in names}, "curve": curve.points}))


if __name__ == "__main__":
    main()
