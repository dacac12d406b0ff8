"""Scores of the presets: several seeds each, greedy evaluation at the end.

    python -m benchmarks.scores                                all envs, all seeds
    python -m benchmarks.scores --env Hopper-v5 --seeds 1 2    some of them
    python -m benchmarks.scores --runtime processes            as `--runtime processes` trains: acting beside learning

Two runs at a time, one thread each. A seed whose result is there is not run again. Run directories stay under
runs/scores until you delete them; the results are small and are kept with the code.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks.common import (
    RESULTS,
    describe,
    machine,
    markdown_table,
    offbeat,
    read_metrics,
    thinned,
    write_json,
)

RUNS = Path("runs")
AT_A_TIME = 2
EVAL_EPISODES = 20
CURVE_POINTS = 300
CURVE_KEYS = ("env_steps", "wall_time_s", "episode_return_mean", "eval_return_mean")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Setting:
    """What is run of one env."""

    seeds: int
    steps: int
    """Env steps of a run."""


SETTINGS = {
    "CartPole-v1": Setting(5, 200_000),
    "LunarLander-v3": Setting(3, 1_000_000),
    "HalfCheetah-v5": Setting(5, 1_000_000),
    "Hopper-v5": Setting(5, 1_000_000),
    "Ant-v5": Setting(3, 1_000_000),
}


@dataclass(frozen=True)
class Place:
    """Where the runs of a runtime, and their results, are kept."""

    runtime: str

    @property
    def scores(self) -> Path:
        return RESULTS / self._name

    @property
    def _name(self) -> str:
        return "scores" if self.runtime == "serial" else f"scores-{self.runtime}"

    def run_directory(self, env: str, seed: int) -> Path:
        """Return where a seed is trained."""
        return RUNS / self._name / env / f"seed-{seed}"

    def result_path(self, env: str, seed: int) -> Path:
        """Return where a seed's result is kept."""
        return self.scores / env / f"seed-{seed}.json"


# --- one seed -----------------------------------------------------------------------------------------------


def score(place: Place, env: str, seed: int) -> None:
    """Train one seed from the start, evaluate it, write its result."""
    run = place.run_directory(env, seed)
    shutil.rmtree(run, ignore_errors=True)  # a run without a result was broken off
    command = f"train ppo {env} --runtime {place.runtime} --steps {SETTINGS[env].steps} --seed {seed} --progress none"
    offbeat(*command.split(), "--run-dir", str(run), environment=ONE_THREAD)
    answer = offbeat("eval", str(run), "--episodes", str(EVAL_EPISODES), "--json", environment=ONE_THREAD)
    result = {
        "env": env,
        "seed": seed,
        "evaluation": json.loads(answer),
        "machine": machine(),
        "config": tomllib.loads((run / "config.toml").read_text()),
        "curve_keys": CURVE_KEYS,
        "curve": curve(read_metrics(run)),
    }
    write_json(place.result_path(env, seed), result)
    print(f"{env}, seed {seed}: {result['evaluation']['return_mean']:,.1f}", flush=True)


def curve(lines: list[dict[str, Any]]) -> list[list[float | None]]:
    """Return the lines' `CURVE_KEYS`; an evaluation stands in the first line that tells it, no other."""
    points: list[list[float | None]] = []
    told = 0
    for line in lines:
        fresh = line["eval_return_mean"] if line["evaluations"] > told else None
        told = line["evaluations"]
        points.append([*(_short(line[key]) for key in CURVE_KEYS[:-1]), _short(fresh)])
    kept = {id(point) for point in thinned(points, CURVE_POINTS)}
    return [point for point in points if id(point) in kept or point[-1] is not None]


def _short(value: float | None) -> float | None:
    return value if value is None or isinstance(value, int) else round(value, 2)


# --- all seeds ----------------------------------------------------------------------------------------------


def run_all(place: Place, envs: list[str], seeds: list[int] | None) -> None:
    """Run the seeds that have no result yet, `AT_A_TIME` at once."""
    jobs = [(env, seed) for env in envs for seed in seeds or range(1, SETTINGS[env].seeds + 1)]
    missing = [job for job in jobs if not place.result_path(*job).exists()]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for done in [pool.submit(score, place, *job) for job in missing]:
            done.result()


def read_results(place: Place, env: str) -> list[dict[str, Any]]:
    """Return the results of an env that are there, by seed."""
    found = [json.loads(path.read_text()) for path in (place.scores / env).glob("seed-*.json")]
    return sorted(found, key=lambda result: int(result["seed"]))


def plot(place: Place, env: str) -> None:
    """Draw an env's seeds as one line, as long as all their run directories are still there."""
    runs = [place.run_directory(env, result["seed"]) for result in read_results(place, env)]
    if runs and all(run.exists() for run in runs):
        offbeat("plot", *map(str, runs), "--out", str(place.scores / env / "return.png"))


def write_table(place: Place) -> None:
    """Write one line an env: every seed's score, their mean, their spread and the time of a run."""
    results = {env: found for env in SETTINGS if (found := read_results(place, env))}
    header = ["env", "env steps", "mean return", "std", "each seed"]
    rows = [
        [
            env,
            f"{SETTINGS[env].steps:,}",
            *_figures([result["evaluation"]["return_mean"] for result in found]),
        ]
        for env, found in results.items()
    ]
    title = f"# Scores of the presets, `--runtime {place.runtime}`"
    method = (
        f"Greedy evaluation of the last weights over {EVAL_EPISODES} episodes a seed; spread over the seeds. "
        f"{AT_A_TIME} runs at a time, one thread each."
    )
    machines = sorted({describe(result["machine"]) for found in results.values() for result in found})
    text = "\n\n".join([title, method, *machines, markdown_table(header, rows)])
    (place.scores / "scores.md").write_text(text)
    print(text)


def _figures(scores: list[float]) -> list[str]:
    spread = f"{stdev(scores):,.0f}" if len(scores) > 1 else "-"
    return [f"{mean(scores):,.0f}", spread, " ".join(f"{one:.0f}" for one in scores)]


def main() -> None:
    """Run what is missing, then draw and write the table from all results that are there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--seeds", nargs="+", type=int, help="default: 1 to as many as the env has")
    parser.add_argument("--runtime", choices=("serial", "threads", "processes"), default="serial")
    options = parser.parse_args()
    place = Place(options.runtime)
    run_all(place, options.env, options.seeds)
    for env in options.env:
        plot(place, env)
    write_table(place)


if __name__ == "__main__":
    main()
