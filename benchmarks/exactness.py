"""The same bits in every runtime: the full grid of algorithms, lags, actors and envs, with stops and resumes.

    python -m benchmarks.exactness                                              the full grid
    python -m benchmarks.exactness --algorithms ppo --max-lags 1 --actors 2     some cells of it

With `lag = "exact"` and an equal layout, serial, threads and processes must give the same weights and the same
learning metrics, bit for bit. In each cell, every runtime trains once from start to end, and once to the half; each
half is then gone on from in every runtime. All ends must be equal to serial's.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import offbeat
from benchmarks.common import RESULTS, describe, machine, markdown_table, read_metrics, write_json

RUNTIMES = ("serial", "threads", "processes")
ENVS = ("CartPole-v1", "Pendulum-v1")
LEARNING_STEPS = 24
ENVS_PER_ACTOR, UNROLL_LENGTH = 4, 16
OF_ALGORITHM: dict[str, dict[str, Any]] = {
    "ppo": {"minibatch_size": 32, "epochs": 2},
    "sac": {"chunk_length": 4, "batch_size": 32, "warmup": 64, "utd_ratio": "1/4", "capacity": 1_000},
}
"""Settings that only one algorithm has. PPO makes several updates in a learning step, SAC's replay goes round."""
REPLAY_LAYOUTS = ((0, 1), (1, 1), (2, 2), (6, 3))
"""max_ahead and actors of an algorithm that learns from a replay."""

TIMING = re.compile(
    r"wall_time_s|sps|ups|time_\w+|\w*wait\w*|\w+_s|slots_filled\w*|env_stall\w*|publish\w*|acted_beyond|\w*_share"
)
"""Metrics that time decides; all others follow from the config alone."""


@dataclass(frozen=True)
class Cell:
    """One point of the grid."""

    algorithm: str
    env: str
    ahead: int
    """max_lag; on a replay max_ahead."""
    actors: int

    @property
    def steps(self) -> int:
        """Env steps of a run: on-policy, as many as make `LEARNING_STEPS` or a few more; on a replay as many too."""
        return self.actors * ENVS_PER_ACTOR * UNROLL_LENGTH * LEARNING_STEPS

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "seed": 1,
            "actors": self.actors,
            "envs_per_actor": ENVS_PER_ACTOR,
            **self._lead,
            "lag": "exact",
            "hidden_sizes": (32, 32),
            "normalize_observations": self.env == "Pendulum-v1",
            "eval_every": self.steps // 3,
            "eval_episodes": 2,
            **OF_ALGORITHM.get(self.algorithm, {}),
        }

    @property
    def _lead(self) -> dict[str, int]:
        if self.algorithm == "sac":
            return {"max_ahead": self.ahead}
        return {"unroll_length": UNROLL_LENGTH, "max_lag": self.ahead}

    def __str__(self) -> str:
        return f"{self.algorithm} {self.env} {self.ahead} ahead, actors {self.actors}"


@dataclass(frozen=True)
class Outcome:
    """What must be equal."""

    weights: str
    """SHA-256 of weights.safetensors."""
    metrics: dict[int, dict[str, Any]]
    """Learning step -> the line of metrics.jsonl, without what time decides."""

    def difference(self, other: Outcome) -> str | None:
        """Return in words where the other differs, None if it does not.

        Only learning steps that both have a line of are compared: a stop has a line of its own.
        """
        for step in sorted(self.metrics.keys() & other.metrics.keys()):
            here, there = self.metrics[step], other.metrics[step]
            names = [name for name in here.keys() | there.keys() if here.get(name) != there.get(name)]
            if names:
                return f"from learning step {step} on: {', '.join(sorted(names))}"
        if len(self.metrics.keys() & other.metrics.keys()) < len(self.metrics.keys()) // 2:
            return "half of the metrics lines are of other learning steps"
        return None if self.weights == other.weights else "weights"


def outcome(run: Path) -> Outcome:
    """Read what must be equal from a run directory."""
    weights = (run / "checkpoints" / "latest" / "weights.safetensors").read_bytes()
    lines = {
        line["learning_step"]: {key: value for key, value in line.items() if not TIMING.fullmatch(key)}
        for line in read_metrics(run)
    }
    return Outcome(hashlib.sha256(weights).hexdigest(), lines)


# --- one cell -----------------------------------------------------------------------------------------------


def check(cell: Cell, runtimes: tuple[str, ...], folder: Path) -> dict[str, Any]:
    """Run one cell and return what was found."""
    started_s = time.perf_counter()
    straight = {runtime: train(cell, runtime, folder / runtime) for runtime in runtimes}
    reference = straight[runtimes[0]]
    differences = _told(reference, straight.items())
    for stopped in runtimes:
        half = folder / f"{stopped}-half"
        train(cell, stopped, half, stop_at=cell.steps // 2)
        ends = ((f"{stopped} -> {runtime}", go_on(half, runtime)) for runtime in runtimes)
        differences |= _told(reference, ends)
    return {
        **asdict(cell),
        "weights": reference.weights,
        "learning_steps": max(reference.metrics),
        "runs": len(runtimes) * (2 + len(runtimes)),
        "seconds": round(time.perf_counter() - started_s, 1),
        "differences": differences,
    }


def _told(reference: Outcome, outcomes: Iterable[tuple[str, Outcome]]) -> dict[str, str]:
    found = {name: reference.difference(outcome) for name, outcome in outcomes}
    return {name: difference for name, difference in found.items() if difference}


def train(cell: Cell, runtime: str, run: Path, stop_at: int | None = None) -> Outcome:
    """Train one run of a cell in one runtime."""
    offbeat.train(cell.algorithm, cell.env, run_dir=run, runtime=runtime, stop_at=stop_at, **cell.settings)
    return outcome(run)


def go_on(half: Path, runtime: str) -> Outcome:
    """Resume a copy of a stopped run in a runtime."""
    copy = half.with_name(f"{half.name}-{runtime}")
    shutil.copytree(half, copy, symlinks=True)
    offbeat.resume(copy, runtime=runtime)
    return outcome(copy)


# --- results ------------------------------------------------------------------------------------------------


def write_results(cells: list[dict[str, Any]], runtimes: tuple[str, ...], out: Path) -> str:
    """Write the raw record and a table, and return the table."""
    about = machine()
    settings = {"envs_per_actor": ENVS_PER_ACTOR, "unroll_length": UNROLL_LENGTH, "runtimes": runtimes}
    write_json(out / "exactness.json", {"machine": about, **settings, "cells": cells})
    equal = sum(not cell["differences"] for cell in cells)
    summary = (
        f"{equal} of {len(cells)} cells are equal bit for bit: {sum(cell['runs'] for cell in cells)} runs in "
        f"{', '.join(runtimes)}, `--lag exact`, {ENVS_PER_ACTOR} envs an actor, unrolls of {UNROLL_LENGTH}. Compared "
        "are the SHA-256 of weights.safetensors and every line of learning metrics, of runs from start to end, and of "
        "runs stopped at the half and gone on from in every runtime. Pendulum-v1 has normalised observations."
    )
    header = ["algorithm", "env", "max_lag, max_ahead", "actors", "learning steps", "weights", "differences"]
    text = "\n\n".join(
        ["# Exactness", summary, f"{describe(about)}.", markdown_table(header, [_row(cell) for cell in cells])]
    )
    (out / "exactness.md").write_text(text)
    return text


def _row(cell: dict[str, Any]) -> list[str]:
    names = ("algorithm", "env", "ahead", "actors", "learning_steps")
    told = "; ".join(f"{name}: {difference}" for name, difference in cell["differences"].items())
    return [*(str(cell[name]) for name in names), cell["weights"][:12], told or "none"]


def main() -> int:
    """Run the grid, write the results; 1 if any cell differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", nargs="+", default=["ppo", "impala", "a2c", "sac"])
    parser.add_argument("--envs", nargs="+", default=ENVS)
    parser.add_argument("--max-lags", nargs="+", type=int, default=[0, 1, 3])
    parser.add_argument("--actors", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--runtimes", nargs="+", choices=RUNTIMES, default=RUNTIMES, help="the first is the reference")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    options = parser.parse_args()
    layouts = list(product(options.max_lags, options.actors))
    grid = [
        Cell(algorithm, env, *layout)
        for algorithm, env in product(options.algorithms, options.envs)
        for layout in (REPLAY_LAYOUTS if algorithm == "sac" else layouts)
    ]
    cells = []
    for number, cell in enumerate(grid, 1):
        with tempfile.TemporaryDirectory() as folder:
            cells.append(check(cell, tuple(options.runtimes), Path(folder)))
        told = json.dumps(cells[-1]["differences"]) if cells[-1]["differences"] else "equal"
        print(f"{number}/{len(grid)} {cell}: {told} ({cells[-1]['seconds']} s)", flush=True)
    print(write_results(cells, tuple(options.runtimes), options.out))
    return int(any(cell["differences"] for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
