"""APPO of RLlib on one piece of work; started by `ray_speed.py` in the peer's own environment.

    python benchmarks/peers/rllib_appo.py '{"env": "HalfCheetah-v5", ..., "seed": 1}'

Prints one JSON object: the versions, the curve [env_steps, wall_time_s, episode_return_mean], and the CPU seconds of
all processes at each of its points. A point is taken when `train()` returns; its env steps are those that the learner
has had. `stack` and `actors` in the work choose RLlib's API stack, new or old, and the number of its env runners.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from importlib.metadata import version
from typing import Any

import ray
import torch
from cpu_time import tree_cpu_s
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

REPORT_S = 2
"""Seconds of a call of `train()`."""


def configured(work: dict[str, Any]) -> APPOConfig:
    """Return the work in RLlib's words."""
    new, rows = work["stack"] == "new", work["envs"] * work["unroll_length"]
    network = {
        "fcnet_hiddens": work["hidden_sizes"],
        "fcnet_activation": work["activation"],
        "vf_share_layers": work["shared_trunk"],
    }
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
        config = config.rl_module(model_config=DefaultModelConfig(**network))
        return config.training(train_batch_size_per_learner=rows)
    return config.training(train_batch_size=rows, model=network)


def env_steps(result: dict[str, Any]) -> int:
    """Return the env steps that the learner has had so far."""
    if "num_env_steps_trained" in result:
        return int(result["num_env_steps_trained"])
    learners = result.get("learners", {}).get("__all_modules__", {})
    return int(learners.get("num_env_steps_trained_lifetime", 0))


def return_of(result: dict[str, Any]) -> float | None:
    """Return the mean return of the last training episodes."""
    of_envs = result["env_runners"]
    mean = of_envs.get("episode_return_mean", of_envs.get("episode_reward_mean"))
    return None if mean is None or math.isnan(mean) else float(mean)


def main() -> None:
    """Train, then print what was measured."""
    work: dict[str, Any] = json.loads(sys.argv[1])
    torch.set_num_threads(work["threads"])
    ray.init(
        address="local",
        num_cpus=2 + 2 * work["actors"],
        include_dashboard=False,
        logging_level=logging.ERROR,
        log_to_driver=False,
    )
    algorithm = configured(work).build_algo()
    started_s = time.perf_counter()
    curve: list[tuple[int, float, float | None]] = [(0, 0.0, None)]
    cpu_s = [tree_cpu_s()]
    while curve[-1][0] < work["steps"]:
        result = algorithm.train()
        curve.append((env_steps(result), time.perf_counter() - started_s, return_of(result)))
        cpu_s.append(tree_cpu_s())
    algorithm.stop()
    ray.shutdown()
    names = ("ray", "torch", "numpy", "gymnasium")
    print(json.dumps({"versions": {name: version(name) for name in names}, "curve": curve, "cpu_s": cpu_s}))


if __name__ == "__main__":
    main()
