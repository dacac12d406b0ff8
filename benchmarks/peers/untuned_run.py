"""One run of `defaults.py`: train with default settings, evaluate the last weights; started by it, in a new process.

    python -m benchmarks.peers.untuned_run '{"side": "sb3", "algorithm": "ppo", "env": "Acrobot-v1", "seed": 1, ...}'

Both sides run on one thread, and are evaluated by the same code in the same episodes. It prints one JSON object.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import benchmarks.untuned  # noqa: F401 - registers an env
import gymnasium
import numpy as np

EPISODES = 20
FIRST_SEED = 10_000
"""Seed of the first episode of an evaluation; the next ones have the next seeds."""

Act = Callable[[Any], Any]
"""Observation -> the greedy action."""


def train_sb3(work: dict[str, Any]) -> Act:
    """Train with Stable-Baselines3."""
    import stable_baselines3 as sb3
    import torch

    torch.set_num_threads(1)
    model_class = {"ppo": sb3.PPO, "sac": sb3.SAC}[work["algorithm"]]
    model = model_class("MlpPolicy", work["env"], seed=work["seed"], device="cpu")
    model.learn(work["steps"])

    def act(observation: Any) -> Any:
        return model.predict(observation, deterministic=True)[0]

    return act


def train_offbeat(work: dict[str, Any]) -> Act:
    """Train with offbeat, without a preset. There are no evaluations during training, as the peer has none."""
    import offbeat

    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        offbeat.train(
            work["algorithm"], work["env"], preset="none", run_dir=run, progress="none", steps=work["steps"],
            seed=work["seed"], eval_every=0, imports=("benchmarks.untuned",), **work["settings"],
        )  # fmt: skip
        return offbeat.load(run)


def evaluate(act: Act, env_id: str) -> list[float]:
    """Return the returns of `EPISODES` episodes."""
    env = gymnasium.make(env_id)
    return [_episode(act, env, FIRST_SEED + index) for index in range(EPISODES)]


def _episode(act: Act, env: gymnasium.Env[Any, Any], seed: int) -> float:
    observation, _ = env.reset(seed=seed)
    total, ended = 0.0, False
    while not ended:
        action = np.asarray(act(observation))
        observation, reward, terminated, truncated, _ = env.step(action if action.shape else int(action))
        total, ended = total + float(reward), terminated or truncated
    return total


def cpu_s() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def main() -> None:
    """Train and evaluate; imports are in no figure."""
    work: dict[str, Any] = json.loads(sys.argv[1])
    train = {"sb3": train_sb3, "offbeat": train_offbeat}[work["side"]]
    __import__({"sb3": "stable_baselines3", "offbeat": "offbeat.algorithms.sac"}[work["side"]])
    started, started_cpu = time.perf_counter(), cpu_s()
    act = train(work)
    seconds, cpu = time.perf_counter() - started, cpu_s() - started_cpu
    returns = evaluate(act, work["env"])
    print(json.dumps({"seconds": round(seconds, 2), "cpu_s": round(cpu, 2), "returns": [round(r, 4) for r in returns]}))


if __name__ == "__main__":
    main()
