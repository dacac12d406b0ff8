"""PPO of Stable-Baselines3, or of SBX, on one piece of work; started by `speed.py` in the peer's own environment.

    python benchmarks/peers/sb3_ppo.py '{"env": "CartPole-v1", ..., "seed": 1, "threads": 1}'

Prints one JSON object: the versions and the curve [env_steps, wall_time_s, episode_return_mean]. A point is
taken when all env steps so far have been learned from, as in offbeat's metrics.jsonl.
"""

from __future__ import annotations

from typing import Any

from measuring import given
from sb3_measuring import activation_of, algorithm_of, measure, scheduled
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecNormalize


def make_envs(work: dict[str, Any]) -> VecEnv:
    """Return the vector env; the monitors inside see the returns before they are normalised."""
    quick = {"disable_env_checker": True}
    envs = make_vec_env(work["env"], n_envs=work["envs"], seed=work["seed"], env_kwargs=quick)
    observations, returns = work["normalize_observations"], work["normalize_returns"]
    if not (observations or returns):
        return envs
    return VecNormalize(envs, norm_obs=observations, norm_reward=returns, gamma=work["gamma"])


def make_model(work: dict[str, Any]) -> Any:
    """Return PPO with a network each for policy and value."""
    peer = work.get("peer", "sb3")
    return algorithm_of(peer, "PPO")(
        "MlpPolicy",
        make_envs(work),
        learning_rate=scheduled(work["learning_rate"], work["learning_rate_schedule"]),
        n_steps=work["unroll_length"],
        batch_size=work["minibatch_size"],
        n_epochs=work["epochs"],
        gamma=work["gamma"],
        gae_lambda=work["gae_lambda"],
        clip_range=scheduled(work["clip"], work["clip_schedule"]),
        ent_coef=work["entropy_coef"],
        vf_coef=work["value_coef"] / 2,  # here the loss is the whole squared error, in offbeat half of it
        max_grad_norm=work["max_grad_norm"],
        policy_kwargs={
            "net_arch": work["hidden_sizes"],
            "activation_fn": activation_of(peer, work["activation"]),
            "log_std_init": work["log_std_init"],
            "ortho_init": work.get("ortho_init", True),
        },
        seed=work["seed"],
        device=work.get("device", "cpu"),
    )


def main() -> None:
    """Train, then print what was measured."""
    measure(given(), make_model, ("stable-baselines3", "torch"), every=1)  # after each learning step


if __name__ == "__main__":
    main()
