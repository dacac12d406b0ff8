"""One run of the comparison of lags: train a preset, evaluate its last weights, print the record.

    python -m benchmarks.policy_lag.run '{"algorithm": "ppo", "env": "CartPole-v1", "steps": 200000, "seed": 1, ...}'

It is started by `benchmarks.policy_lag`, in a new process.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import offbeat
from offbeat.metrics.sinks import read_metrics

EVALUATIONS, EVAL_EPISODES, LAST_EPISODES = 20, 10, 20
ONE_ACTOR: dict[str, Any] = {"actors": 1, "lag": "exact"}
"""One actor, as in the presets, so that no batch is larger with more lag; the lag is always the full one."""
ONE_THREAD: dict[str, dict[str, Any]] = {"ppo": {}, "sac": {"learner_threads": 1}}
"""What keeps the learner of an algorithm to one thread; it changes no bit."""


def measured(work: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Train and evaluate; return the score, the curve and what the run cost."""
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    run = offbeat.train(
        work["algorithm"], work["env"], run_dir=folder, progress="none", seed=work["seed"], steps=work["steps"],
        runtime="serial", eval_every=work["steps"] // EVALUATIONS, eval_episodes=EVAL_EPISODES,
        checkpoint_every=0, **{work["key"]: work["lag"]}, **work["changes"], **ONE_ACTOR,
        **ONE_THREAD[work["algorithm"]],
    )  # fmt: skip
    seconds, cpu_s = time.perf_counter() - started_s, time.process_time() - started_cpu_s
    return {
        "score": offbeat.evaluate(run, episodes=LAST_EPISODES).return_mean,
        "curve": evaluations_of(read_metrics(folder)),
        "seconds": round(seconds, 2),
        "cpu_s": round(cpu_s, 2),
        "weights": digest_of(folder),
    }


def evaluations_of(lines: list[dict[str, Any]]) -> list[list[float]]:
    """Return env steps, seconds of training and mean return of each evaluation, in order."""
    firsts = {line["evaluations"]: line for line in reversed(lines) if line["evaluations"]}
    return [
        [line["eval_env_steps"], round(line["wall_time_s"], 2), round(line["eval_return_mean"], 2)]
        for _, line in sorted(firsts.items())
    ]


def digest_of(run: Path) -> str:
    """Return the SHA-256 of the last weights: equal for all runtimes, as the lag is exact."""
    return hashlib.sha256((run / "checkpoints/latest/weights.safetensors").read_bytes()).hexdigest()


def main() -> None:
    """Print the record of a run as one line."""
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measured(json.loads(sys.argv[1]), Path(folder) / "run")))


if __name__ == "__main__":
    main()
