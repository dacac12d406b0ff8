"""SAC of Stable-Baselines3, or of SBX (the same in JAX), on one piece of work; started by `speed.py`.

    python benchmarks/peers/sb3_sac.py '{"peer": "sbx", "env": "HalfCheetah-v5", ..., "seed": 1, "threads": 2}'

It runs in the peer's own environment, and prints one JSON object: the versions and the curve [env_steps, wall_time_s,
episode_return_mean]. A point is taken when all env steps so far have been learned from, as in offbeat's metrics.jsonl.
"""

from __future__ import annotations

from typing import Any

from measuring import given
from sb3_measuring import activation_of, algorithm_of, measure
from stable_baselines3.common.env_util import make_vec_env

POINT_EVERY = 100
"""Env steps between the points of a curve."""
PACKAGES = {"sb3": ("stable-baselines3", "torch"), "sbx": ("sbx-rl", "stable-baselines3", "jax", "flax", "torch")}


def make_model(work: dict[str, Any]) -> Any:
    """Return SAC with a learned temperature and two critics, which makes utd_ratio updates after each env step."""
    peer = work["peer"]
    envs = make_vec_env(work["env"], n_envs=work["envs"], seed=work["seed"], env_kwargs={"disable_env_checker": True})
    return algorithm_of(peer, "SAC")(
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
        device=work.get("device", "cpu"),
    )


def main() -> None:
    """Train, then print what was measured."""
    work = given()
    measure(work, make_model, PACKAGES[work["peer"]], POINT_EVERY)


if __name__ == "__main__":
    main()
