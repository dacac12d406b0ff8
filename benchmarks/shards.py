"""Several learner processes on a CPU: what an exchange costs, and how long runs take with one learner and with two.

    python -m benchmarks.shards [--rounds 3] [--only exchange sac ppo] [--out DIR]

An exchange is measured with two processes and as many numbers as small networks have gradients: over shared memory, and
with Gloo. Runs are measured from their first metrics line to the last, so starts do not count. CPU time is that of all
processes of a run. Sides take turns, forward and back.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, NamedTuple

import torch

from benchmarks.common import by_turns, cpu_s_of, describe, finish, machine, markdown_table, spread
from benchmarks.options import new_parser, read_options
from benchmarks.records import Unfinished

Times = dict[str, list[float]]
EXCHANGES, DROPPED = 2000, 200
"""Exchanges that are measured, and those before them that warm up."""
SIZES = (9_000, 70_000)
"""Numbers in a row: about the gradients of PPO's networks for HalfCheetah-v5, and of SAC's policy there."""
SIDES: dict[str, dict[str, object]] = {
    "one learner": {"learner_threads": 1},
    "one learner, 2 threads": {"learner_threads": 2},
    "one learner, 2 shards": {"learner_threads": 1, "shards": 2},
    "two learners, 2 shards": {"learner_threads": 1, "shards": 2, "devices": ("cpu", "cpu")},
}
"""Name -> settings."""


class Work(NamedTuple):
    """A training that is measured."""

    algorithm: str
    env: str
    title: str
    settings: Mapping[str, object]


WORKS = {
    "sac": Work(
        "sac", "HalfCheetah-v5", "SAC on HalfCheetah-v5, 256-256, batch 256",
        {"steps": 3000, "warmup": 1000, "envs_per_actor": 1, "log_every": 500},
    ),
    "ppo": Work(
        "ppo", "PongNoFrameskip-v4", "PPO on Pong, Nature CNN, minibatch 256",
        {"steps": 4096, "envs_per_actor": 8, "unroll_length": 128, "minibatch_size": 256, "epochs": 2,
         "log_every": 1024},
    ),
}  # fmt: skip


PARTS = ("exchange", *WORKS)


# --- an exchange --------------------------------------------------------------------------------------------


def exchange(backend: str, size: int) -> dict[str, float]:
    """Exchange rows between this process and a fork of it; return microseconds of wall and CPU time per exchange."""
    from offbeat.memory.arena import SharedArena
    from offbeat.metrics.timings import Timings
    from offbeat.runtime.board import Bell
    from offbeat.runtime.learners.board import LearnersBoard, learners_board_slabs
    from offbeat.runtime.learners.distributed import DistributedCollective, host_store, join_store
    from offbeat.runtime.learners.shared_memory import SharedMemoryCollective

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    arena, bells = SharedArena(learners_board_slabs(2)), [Bell.make() for _ in range(2)]
    store = host_store(2) if backend == "gloo" else None
    rank = int(os.fork() == 0)
    board, timings = LearnersBoard(arena.arrays, 2), Timings()
    side: SharedMemoryCollective | DistributedCollective
    if store is None:
        side = SharedMemoryCollective(board, rank, 2, bells, _nothing, timings)
    else:
        own = join_store(store.port, 2) if rank else store
        side = DistributedCollective(board, rank, 2, "gloo", own, "cpu", _nothing, timings, timeout_s=60.0)
    rows = torch.full((1, size), float(rank))
    for _ in range(DROPPED):
        side.gather(rows)
    wall, cpu = perf_counter(), process_time()
    for _ in range(EXCHANGES):
        side.gather(rows)
    wall, cpu = perf_counter() - wall, process_time() - cpu
    if rank:
        os._exit(0)
    return {"wall": 1e6 * wall / EXCHANGES, "cpu": 1e6 * cpu / EXCHANGES}


def _nothing() -> None:
    """Check nothing while an exchange waits."""


# --- a run --------------------------------------------------------------------------------------------------


def run(work: Work, side: Mapping[str, object]) -> dict[str, float]:
    """Train; return milliseconds of wall and CPU time per update, and of exchanges per learning step."""
    import offbeat

    seen: list[dict[str, float]] = []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run"

        def note(line: Mapping[str, Any]) -> None:
            pids = [process["pid"] for process in json.loads((path / "status.json").read_text())["processes"]]
            seen.append({"updates": line["updates"], "wall": perf_counter(), "cpu": cpu_s_of(*pids)})

        settings: dict[str, Any] = {"eval_every": 0, "checkpoint_every": 0, "seed": 1, **work.settings, **side}
        last = offbeat.train(
            work.algorithm, work.env, run_dir=path, runtime="processes", actors=1, callbacks=[note], **settings
        ).metrics
    first, final = next(each for each in seen if each["updates"]), seen[-1]
    updates = final["updates"] - first["updates"]
    times = {name: 1000 * (final[name] - first[name]) / updates for name in ("wall", "cpu")}
    return {**times, "exchange": last["learner_exchange_time_ms"]}


# --- measuring ----------------------------------------------------------------------------------------------


def measure(part: str, sides: Mapping[str, list[str]], rounds: int, unfinished: Unfinished) -> dict[str, Times]:
    """Run each side of a part in a process of its own, by turns; `sides`: name -> arguments of this module."""
    results: dict[str, Times] = {name: {} for name in sides}
    for number, name in by_turns(sides, rounds):
        times = unfinished.run({"part": part, "side": name, "round": number}, partial(one, sides[name]))["times"]
        print(f"{name}: {times}", flush=True)
        for kind, value in times.items():
            results[name].setdefault(kind, []).append(round(value, 3))
    return results


def one(arguments: list[str]) -> dict[str, Any]:
    """Measure once in a process of its own."""
    return {"times": json.loads(finish([sys.executable, "-m", "benchmarks.shards", *arguments]).splitlines()[-1])}


def table_of_exchanges(results: Mapping[str, Mapping[str, list[float]]]) -> str:
    """Return the costs of an exchange as Markdown."""
    rows = [[name, spread(times["wall"], ",.0f"), spread(times["cpu"], ",.0f")] for name, times in results.items()]
    return markdown_table(["exchange of two processes", "wall us", "CPU us of one process"], rows)


def table_of_runs(results: Mapping[str, Mapping[str, list[float]]]) -> str:
    """Return the costs of an update as Markdown, and how many times as fast as the first side it is."""
    first = median(next(iter(results.values()))["wall"])
    rows = [
        [
            name,
            spread(times["wall"], ".2f"),
            spread(times["cpu"], ".2f"),
            f"{first / median(times['wall']):.2f}",
        ]
        for name, times in results.items()
    ]
    return markdown_table(["learner", "wall ms per update", "CPU ms per update", "times as fast"], rows)


def main() -> None:
    """Measure, and write the raw results and the tables."""
    parser = new_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="times that each side is measured")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="what to measure")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    arguments = read_options(parser, unless="one")
    if arguments.one:
        what, *rest = arguments.one
        times = exchange(rest[0], int(rest[1])) if what == "exchange" else run(WORKS[what], SIDES[rest[0]])
        print(json.dumps(times))
        return
    _measure_all(arguments)


def _measure_all(arguments: argparse.Namespace) -> None:
    exchanges = {
        f"{size:,} numbers, {'shared memory' if backend == 'memory' else 'Gloo'}": [
            *("--one", "exchange", backend, str(size))
        ]
        for size in SIZES
        for backend in ("memory", "gloo")
    }
    parts = {"exchange": exchanges, **{name: {side: ["--one", name, side] for side in SIDES} for name in WORKS}}
    unfinished = Unfinished(arguments.out, "shards", only=arguments.only, rounds=arguments.rounds)
    measured = {name: measure(name, parts[name], arguments.rounds, unfinished) for name in arguments.only}
    record = {"machine": machine(), **measured}
    unfinished.publish(record, *page(record))


def page(record: Mapping[str, Any]) -> list[str]:
    """Return the paragraphs of the page."""
    paragraphs = ["# Several learners on two cores", f"{describe(record['machine'])}."]
    if "exchange" in record:
        paragraphs.append(table_of_exchanges(record["exchange"]))
    for name, work in WORKS.items():
        if name in record:
            paragraphs += [f"## {work.title}", "One actor.", table_of_runs(record[name])]
    return paragraphs


if __name__ == "__main__":
    main()
