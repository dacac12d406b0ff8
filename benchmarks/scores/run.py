"""One seed of a work: train it with its preset, evaluate its last weights, keep the result.

    python -m benchmarks.scores.run WORK SEED     the number of a work in works.toml, from 0

It is started by `benchmarks.scores`, in a new process, whose CPU seconds are counted.
"""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

from benchmarks.common import ONE_THREAD, children_cpu_s, machine, offbeat, thinned, write_json
from benchmarks.scores.works import Work, all_works
from offbeat.metrics.sinks import read_metrics

EVAL_EPISODES = 20
CURVE_POINTS = 300
CURVE_KEYS = ("env_steps", "wall_time_s", "episode_return_mean", "eval_return_mean")
THREADS = {"sac": "--set learner_threads=1", "crossq": "--set learner_threads=1"}
"""What keeps a run of an algorithm to one thread; it changes no bit."""


def score(work: Work, seed: int) -> None:
    """Train one seed, from where it was broken off if it was; evaluate it, write its result."""
    run = work.run_directory(seed)
    command = (
        f"train {work.algorithm} {work.env} --runtime {work.runtime} --steps {work.steps} --seed {seed} "
        f"--run-dir {run} --progress none {_named(work)} {THREADS.get(work.algorithm, '')}"
    )
    is_whole = train_to_end(run, command, ONE_THREAD)
    cpu_s = children_cpu_s()
    answer = offbeat("eval", str(run), "--episodes", str(EVAL_EPISODES), "--json", environment=ONE_THREAD)
    result = {
        "env": work.env,
        "seed": seed,
        "evaluation": json.loads(answer),
        "cpu_s": round(cpu_s, 1) if is_whole else None,
        "machine": machine(),
        "config": tomllib.loads((run / "config.toml").read_text()),
        "curve_keys": CURVE_KEYS,
        "curve": curve(read_metrics(run)),
    }
    write_json(work.result_path(seed), result)
    print(f"{work.algorithm} on {work.env}, seed {seed}: {result['evaluation']['return_mean']:,.1f}", flush=True)


def _named(work: Work) -> str:
    """Return the flags for the preset and the settings that a work names."""
    preset = f"--preset {work.preset}" if work.preset else ""
    return " ".join([preset, *(f"--set {key}={value}" for key, value in work.settings.items())])


def train_to_end(run: Path, command: str, environment: dict[str, str] | None = None) -> bool:
    """Train with a command, or continue a run that was stopped; return whether the command has trained all of it."""
    if finished(run):
        return False
    if (run / "checkpoints" / "latest").exists():
        offbeat("resume", str(run), "--progress", "none", environment=environment)
        return False
    shutil.rmtree(run, ignore_errors=True)  # stopped before its first checkpoint
    offbeat(*command.split(), environment=environment)
    return True


def finished(run: Path) -> bool:
    """Whether a run has come to its end."""
    status = run / "status.json"
    return status.exists() and json.loads(status.read_text())["state"] == "finished"


def curve(lines: list[dict[str, Any]]) -> list[list[float | None]]:
    """Return points with the values of `CURVE_KEYS`; an evaluation has its own, with the env steps of its weights."""
    kept = {id(line) for line in thinned(lines, CURVE_POINTS)}
    points: list[list[float | None]] = []
    evaluations = 0
    for line in lines:
        if line["evaluations"] > evaluations:
            points.append([line["eval_env_steps"], _short(line["wall_time_s"]), None, _short(line["eval_return_mean"])])
        if id(line) in kept:
            points.append([*(_short(line[key]) for key in CURVE_KEYS[:-1]), None])
        evaluations = line["evaluations"]
    return points


def _short(value: float | None) -> float | None:
    return value if value is None or isinstance(value, int) else round(value, 2)


if __name__ == "__main__":
    score(all_works()[int(sys.argv[1])], int(sys.argv[2]))
