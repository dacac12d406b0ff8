"""What `rllib_appo.py` and `rllib_ppo.py` share: the network, the curve of a run, and what is printed of it."""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import ray
import torch
from cpu_time import tree_cpu_s

Result = dict[str, Any]
"""What a call of `train()` returns."""


def network(work: dict[str, Any]) -> dict[str, Any]:
    """Return the network of the work in RLlib's words."""
    return {
        "fcnet_hiddens": work["hidden_sizes"],
        "fcnet_activation": work["activation"],
        "vf_share_layers": work["shared_trunk"],
    }


def mean_return(result: Result) -> float | None:
    """Return the mean return of the last training episodes; None if none has ended."""
    of_envs = result["env_runners"]
    mean = of_envs.get("episode_return_mean", of_envs.get("episode_reward_mean"))
    return None if mean is None or math.isnan(mean) else float(mean)


def measure(
    configured: Callable[[dict[str, Any]], Any],
    cpus: Callable[[dict[str, Any]], int],
    steps_of: Callable[[Result], int],
    return_of: Callable[[Result], float | None] = mean_return,
) -> None:
    """Train the work that was given on the command line; print the versions, the curve and the CPU seconds.

    Args:
        configured: returns the work as a configuration of RLlib.
        cpus: returns how many CPUs Ray may use for it.
        steps_of: returns the steps so far.
        return_of: returns the mean return.
    """
    work: dict[str, Any] = json.loads(sys.argv[1])
    torch.set_num_threads(work["threads"])
    ray.init(
        address="local",
        num_cpus=cpus(work),
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
        curve.append((steps_of(result), time.perf_counter() - started_s, return_of(result)))
        cpu_s.append(tree_cpu_s())
    algorithm.stop()
    ray.shutdown()
    names = ("ray", "torch", "numpy", "gymnasium")
    print(json.dumps({"versions": {name: version(name) for name in names}, "curve": curve, "cpu_s": cpu_s}))
