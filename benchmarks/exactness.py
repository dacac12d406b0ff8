"""The matrix of algorithms and features: the same bits in every runtime, whatever happens.

    python -m benchmarks.exactness                                                  all of it
    python -m benchmarks.exactness --algorithms ppo --features image --checks run_killed --out /tmp/trial

Which algorithm is trained on what is in tests/support/matrix.py, and what must hold in tests/support/checks.py.

With `lag = "exact"` and an equal layout, serial, threads and processes must give the same weights and the same
learning metrics, bit for bit. In each cell, every runtime trains once from start to end, and once to the half; each
half is then gone on from in every runtime. All ends must be equal to serial's. Then, in each cell, an actor is killed,
the whole run is killed, it is interrupted, and an env raises.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from tests.support.checks import CHECKS, figures_of
from tests.support.matrix import ALGORITHMS, FEATURES, Case, cases
from tests.support.runs import weights_of

import offbeat
from benchmarks.common import describe, machine, markdown_table
from benchmarks.options import new_parser, read_options
from benchmarks.records import Record, Unfinished
from offbeat.core.errors import OffbeatError

RUNTIMES = ("serial", "threads", "processes")
WIDELY = ("vector", "box")
"""Features that are trained at every layout: their actors start at once, as they need no torch."""
LAYOUTS = tuple(product((0, 1, 3), (1, 2, 3)))
"""max_lag and actors."""
REPLAY_LAYOUTS = ((0, 1), (1, 1), (2, 2), (6, 3))
"""max_ahead and actors of an algorithm that learns from a replay."""
OTHERS = ((1, 2), (3, 1))
"""Layouts of all other features."""
FAILURES = (AssertionError, OffbeatError, OSError, LookupError, ValueError, pytest.fail.Exception)
"""What a run or a check raises if something is wrong with it."""
MISHAPS = [name for name in CHECKS if name != "same_bits"]


def grid(case: Case) -> list[Case]:
    """Return a cell of the matrix at each of its layouts."""
    widely = REPLAY_LAYOUTS if case.replayed else LAYOUTS
    return [
        case._replace(ahead=ahead, actors=actors) for ahead, actors in (widely if case.feature in WIDELY else OTHERS)
    ]


@dataclass(frozen=True)
class Outcome:
    """What must be equal."""

    weights: str
    """SHA-256 of the files of weights."""
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
    return Outcome(hashlib.sha256(weights_of(run)).hexdigest(), figures_of(run))


# --- one cell -----------------------------------------------------------------------------------------------


def compare(case: Case, runtimes: tuple[str, ...], folder: Path) -> dict[str, Any]:
    """Run one cell in all runtimes, stop it and go on, and return what was found."""
    started_s = time.perf_counter()
    found: Record = {"weights": "", "learning_steps": 0, "runs": len(runtimes) * (2 + len(runtimes)), "differences": {}}
    try:
        straight = {runtime: train(case, runtime, folder / runtime) for runtime in runtimes}
        reference = straight[runtimes[0]]
        found |= {"weights": reference.weights, "learning_steps": max(reference.metrics)}
        found["differences"] = _told(reference, straight.items())
        for stopped in runtimes:
            half = folder / f"{stopped}-half"
            train(case, stopped, half, stop_at=case.steps // 2)
            ends = ((f"{stopped} -> {runtime}", go_on(half, runtime)) for runtime in runtimes)
            found["differences"] |= _told(reference, ends)
    except FAILURES as error:
        found["differences"]["raised"] = f"{type(error).__name__}: {error}"
    return {**case._asdict(), **found, "seconds": round(time.perf_counter() - started_s, 1)}


def _told(reference: Outcome, outcomes: Iterable[tuple[str, Outcome]]) -> dict[str, str]:
    found = {name: reference.difference(outcome) for name, outcome in outcomes}
    return {name: difference for name, difference in found.items() if difference}


def train(case: Case, runtime: str, run: Path, stop_at: int | None = None) -> Outcome:
    """Train one run of a cell in one runtime."""
    case.train(run, runtime=runtime, stop_at=stop_at, eval_every=case.steps // 3, eval_episodes=2)
    return outcome(run)


def go_on(half: Path, runtime: str) -> Outcome:
    """Resume a copy of a stopped run in a runtime."""
    copy = half.with_name(f"{half.name}-{runtime}")
    shutil.copytree(half, copy, symlinks=True)
    offbeat.resume(copy, runtime=runtime)
    return outcome(copy)


def suffer(case: Case, mishap: str, folder: Path) -> dict[str, Any]:
    """Let one mishap happen to one cell, and return what was found."""
    started_s = time.perf_counter()
    failure = None
    try:
        CHECKS[mishap](case, folder)
    except FAILURES as error:
        failure = f"{type(error).__name__}: {error}"
    seconds = round(time.perf_counter() - started_s, 1)
    return {**case._asdict(), "mishap": mishap, "seconds": seconds, "failure": failure}


# --- results ------------------------------------------------------------------------------------------------


def page(record: Record) -> list[str]:
    """Return the paragraphs of the page."""
    parts = [*_of_cells(record["cells"]), *_of_mishaps(record["mishaps"])]
    return ["# Exactness", f"{describe(record['machine'])}.", *parts]


def _place(found: dict[str, Any]) -> tuple[object, ...]:
    """Return where it stands: by algorithm, feature and layout, in their own order."""
    place = (list(ALGORITHMS).index(found["algorithm"]), list(FEATURES).index(found["feature"]))
    return (*place, found["ahead"], found["actors"], found.get("mishap", ""))


def _of_cells(cells: list[dict[str, Any]]) -> list[str]:
    if not cells:
        return []
    equal = sum(not cell["differences"] for cell in cells)
    summary = (
        f"{equal} of {len(cells)} cells are equal bit for bit: {sum(cell['runs'] for cell in cells)} runs, `--lag "
        "exact`. Compared are the SHA-256 of the weights of all policies, and the learning metrics of each learning "
        "step that both runs have a line of, of runs from start to end in each runtime, and of runs stopped at the "
        "half in each and gone on from in each."
    )
    header = ["algorithm", "feature", "max_lag, max_ahead", "actors", "learning steps", "weights", "differences"]
    return ["## The same bits", summary, markdown_table(header, [_row(cell) for cell in cells])]


def _row(cell: dict[str, Any]) -> list[str]:
    names = ("algorithm", "feature", "ahead", "actors", "learning_steps")
    told = "; ".join(f"{name}: {difference}" for name, difference in cell["differences"].items())
    return [*(str(cell[name]) for name in names), cell["weights"][:12], told or "none"]


def _of_mishaps(mishaps: list[dict[str, Any]]) -> list[str]:
    if not mishaps:
        return []
    failed = [found for found in mishaps if found["failure"]]
    summary = (
        f"{len(mishaps) - len(failed)} of {len(mishaps)} checks hold. `actor_killed`, `run_killed`: kill -9; "
        "`interrupted`: SIGINT; `env_raises`: an env does, once. Every row that was learned from told whether it was "
        "whole, and what was killed or interrupted as a whole went on in another runtime, to the same bits."
    )
    rows = [
        [algorithm, *(_cell(mishaps, algorithm, feature) for feature in FEATURES)]
        for algorithm in ALGORITHMS
        if any(found["algorithm"] == algorithm for found in mishaps)
    ]
    told = [f"- {_named(found)}: {found['failure']}" for found in failed]
    return ["## Mishaps", summary, markdown_table(["algorithm", *FEATURES], rows), *(["\n".join(told)] if told else [])]


def _cell(mishaps: list[dict[str, Any]], algorithm: str, feature: str) -> str:
    """Return how many of a cell's mishaps left everything as it should be."""
    found = [each["failure"] for each in mishaps if (each["algorithm"], each["feature"]) == (algorithm, feature)]
    return f"{found.count(None)} of {len(found)}" if found else "-"


def _named(found: dict[str, Any]) -> str:
    return f"{found['algorithm']} {found['feature']} {found['mishap']}"


def main() -> int:
    """Run the matrix, write the results; 1 if any cell differs or any check fails."""
    parser = new_parser(__doc__)
    parser.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, default=ALGORITHMS)
    parser.add_argument("--features", nargs="+", choices=FEATURES, default=tuple(FEATURES))
    parser.add_argument("--checks", nargs="+", choices=CHECKS, default=tuple(CHECKS))
    parser.add_argument("--runtimes", nargs="+", choices=RUNTIMES, default=RUNTIMES, help="the first is the reference")
    parser.add_argument("--jobs", type=int, default=2, help="cells at a time")
    options = read_options(parser, "jobs")
    chosen = [case for case in cases() if case.algorithm in options.algorithms and case.feature in options.features]
    if not chosen:
        parser.error("none of these algorithms is trained on one of these features")
    work: list[tuple[Case, str | None]] = [
        (case, mishap) for case in chosen for mishap in MISHAPS if mishap in options.checks
    ]
    if "same_bits" in options.checks:
        layouts = sorted((layout for case in chosen for layout in grid(case)), key=lambda case: case.feature in WIDELY)
        work += [(layout, None) for layout in layouts]
    unfinished = Unfinished(options.out, "exactness", runtimes=options.runtimes, work=work)
    found = [one for case, mishap in work if (one := unfinished.find({**case._asdict(), "mishap": mishap}))]
    done = {(each["algorithm"], each["feature"], each["ahead"], each["actors"], each.get("mishap")) for each in found}
    left = [(case, mishap) for case, mishap in work if (*case, mishap) not in done]
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        try:
            for task in as_completed([pool.submit(in_a_folder, *each, tuple(options.runtimes)) for each in left]):
                found.append(unfinished.add(task.result()))
                print(f"{len(found)}/{len(work)} {_said(found[-1])}", flush=True)
        finally:
            pool.shutdown(cancel_futures=True)
    found.sort(key=_place)
    cells, mishaps = ([each for each in found if kind in each] for kind in ("differences", "failure"))
    record = {"machine": machine(), "cells": cells, "mishaps": mishaps}
    unfinished.publish(record, *page(record))
    return int(any(each.get("differences") or each.get("failure") for each in found))


def in_a_folder(case: Case, mishap: str | None, runtimes: tuple[str, ...]) -> Record:
    """Let a mishap happen to a cell; without one, compare the runtimes."""
    with tempfile.TemporaryDirectory() as folder:
        return suffer(case, mishap, Path(folder)) if mishap else compare(case, runtimes, Path(folder))


def _said(found: dict[str, Any]) -> str:
    told = json.dumps(found.get("differences") or found.get("failure") or "as it should be")
    layout = f"{found['ahead']} ahead, actors {found['actors']}"
    what = found.get("mishap", layout)
    return f"{found['algorithm']} {found['feature']} {what}: {told} ({found['seconds']} s)"


if __name__ == "__main__":
    sys.exit(main())
