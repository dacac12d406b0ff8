"""Env steps per second of offbeat and of Stable-Baselines3, on the same work.

    python -m benchmarks.speed                      all works
    python -m benchmarks.speed --env CartPole-v1    one of them

Pairs of runs, A B B A A B ..., each run a process of its own, alone on the machine. Speeds are those after the
first tenth of the steps; the figure is the median of the pairs' ratios. README.md says what is alike and what is not.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common import RESULTS, describe, finish, machine, markdown_table, offbeat, read_metrics, thinned, write_json

Settings = dict[str, Any]
Curve = list[list[float | None]]
"""Points [env_steps, wall_time_s, episode_return_mean], each once all steps so far have been learned from."""

PPO: Settings = {
    "hidden_sizes": [64, 64],
    "activation": "tanh",
    "shared_trunk": False,
    "learning_rate": 1e-3,
    "learning_rate_schedule": "constant",
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip": 0.2,
    "clip_schedule": "constant",
    "value_clip": "none",
    "value_coef": 1.0,  # of half the squared error
    "entropy_coef": 0.0,
    "max_grad_norm": 0.5,
    "kl_target": "none",
    "recompute_advantages": False,
    "normalize_advantages": True,
    "normalize_observations": False,
    "normalize_returns": False,
}
"""Every key that decides the work or the result is given, so that no preset has a say."""

WORKS: dict[str, Settings] = {
    "CartPole-v1": {
        **PPO, "steps": 500_000, "envs": 32, "unroll_length": 32, "minibatch_size": 256, "epochs": 4,
    },
    "HalfCheetah-v5": {
        **PPO, "steps": 500_000, "envs": 32, "unroll_length": 64, "minibatch_size": 1024, "epochs": 2,
        "normalize_observations": True, "normalize_returns": True,
    },
}  # fmt: skip

PEER = Path(__file__).parent / "peers" / "sb3_ppo.py"
NOT_SETTINGS = ("env", "envs", "steps", "seed", "threads")
CALIBRATION_STEPS = 100_000
CURVE_POINTS = 50


# --- one run ------------------------------------------------------------------------------------------------


def run_offbeat(work: Settings) -> Settings:
    """Train with offbeat, serial, one thread, and return its curve."""
    settings = [f"{key}={_text(value)}" for key, value in work.items() if key not in NOT_SETTINGS]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        offbeat(
            *("train", "ppo", work["env"], "--run-dir", str(run), "--progress", "none", "--runtime", "serial"),
            *("--steps", str(work["steps"]), "--seed", str(work["seed"]), "--max-lag", "0", "--actors", "1"),
            *("--envs-per-actor", str(work["envs"]), "--eval-every", "0"),
            *("--set", "checkpoint_every=0", "eval_episodes=1", *settings),
        )
        lines = read_metrics(run)
    return {"curve": [[line["env_steps"], line["wall_time_s"], line["episode_return_mean"]] for line in lines]}


def _text(value: object) -> str:
    return json.dumps(value) if isinstance(value, (list, bool)) else str(value)


def run_peer(work: Settings, python: Path) -> Settings:
    """Train with Stable-Baselines3 in its own environment, and return its curve and versions."""
    answer: Settings = json.loads(finish([str(python), str(PEER), json.dumps(work)]).splitlines()[-1])
    return answer


def measured(train: Callable[[], Settings]) -> Settings:
    """Return what a run reports, its speed after the first tenth, and the CPU seconds of its whole process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    report = train()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "sps": round(speed(report["curve"]), 1),
        "cpu_s": round(cpu_s, 2),
        **report,
        "curve": [[*point[:1], *(x and round(x, 3) for x in point[1:])] for point in thinned(report["curve"], CURVE_POINTS)],
    }


def speed(curve: Curve) -> float:
    """Return env steps per second from the first point after a tenth of the steps to the first with all of them."""
    times = {steps or 0.0: time_s or 0.0 for steps, time_s, _ in reversed(curve)}
    end = max(times)
    start = min(steps for steps in times if steps >= end / 10)
    return (end - start) / (times[end] - times[start])


# --- pairs --------------------------------------------------------------------------------------------------


def compare(work: Settings, python: Path, pairs: int) -> Settings:
    """Measure one piece of work on both sides and return the record."""
    threads = calibrate(work, python)
    runs = []
    for pair in range(pairs):
        this = {**work, "seed": pair + 1, "threads": int(max(threads, key=lambda count: threads[count]))}
        sides = {
            "offbeat": measured(lambda this=this: run_offbeat(this)),
        } if False else {}
        runs.append(sides)
    return {"runs": runs}
