"""Default settings on ten envs, the same for all: PPO and SAC beside Stable-Baselines3's.

    python -m benchmarks.defaults                               all that is missing, seed by seed
    python -m benchmarks.defaults --algorithms ppo --sides sb3  a part of it
    python -m benchmarks.defaults --runs 0                      only the table
    python -m benchmarks.defaults --set epochs=10 --out /tmp/x  to try out other defaults

It runs in an environment with both libraries. One run at a time, each in a process of its own, on one thread. Each run
is appended to a file at its end, so an interrupted command continues. A run of ours is recorded with its settings: with
other defaults it is made again. A setting that was added since counts as its default, which must do what was done
without it. Two commands for different sides can run at the same time. The runs with which the defaults were chosen are
in results/defaults-tried.jsonl.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.common import describe, installed, machine, markdown_table, record_of, write_page
from benchmarks.options import new_parser, read_options
from benchmarks.peers.untuned_run import EPISODES
from benchmarks.records import Record, append_record, find_record, read_records
from benchmarks.untuned import UNTUNED, Untuned
from offbeat.config.assignments import parse_assignments
from offbeat.config.config import Config
from offbeat.config.preset_files import NO_PRESET
from offbeat.config.registry import algorithm_title
from offbeat.config.resolve import resolve
from offbeat.plots.statistics import iqm

ALGORITHMS = ("ppo", "sac")
SIDES = ("offbeat", "sb3")
NAMES = {"offbeat": "offbeat", "sb3": "SB3"}
SEEDS = 5
LATER = range(3, SEEDS + 1)
"""The seeds with which no default was chosen."""
PEER = "stable-baselines3"
LAYOUT = ("actors", "envs_per_actor", "unroll_length", "unrolls_per_batch")
RUN_ALONE: dict[str, dict[str, Any]] = {"ppo": {}, "sac": {"learner_threads": 1}}
"""What keeps a run of ours to one thread; it changes no bit."""

# --- runs -----------------------------------------------------------------------------------------------------


def jobs(options: argparse.Namespace) -> Iterator[Record]:
    """Yield all runs: a whole seed of each algorithm, then the next seed."""
    for seed in range(1, options.seeds + 1):
        for algorithm in options.algorithms:
            for untuned in UNTUNED:
                for side in options.sides:
                    if algorithm in untuned.steps and (not options.env or untuned.env in options.env):
                        yield job(side, algorithm, untuned, seed, options.set)


def job(side: str, algorithm: str, untuned: Untuned, seed: int, given: dict[str, Any]) -> Record:
    """Return what identifies a run: all that its result depends on, besides the code.

    Where the peer is not installed, runs of each of its versions count.
    """
    what = {"side": side, "algorithm": algorithm, "env": untuned.env, "seed": seed, "steps": untuned.steps[algorithm]}
    if side == "sb3":
        version = installed(PEER)
        return {**what, "version": version} if version else what
    return {**what, "settings": settings_of(algorithm, untuned.env, given)}


def settings_of(algorithm: str, env: str, given: dict[str, Any]) -> Record:
    """Return the algorithm's settings and the layout that a run of ours has."""
    config: Config = resolve(algorithm, env, preset=NO_PRESET, flags=given)
    layout = {name: getattr(config.runtime, name) for name in LAYOUT}
    settings: Record = json.loads(json.dumps({**asdict(config.algorithm_settings), **layout}, default=str))
    return settings


def find_run(what: Record, records: list[Record]) -> Record | None:
    """Return the last record of a run, None if there is none. Settings that its record lacks have their defaults."""
    if "settings" not in what:
        return find_record(what, records)
    defaults = settings_of(what["algorithm"], what["env"], {})
    completed = [
        {**record, "settings": {**defaults, **record["settings"]}} for record in records if "settings" in record
    ]
    return find_record(what, completed)


def make(what: Record, given: dict[str, Any]) -> Record:
    """Make a run in a process of its own, and return its record."""
    work = {**what, "settings": {**RUN_ALONE[what["algorithm"]], **given}}
    command = [sys.executable, "-m", "benchmarks.peers.untuned_run", json.dumps(work)]
    return {**what, **record_of(command), "machine": machine()}


def make_missing(options: argparse.Namespace, path: Path) -> None:
    """Make the runs that have no record, and append theirs."""
    records, made = read_records(path), 0
    for what in jobs(options):
        if made == options.runs:
            return
        if find_run(what, records) is None:
            record, made = make(what, options.set), made + 1
            append_record(path, record)
            print(
                f"{what['side']}, {what['algorithm']}, {what['env']}, seed {what['seed']}: {score(record):.2f}",
                flush=True,
            )


# --- the table ------------------------------------------------------------------------------------------------


def table(algorithm: str, options: argparse.Namespace, records: list[Record]) -> str:
    """Return the table of an algorithm: a row for each env, and the totals of the runs that both sides have."""
    rows: list[list[str]] = []
    totals: dict[str, list[tuple[float, Record]]] = {side: [] for side in SIDES}
    for untuned in (one for one in UNTUNED if algorithm in one.steps):
        runs = {side: runs_of(side, algorithm, untuned, options, records) for side in SIDES}
        scores = {side: [score(run) for run in runs[side].values()] for side in SIDES}
        both = runs[SIDES[0]].keys() & runs[SIDES[1]].keys()
        for side in SIDES:
            totals[side] += [(untuned.normalized(score(runs[side][seed])), runs[side][seed]) for seed in sorted(both)]
        rows.append(
            [
                untuned.env.removeprefix("untuned/"),
                f"{untuned.steps[algorithm]:,}",
                " / ".join(str(len(scores[side])) for side in SIDES),
                *(_return(scores[side]) for side in SIDES),
                *(_mean([untuned.normalized(score) for score in scores[side]], 2) for side in SIDES),
                *(_costs(list(runs[side].values()), median) for side in SIDES),
            ]
        )
    rows.append(_total("interquartile mean", totals))
    later = {side: [(one, run) for one, run in totals[side] if run["seed"] in LATER] for side in SIDES}
    rows.append(_total(f"seeds {LATER[0]} to {LATER[-1]}", later))
    header = ["env", "env steps", f"runs of {SEEDS}", *(f"return, {NAMES[side]}" for side in SIDES)]
    header += [*(f"score, {NAMES[side]}" for side in SIDES), *(f"s / CPU s, {NAMES[side]}" for side in SIDES)]
    return markdown_table(header, rows)


def _total(name: str, runs: dict[str, list[tuple[float, Record]]]) -> list[str]:
    """Return the row of all envs: `runs` has the normalised scores of each side, with their runs."""
    means = [f"**{_mean([normalized for normalized, _ in runs[side]], 2)}**" for side in SIDES]
    costs = [_costs([run for _, run in runs[side]], sum) for side in SIDES]
    counts = " / ".join(str(len(runs[side])) for side in SIDES)
    return [f"**{name}**", "", counts, "", "", *means, *costs]


def runs_of(
    side: str, algorithm: str, untuned: Untuned, options: argparse.Namespace, records: list[Record]
) -> dict[int, Record]:
    """Return seed -> the record of a side on an env, for the seeds that have one."""
    runs = {seed: find_run(job(side, algorithm, untuned, seed, options.set), records) for seed in range(1, SEEDS + 1)}
    return {seed: run for seed, run in runs.items() if run is not None}


def score(run: Record) -> float:
    """Return the mean return of a run's evaluation."""
    return float(np.mean(run["returns"]))


def _costs(runs: list[Record], total: Callable[[list[float]], float]) -> str:
    return " / ".join(f"{total([run[key] for run in runs]):,.0f}" for key in ("seconds", "cpu_s")) if runs else "-"


def _return(scores: list[float]) -> str:
    if not scores:
        return "-"
    digits = 2 if max(map(abs, scores)) < 10 else 0
    return f"{_mean(scores, digits)} ({min(scores):,.{digits}f} to {max(scores):,.{digits}f})"


def _mean(scores: list[float], digits: int) -> str:
    return f"{float(iqm(scores)):,.{digits}f}" if scores else "-"


METHOD = f"""\
Both sides with their default settings, the same for all envs: no preset, no wrapper. Greedy evaluation of the last
weights over {EPISODES} episodes with equal seeds. A return is the interquartile mean over the seeds, with the least and
the most. A score is normalised: 0 is the random policy, 1 the env's reward threshold or, where it has none, about the
best return (`benchmarks/untuned.py`). The last rows have the runs that both sides have: the interquartile mean of their
scores, and the sum of their seconds; seeds 3 to 5 are those with which no default was chosen. Seconds of training are
medians over the seeds, with one thread. The interquartile mean is without a quarter of the scores, rounded down, at
each end."""


def report(options: argparse.Namespace, records: list[Record]) -> list[str]:
    """Return the paragraphs of the page."""
    machines = sorted({describe(record["machine"]) for record in records})
    peers = sorted({f"{PEER} {record['version']}" for record in records if record["side"] == "sb3"})
    parts = ["# Default settings on ten envs", METHOD, *machines, ", ".join(peers)]
    for algorithm in ALGORITHMS:
        parts += [f"## {algorithm_title(algorithm)}", table(algorithm, options, records)]
    return parts


def main() -> None:
    """Make what is missing, and write the page."""
    parser = new_parser(__doc__)
    parser.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, default=ALGORITHMS)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--env", nargs="+", help="default: all")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="seeds 1 to this number")
    parser.add_argument("--runs", type=int, help="how many missing runs to make; default: all")
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings of offbeat, to try them out"
    )
    options = read_options(parser, "algorithms", "sides", "env", "seeds", "runs")
    options.set = parse_assignments(options.set)
    path = options.out / "defaults.jsonl"
    make_missing(options, path)
    print(write_page(options.out / "defaults.md", *report(options, read_records(path))))


if __name__ == "__main__":
    main()
