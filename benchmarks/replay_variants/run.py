"""One run of offbeat: train, take a point at each evaluation, print the curve.

    python -m benchmarks.replay_variants.run '{"algorithm": "sac", "settings": {...}, "env": "HalfCheetah-v5", ...}'

It is started by `benchmarks.replay_variants`, in a new process.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

import offbeat
import offbeat.algorithms.sac


class Curve(offbeat.Callback):
    """Takes points [env_steps, seconds, cpu_s, return]. Evaluations are in a process of their own: their CPU seconds do
    not count.
    """

    def __init__(self, cpu_s: float, goal: float) -> None:
        """Stop the run after `cpu_s` CPU seconds, or at a mean return of `goal`."""
        self._limit_s, self._goal = cpu_s, goal
        self.points: list[list[float]] = []

    def on_start(self) -> None:
        self._started_s, self._started_cpu_s = time.perf_counter(), time.process_time()

    def on_evaluation(self, results: dict[str, float | None]) -> Literal["stop"] | None:
        seconds, cpu_s = time.perf_counter() - self._started_s, time.process_time() - self._started_cpu_s
        steps, mean = results["eval_env_steps"], results["eval_return_mean"]
        assert steps is not None
        assert mean is not None
        self.points.append([int(steps), round(seconds, 1), round(cpu_s, 1), round(mean, 1)])
        print(self.points[-1], file=sys.stderr, flush=True)
        return "stop" if cpu_s > self._limit_s or mean >= self._goal else None


def measured(work: dict[str, Any], folder: Path) -> list[list[float]]:
    """Train and return the points."""
    curve = Curve(work["cpu_s"], work["goal"])
    offbeat.train(
        work["algorithm"], work["env"], preset="none", run_dir=folder, progress="none", callbacks=[curve],
        steps=work["steps"], seed=work["seed"], eval_every=work["eval_every"], eval_episodes=work["eval_episodes"],
        runtime="serial", actors=1, envs_per_actor=1, learner_threads=1, eval_time_share=1.0, checkpoint_every=0,
        save_replay=False, **work["settings"],
    )  # fmt: skip
    return curve.points


def main() -> None:
    """Print the curve of a run as one line."""
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps({"curve": measured(json.loads(sys.argv[1]), Path(folder) / "run")}))


if __name__ == "__main__":
    main()
