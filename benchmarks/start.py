"""Seconds from a command to its first result: the help, and the first learning step of a training run.

    python -m benchmarks.start

The commands are started by turns, in rounds; what is imported is in the disk's cache after the first round, which does
not count. Beside them stand what Python, NumPy and PyTorch need alone. It writes benchmarks/results/start.json and
start.md.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common import (
    OFFBEAT,
    by_turns,
    children_cpu_s,
    describe,
    finish,
    machine,
    markdown_table,
    publish,
    spread,
)
from benchmarks.lines import follow
from benchmarks.options import new_parser, read_options

DROPPED = 1
"""Rounds before the measurement."""
Seconds = tuple[float, float]
"""Wall-clock time and CPU time of all processes, in seconds."""


def whole(*command: str) -> Callable[[], Seconds]:
    """Return what measures a command from its start to its end."""

    def measure() -> Seconds:
        started_s, cpu_s = time.perf_counter(), children_cpu_s()
        finish(list(command))
        return time.perf_counter() - started_s, children_cpu_s() - cpu_s

    return measure


def first_step(algorithm: str, env: str, runtime: str, *flags: str) -> Callable[[], Seconds]:
    """Return what measures a training run from the command to the end of its first learning step with an update.

    The CPU time is that of the whole run, which is stopped then.
    """

    def measure() -> Seconds:
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            command = [
                OFFBEAT, "train", algorithm, env, "--preset", "none", "--runtime", runtime, "--seed", "1",
                "--progress", "none", "--eval-every", "0", "--steps", "100000", "--run-dir", str(run),
                "--set", "checkpoint_every=0", *flags,
            ]  # fmt: skip
            started_s, cpu_s = time.perf_counter(), children_cpu_s()
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
                lines = follow(run / "metrics.jsonl", child)
                seconds = next((time.perf_counter() - started_s for line in lines if line["updates"]), None)
                child.terminate()
            if seconds is None:
                raise SystemExit(f"{' '.join(command)}\nended before its first learning step")
            return seconds, children_cpu_s() - cpu_s

    return measure


SIDES: dict[str, Callable[[], Seconds]] = {
    "`python -c pass`": whole(sys.executable, "-c", "pass"),
    "`import numpy`": whole(sys.executable, "-c", "import numpy"),
    "`import torch`": whole(sys.executable, "-c", "import torch"),
    "`offbeat --help`": whole(OFFBEAT, "--help"),
    "`offbeat list presets`": whole(OFFBEAT, "list", "presets"),
    "PPO, CartPole-v1, `serial`": first_step("ppo", "CartPole-v1", "serial"),
    "PPO, CartPole-v1, `threads`": first_step("ppo", "CartPole-v1", "threads"),
    "PPO, CartPole-v1, `processes`": first_step("ppo", "CartPole-v1", "processes"),
    "PPO, CartPole-v1, `processes`, `--actors 1`": first_step("ppo", "CartPole-v1", "processes", "--actors", "1"),
    "PPO, HalfCheetah-v5, `processes`": first_step("ppo", "HalfCheetah-v5", "processes"),
}
"""The runs of PPO are measured to the end of the first learning step: 160 updates on 1,024 env steps."""


def main() -> None:
    """Measure, and write the results."""
    parser = new_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    options = read_options(parser)
    found: dict[str, list[Seconds]] = {name: [] for name in SIDES}
    for number, name in by_turns(SIDES, DROPPED + options.rounds):
        seconds = SIDES[name]()
        if number > DROPPED:
            found[name].append((round(seconds[0], 3), round(seconds[1], 3)))
            print(f"round {number - DROPPED}, {name}: {seconds[0]:.2f} s, {seconds[1]:.2f} CPU s", flush=True)
    record = {"machine": machine(), "seconds": found}
    publish(options.out, "start", record, *page(record))


def page(record: dict[str, Any]) -> list[str]:
    """Return the paragraphs of the page: medians over the rounds, with the least and the most."""
    found = record["seconds"]
    rows = [
        [name, *(spread([each[column] for each in seconds], ".2f") for column in (0, 1))]
        for name, seconds in found.items()
    ]
    rounds = len(next(iter(found.values())))
    table = markdown_table(["command", "seconds", "CPU s"], rows)
    about = f"Median of {rounds} rounds (least to most)."
    return ["# Seconds to the first result", about, describe(record["machine"]), table]


if __name__ == "__main__":
    main()
