"""APPO of RLlib on one piece of work; started by `ray_speed.py` in the peer's own environment.

    python benchmarks/peers/rllib_appo.py '{"env": "HalfCheetah-v5", ..., "seed": 1}'

Prints one JSON object: the versions, the curve [env_steps, wall_time_s, episode_return_mean], and the CPU seconds of
all processes at each of its points. A point is taken when `train()` returns; its env steps are those that the learner
has had. `stack` and `actors` in the work choose RLlib's API stack, new or old, and the number of its env runners.
"""

from __future__ import annotations

from typing import Any

from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from rllib_measuring import measure, network

REPORT_S = 2
"""Seconds of a call of `train()`."""


def configured(work: dict[str, Any]) -> APPOConfig:
    """Return the work in RLlib's words."""
    new, rows = work["stack"] == "new", work["envs"] * work["unroll_length"]
    config = (
        APPOConfig()
        .api_stack(enable_rl_module_and_learner=new, enable_env_runner_and_connector_v2=new)
        .framework("torch")
        .environment(work["env"], disable_env_checking=True)
        .env_runners(
            num_env_runners=work["actors"],
            num_envs_per_env_runner=work["envs"] // work["actors"],
            rollout_fragment_length=work["unroll_length"],
            batch_mode="truncate_episodes",
        )
        .training(
            vtrace=True,
            lr=work["learning_rate"],
            gamma=work["gamma"],
            lambda_=work["gae_lambda"],
            clip_param=work["clip"],
            vf_loss_coeff=work["value_coef"],
            entropy_coeff=work["entropy_coef"],
            use_kl_loss=False,
            grad_clip=work["max_grad_norm"],
            use_circular_buffer=False,  # each batch is used once
        )
        .reporting(min_time_s_per_iteration=REPORT_S)
        .debugging(seed=work["seed"], log_level="ERROR")
    )
    if new:
        config = config.rl_module(model_config=DefaultModelConfig(**network(work)))
        return config.training(train_batch_size_per_learner=rows)
    return config.training(train_batch_size=rows, model=network(work))


def env_steps(result: dict[str, Any]) -> int:
    """Return the env steps that the learner has had so far."""
    if "num_env_steps_trained" in result:
        return int(result["num_env_steps_trained"])
    learners = result.get("learners", {}).get("__all_modules__", {})
    return int(learners.get("num_env_steps_trained_lifetime", 0))


if __name__ == "__main__":
    measure(configured, lambda work: 2 + 2 * work["actors"], env_steps)
