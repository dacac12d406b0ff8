"""Env steps per second of offbeat and of Stable-Baselines3, on the same work.

    python -m benchmarks.speed                      all works
    python -m benchmarks.speed --env CartPole-v1    one of them

Pairs of runs, A B B A A B ..., each run a process of its own, alone on the machine. Speeds are those after
the first tenth of the steps; the figure is the median of the pairs' ratios. README.md says what is alike on
the two sides, and what is not.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common import (
    RESULTS,
    describe,
    finish,
    machine,
    markdown_table,
    offbeat,
    read_metrics,
    thinned,
    write_json,
)

Settings = dict[str, Any]
Curve = list[tuple[int, float, float | None]]
"""Points [env_steps, wall_time_s, episode_return_mean], each once all steps so far have been learned from."""

PPO: Settings = {
    "hidden_sizes": [64, 64],
    "activation": "tanh",
    "shared_trunk": False,
    "action_distribution": "auto",
    "log_std_init": 0.0,
    "learning_rate": 1e-3,
    "learning_rate_schedule": "constant",
    "adam_eps": 1e-5,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip": 0.2,
    "clip_schedule": "constant",
    "value_clip": "none",
    "value_coef": 1.0,  # of half the squared error
    "entropy_coef": 0.0,
    "exploration": "entropy",
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
NOTHING_ELSE = ("checkpoint_every=0", "eval_episodes=1")
"""What a run does besides training, as little of it as can be."""
NOT_SETTINGS = ("env", "envs", "steps", "seed", "threads")
CALIBRATION_STEPS = 100_000
CURVE_POINTS = 50


# --- one run ------------------------------------------------------------------------------------------------


def run_offbeat(work: Settings) -> Settings:
    """Train with offbeat, serial, one thread, and return its curve."""
    command = (
        f"train ppo {work['env']} --steps {work['steps']} --seed {work['seed']} --runtime serial --max-lag 0 "
        f"--actors 1 --envs-per-actor {work['envs']} --eval-every 0 --progress none"
    )
    settings = [f"{key}={_text(value)}" for key, value in work.items() if key not in NOT_SETTINGS]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        offbeat(*command.split(), "--run-dir", str(run), "--set", *settings, *NOTHING_ELSE)
        lines = read_metrics(run)
    keys = ("env_steps", "wall_time_s", "episode_return_mean")
    return {"curve": [[line[key] for key in keys] for line in lines]}


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def run_peer(work: Settings, python: Path) -> Settings:
    """Train with Stable-Baselines3 in its own environment, and return its curve and versions."""
    answer: Settings = json.loads(finish([str(python), str(PEER), json.dumps(work)]).splitlines()[-1])
    return answer


def measured(train: Callable[[], Settings]) -> Settings:
    """Return what a run reports, its speed after the first tenth, and what its whole process cost."""
    started_s, cpu_before_s = time.perf_counter(), _children_cpu_s()
    report = train()
    wall_s, cpu_s = time.perf_counter() - started_s, _children_cpu_s() - cpu_before_s
    curve = report.pop("curve")
    points = [[steps, round(time_s, 3), score and round(score, 2)] for steps, time_s, score in curve]
    costs = {"sps": round(speed(curve)), "process_s": round(wall_s, 2), "process_cpu_s": round(cpu_s, 2)}
    return {**costs, **report, "curve": thinned(points, CURVE_POINTS)}


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def speed(curve: Curve) -> float:
    """Return env steps per second, from the first point after a tenth of the steps to the first with all."""
    first_time_s = {steps: time_s for steps, time_s, _ in reversed(curve)}
    end = max(first_time_s)
    start = min(steps for steps in first_time_s if steps >= end / 10)
    return (end - start) / (first_time_s[end] - first_time_s[start])


# --- pairs --------------------------------------------------------------------------------------------------


def compare(work: Settings, python: Path, pairs: int) -> Settings:
    """Measure one piece of work on both sides and return the record."""
    tried = {threads: calibrate(work, python, threads) for threads in (1, 2)}
    best = max(tried, key=lambda threads: tried[threads])
    sides: dict[str, Callable[[Settings], Settings]] = {
        "offbeat": run_offbeat,
        "sb3": lambda this: run_peer(this, python),
    }
    runs = []
    for pair in range(1, pairs + 1):
        this = {**work, "seed": pair, "threads": best}
        for side in sorted(sides, reverse=pair % 2 == 0):
            runs.append({"pair": pair, "side": side, **measured(partial(sides[side], this))})
            print(f"{work['env']}, pair {pair}, {side}: {runs[-1]['sps']:,} SPS", flush=True)
    return {
        "work": work,
        "machine": machine(),
        "sb3": {"sps_by_threads": tried, "threads": best, "versions": _pop_versions(runs)},
        "ratios": ratios(runs),
        "runs": runs,
    }


def calibrate(work: Settings, python: Path, threads: int) -> int:
    """Return the peer's speed with so many torch threads: it is measured at its best."""
    this = {**work, "seed": 0, "threads": threads, "steps": CALIBRATION_STEPS}
    sps: int = measured(lambda: run_peer(this, python))["sps"]
    return sps


def ratios(runs: list[Settings]) -> list[float]:
    """Return offbeat's speed over the peer's, pair by pair."""
    by_pair = {(run["pair"], run["side"]): run["sps"] for run in runs}
    pairs = sorted({run["pair"] for run in runs})
    return [round(by_pair[pair, "offbeat"] / by_pair[pair, "sb3"], 3) for pair in pairs]


def _pop_versions(runs: list[Settings]) -> Settings:
    versions = [run.pop("versions") for run in runs if "versions" in run]
    return dict(versions[0])


# --- tables -------------------------------------------------------------------------------------------------


def write_tables(records: list[Settings]) -> None:
    """Write what was measured as Markdown: the speeds, and beside them what was learned."""
    peer = ", ".join(f"{name} {version}" for name, version in records[-1]["sb3"]["versions"].items())
    about = [
        f"{describe(records[-1]['machine'])}.",
        f"The peer's environment: {peer}.",
        "SPS: median (least to most) of the runs; ratio: median (least to most) of the pairs.",
        "CPU: seconds of the whole process per 100,000 env steps, start-up included.",
    ]
    text = "\n".join(["# Speed beside Stable-Baselines3", "", *about, "", _speeds(records), _curves(records)])
    (RESULTS / "speed.md").write_text(text)


def _speeds(records: list[Settings]) -> str:
    header = ["env", "offbeat SPS", "SB3 SPS", "ratio", "offbeat CPU s", "SB3 CPU s", "SB3 threads", "pairs"]
    rows = [
        [
            record["work"]["env"],
            *(_spread([run["sps"] for run in _side(record, side)], ",.0f") for side in ("offbeat", "sb3")),
            _spread(record["ratios"], ".2f"),
            *(_cpu(record, side) for side in ("offbeat", "sb3")),
            str(record["sb3"]["threads"]),
            str(len(record["ratios"])),
        ]
        for record in records
    ]
    return markdown_table(header, rows)


def _curves(records: list[Settings]) -> str:
    parts = (0.1, 0.25, 0.5, 1.0)
    header = [
        "mean return of the last 100 training episodes",
        *(f"after {part:.0%} of the steps" for part in parts),
    ]
    rows = [
        [f"{record['work']['env']}, {side}", *(_return_at(record, side, part) for part in parts)]
        for record in records
        for side in ("offbeat", "sb3")
    ]
    return markdown_table(header, rows)


def _side(record: Settings, side: str) -> list[Settings]:
    return [run for run in record["runs"] if run["side"] == side]


def _spread(values: list[float], form: str) -> str:
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def _cpu(record: Settings, side: str) -> str:
    per_step = median(run["process_cpu_s"] for run in _side(record, side)) / record["work"]["steps"]
    return f"{per_step * 100_000:.2f}"


def _return_at(record: Settings, side: str, part: float) -> str:
    steps = part * record["work"]["steps"]
    scores = [
        min(run["curve"], key=lambda point: abs(point[0] - steps))[2] for run in _side(record, side)
    ]  # fmt: skip
    known = [score for score in scores if score is not None]
    return _spread(known, ",.0f") if known else "-"


# --- command line -------------------------------------------------------------------------------------------


def main() -> None:
    """Measure, write the raw records, then the tables from all records that are there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", action="append", choices=WORKS, help="repeat for several; default: all")
    parser.add_argument("--pairs", type=int, default=5, help="at least 5 for a figure that counts")
    parser.add_argument("--steps", type=int, help="other than the work's own: to try the benchmark out")
    parser.add_argument("--peer-python", type=Path, default=Path(".venv-sb3/bin/python"))
    options = parser.parse_args()
    if not options.peer_python.exists():
        parser.error(f"{options.peer_python} does not exist: benchmarks/README.md says how to install the peer")
    for env in options.env or WORKS:
        work = {"env": env, **WORKS[env], **({"steps": options.steps} if options.steps else {})}
        write_json(RESULTS / f"speed-{env}.json", compare(work, options.peer_python, options.pairs))
    write_tables([json.loads(path.read_text()) for path in sorted(RESULTS.glob("speed-*.json"))])
    print((RESULTS / "speed.md").read_text())


if __name__ == "__main__":
    main()
