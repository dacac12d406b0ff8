"""Scores of the presets: several seeds each, greedy evaluation at the end.

    python -m benchmarks.scores                                all envs, all seeds
    python -m benchmarks.scores --env Hopper-v5 --seeds 1 2    some of them
    python -m benchmarks.scores --runtime processes            as `--runtime processes` trains: acting beside learning
    python -m benchmarks.scores --algorithm sac                another algorithm's presets

Two runs at a time, one thread each. A seed whose result is there is not run again, and one that was broken off goes on
from its last checkpoint. Run directories stay under runs/scores until you delete them; the results are small and are
kept with the code.
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
    "ppo": {
        "CartPole-v1": Setting(5, 200_000),
        "LunarLander-v3": Setting(3, 1_000_000),
        "HalfCheetah-v5": Setting(5, 1_000_000),
        "Hopper-v5": Setting(5, 1_000_000),
        "Ant-v5": Setting(3, 1_000_000),
    },
    "sac": {"Pendulum-v1": Setting(5, 20_000), "HalfCheetah-v5": Setting(3, 1_000_000)},
}
THREADS = {"ppo": "", "sac": "--set learner_threads=1"}
"""What keeps a run to one thread; it changes no bit."""


@dataclass(frozen=True)
class Place:
    """Where the runs of an algorithm in a runtime, and their results, are kept."""

    algorithm: str
    runtime: str

    @property
    def scores(self) -> Path:
        return RESULTS / self._name

    @property
    def _name(self) -> str:
        usual = ("ppo", "serial")
        return "-".join(["scores", *(name for name in (self.algorithm, self.runtime) if name not in usual)])

    @property
    def settings(self) -> dict[str, Setting]:
        return SETTINGS[self.algorithm]

    def run_directory(self, env: str, seed: int) -> Path:
        """Return where a seed is trained."""
        return RUNS / self._name / env / f"seed-{seed}"

    def result_path(self, env: str, seed: int) -> Path:
        """Return where a seed's result is kept."""
        return self.scores / env / f"seed-{seed}.json"


# --- one seed -----------------------------------------------------------------------------------------------


def score(place: Place, env: str, seed: int) -> None:
    """Train one seed, from where it was broken off if it was; evaluate it, write its result."""
    run = place.run_directory(env, seed)
    if (run / "checkpoints" / "latest").exists():
        command = f"resume {run} --progress none"
    else:
        shutil.rmtree(run, ignore_errors=True)
        command = (
            f"train {place.algorithm} {env} --runtime {place.runtime} --steps {place.settings[env].steps} "
            f"--seed {seed} --run-dir {run} --progress none {THREADS[place.algorithm]}"
        )
    if not finished(run):
        offbeat(*command.split(), environment=ONE_THREAD)
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


def finished(run: Path) -> bool:
    """Whether a run has come to its end."""
    status = run / "status.json"
    return status.exists() and json.loads(status.read_text())["state"] == "finished"


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
    jobs = [(env, seed) for env in envs for seed in seeds or range(1, place.settings[env].seeds + 1)]
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
    results = {env: found for env in place.settings if (found := read_results(place, env))}
    header = ["env", "env steps", "mean return", "std", "each seed"]
    rows = [
        [
            env,
            f"{place.settings[env].steps:,}",
            *_figures([result["evaluation"]["return_mean"] for result in found]),
        ]
        for env, found in results.items()
    ]
    title = f"# Scores of the presets, `{place.algorithm}`, `--runtime {place.runtime}`"
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
    parser.add_argument("--algorithm", choices=SETTINGS, default="ppo")
    parser.add_argument("--env", nargs="+", help="default: all that the algorithm has")
    parser.add_argument("--seeds", nargs="+", type=int, help="default: 1 to as many as the env has")
    parser.add_argument("--runtime", choices=("serial", "threads", "processes"), default="serial")
    options = parser.parse_args()
    place = Place(options.algorithm, options.runtime)
    envs = options.env or list(place.settings)
    if unknown := set(envs) - set(place.settings):
        parser.error(f"{options.algorithm} has no setting for {', '.join(unknown)}, only {', '.join(place.settings)}")
    run_all(place, envs, options.seeds)
    for env in envs:
        plot(place, env)
    write_table(place)


if __name__ == "__main__":
    main()
