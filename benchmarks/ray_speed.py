"""The runtime `ray` beside `processes` on one machine, and beside RLlib's APPO: PPO on HalfCheetah-v5, two actors.

    python -m benchmarks.ray_speed                                  all sides, five rounds
    python -m benchmarks.ray_speed --sides processes ray --rounds 9 --out /tmp/trial

Rounds of runs, A B C, C B A, ..., each run a process of its own. Env steps per second and CPU time per env step are
those after the first fifth of a run, so starts do not count. CPU time is that of all processes of a side, Ray's own
included. A ratio is that of two runs of the same round. README.md says what is alike. Writes `results/ray-speed.json`
and `.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.common import (
    adopt_orphans,
    by_turns,
    describe,
    finish,
    in_words,
    machine,
    markdown_table,
    reap,
    spread,
)
from benchmarks.options import new_parser, read_options
from benchmarks.peers.cpu_time import tree_cpu_s
from benchmarks.records import Unfinished
from benchmarks.works import HALF_CHEETAH, NOT_SETTINGS, Settings

WORK: Settings = {
    **HALF_CHEETAH, "steps": 500_000, "envs": 32, "actors": 2, "unroll_length": 192, "minibatch_size": 6144,
    "epochs": 1, "threads": 1, "normalize_observations": False, "normalize_returns": False,
    "max_lag": 1,
}  # fmt: skip
"""A ticket has 16 x 192 = 3,072 env steps, about 100 ms of acting on an idle core. A batch is one update."""
SIDES: dict[str, Settings] = {
    "processes": {"steps": 400_000, "actor_nice": 0},
    "ray": {"steps": 400_000},
    "rllib-new": {"steps": 60_000, "stack": "new"},
    "rllib-old": {"steps": 60_000, "stack": "old"},
}
"""Name -> what differs. offbeat's sides have the name of their runtime."""
ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"}
"""Actors have the priority of the learner on all sides: otherwise other programs on the machine decide the result."""
PEER = Path(__file__).parent / "peers" / "rllib_appo.py"
WARM_UP = 0.2
"""Part of the env steps of a run that is not measured."""


# --- a run --------------------------------------------------------------------------------------------------


def train(work: Settings) -> Settings:
    """Train with offbeat in this process; return the curve, and the CPU seconds of all processes at its points."""
    import offbeat

    curve: list[list[float | None]] = []
    cpu_s: list[float] = []
    started_s = time.perf_counter()

    def note(line: Mapping[str, Any]) -> None:
        curve.append([line["env_steps"], time.perf_counter() - started_s, line["episode_return_mean"]])
        cpu_s.append(tree_cpu_s())

    given = {key: value for key, value in work.items() if key not in NOT_SETTINGS}
    settings = {key: None if value == "none" else value for key, value in given.items()} | {
        "envs_per_actor": work["envs"] // work["actors"],
        "learner_threads": work["threads"],
        "log_every": work["steps"] // 20,
        **dict.fromkeys(("eval_every", "checkpoint_every"), 0),
    }
    with TemporaryDirectory() as folder:
        offbeat.train(
            "ppo", work["env"], steps=work["steps"], seed=work["seed"], run_dir=Path(folder) / "run", callbacks=[note],
            **settings,
        )  # fmt: skip
    return {"curve": curve, "cpu_s": cpu_s}


def run(side: str, seed: int, rllib: Path) -> Settings:
    """Run one side in a process of its own, and return what it costs after the warm-up."""
    work = {**WORK, **SIDES[side], "seed": seed}
    environment = {**os.environ, **ENVIRONMENT}
    if "stack" in work:
        command = [str(rllib), str(PEER), json.dumps(work)]
    else:
        command = [sys.executable, "-m", "benchmarks.ray_speed", "--train", json.dumps({**work, "runtime": side})]
    report: Settings = json.loads(finish(command, environment).splitlines()[-1])
    reap(10.0)
    curve, cpu_s = report["curve"], report["cpu_s"]
    first = next(index for index, point in enumerate(curve) if point[0] >= WARM_UP * work["steps"])
    env_steps = curve[-1][0] - curve[first][0]
    return {
        "sps": round(env_steps / (curve[-1][1] - curve[first][1]), 1),
        "cpu_us": round(1e6 * (cpu_s[-1] - cpu_s[first]) / env_steps, 2),
        "env_steps": env_steps,
        "load": round(os.getloadavg()[0], 1),
        **report,
    }


# --- results ------------------------------------------------------------------------------------------------


def page(record: Settings) -> list[str]:
    """Return the paragraphs of the page."""
    sides = {name: [one for one in record["runs"] if one["side"] == name] for name in SIDES}
    sides = {name: ones for name, ones in sides.items() if ones}
    header = ["side", "env steps per second", "CPU us per env step", "SPS of ray / SPS", "CPU / CPU of ray"]
    rows = [
        [
            name,
            spread([one["sps"] for one in ones], ",.0f"),
            spread([one["cpu_us"] for one in ones], ",.1f"),
            _ratio(sides.get("ray", []), ones, "sps"),
            _ratio(ones, sides.get("ray", []), "cpu_us"),
        ]
        for name, ones in sides.items()
    ]
    about = (
        "`python -m benchmarks.ray_speed`: PPO on HalfCheetah-v5, two actors with 16 envs each, tickets of 3,072 env "
        "steps, batches of two tickets, one update for each; RLlib's APPO does the same work with two env runners. A "
        "figure is the median (least to most) of the rounds, a ratio that of two runs of the same round. *CPU*: of all "
        "processes of a side."
    )
    loads = [one["load"] for one in record["runs"]]
    load = f"Load of the machine: {spread(loads, '.1f')}."
    versions = [f"{name}: {in_words(ones[0]['versions'])}." for name, ones in sides.items() if "versions" in ones[0]]
    places = "\n".join([f"{describe(record['machine'])}.", *versions])
    return ["# Ray on one machine", about, places, load, markdown_table(header, rows)]


def _ratio(ones: list[Settings], others: list[Settings], key: str) -> str:
    """Return the ratio of one side to another in the rounds that both have."""
    of_round = {other["round"]: other[key] for other in others}
    ratios = [one[key] / of_round[one["round"]] for one in ones if one["round"] in of_round]
    return spread(ratios, ".2f") if ratios else "-"


def main() -> None:
    """Run all sides and write the results."""
    parser = new_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--rllib-python", type=Path, default=Path(".venv-rllib/bin/python"))
    parser.add_argument("--train", type=json.loads, help=argparse.SUPPRESS)
    options = read_options(parser, "rllib_python", unless="train")
    if options.train:
        print(json.dumps(train(options.train)))
        return
    adopt_orphans()
    unfinished = Unfinished(options.out, "ray-speed", sides=options.sides, rounds=options.rounds)
    record: Settings = {"work": WORK, "machine": machine(), "runs": []}
    for number, side in by_turns(options.sides, options.rounds):
        one = unfinished.run({"round": number, "side": side}, partial(run, side, number, options.rllib_python))
        record["runs"].append(one)
        print(f"round {number}, {side}: {one['sps']:,.0f} SPS, {one['cpu_us']} us, load {one['load']}", flush=True)
    unfinished.publish(record, *page(record))


if __name__ == "__main__":
    main()
