"""Whole runs of two versions of the code, side by side: what a change to acting or learning wins or loses.

    python -m benchmarks.versions REVISION_A REVISION_B [--rounds 3] [--works cartpole halfcheetah]

Each round runs A B, the next B A, each a run of the command line in processes of its own. Measured are microseconds
per env step between the first quarter of a run and its end: on the clock, acting (acting and stepping envs, added up
over all actors) and learning. A ratio is A's time divided by B's, so that above 1 B is the faster one; shown are the
median (least to most) of the rounds. Both run the works of today, so an old version may refuse a setting.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common import by_turns, describe, finish, machine, markdown_table, spread
from benchmarks.options import new_parser
from benchmarks.works import NOTHING_ELSE, REPLAY_WORKS, WORKS, algorithm_of, command
from offbeat.metrics.sinks import read_metrics

ROOT = Path(__file__).parent.parent
MAIN = "from offbeat.cli.entry import main; main()"
STEPS = {"cartpole": 60_000, "halfcheetah": 60_000, "pong": 6_144, "halfcheetah-sac": 2_500}
"""Env steps of a run: some ten seconds on a slow machine."""
SIDES = ("serial", "processes")
PARTS = {"wall": (), "acting": ("time_act", "time_env"), "learning": ("time_learn",)}
"""What is measured, and the metrics that add up to it; the clock needs none."""


def exported(revision: str, folder: Path) -> Path:
    """Put package and tests as they were at a revision into a folder, and return where the package can be imported."""
    archive = subprocess.run(
        ["git", "archive", revision, "src", "tests"], cwd=ROOT, check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return folder / "src"


def microseconds(source: Path, work: str, side: str) -> dict[str, float]:
    """Run a work once and return the microseconds per env step of each of its parts."""
    settings = {**(WORKS | REPLAY_WORKS)[work], "steps": STEPS[work], "seed": 1}
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        extra = [*NOTHING_ELSE[algorithm_of(settings)], "--eval-every", "0", "--run-dir", str(run)]
        arguments = [*command(settings, side), *extra]
        finish([sys.executable, "-c", MAIN, *arguments], {**os.environ, "PYTHONPATH": str(source)})
        return measured(read_metrics(run))


def measured(lines: list[dict[str, Any]]) -> dict[str, float]:
    """Return the microseconds per env step that the lines of a run tell of, without its first quarter."""
    counted = [line for line in lines if line["env_steps"] >= lines[-1]["env_steps"] / 4]
    env_steps = counted[-1]["env_steps"] - counted[0]["env_steps"]
    seconds = dict.fromkeys(PARTS, 0.0)
    for before, line in pairwise(counted):
        elapsed = line["wall_time_s"] - before["wall_time_s"]
        for part, keys in PARTS.items():
            seconds[part] += elapsed * (sum(line[key] for key in keys) if keys else 1.0)
    return {part: 1e6 * total / env_steps for part, total in seconds.items()}


def row(work: str, side: str, part: str, versions: tuple[list[float], list[float]]) -> list[str]:
    """Return a row of the table."""
    ratios = [a / b for a, b in zip(*versions, strict=True)]
    return [f"{work}, {side}, {part}", *(spread(times, ".1f") for times in versions), spread(ratios, ".3f")]


def main() -> None:
    """Compare two revisions on all works, and print a table."""
    parser = new_parser(__doc__)
    parser.add_argument("revisions", nargs=2, metavar="REVISION")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--works", nargs="+", choices=STEPS, default=list(STEPS))
    options = parser.parse_args()
    names = [finish(["git", "-C", str(ROOT), "rev-parse", "--short", name]).strip() for name in options.revisions]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        sources = [exported(revision, Path(folder) / str(i)) for i, revision in enumerate(names)]
        for work, side in [(work, side) for work in options.works for side in SIDES]:
            rounds: tuple[list[dict[str, float]], ...] = ([], [])
            for _, version in by_turns((0, 1), options.rounds):
                rounds[version].append(microseconds(sources[version], work, side))
            for part in PARTS:
                a, b = ([times[part] for times in version] for version in rounds)
                rows.append(row(work, side, part, (a, b)))
                print(f"{work}, {side}, {part}: {median(a):.1f} us, {median(b):.1f} us", flush=True)
    header = ["work", *(f"{letter}: {name}" for letter, name in zip("AB", names, strict=True)), "A / B"]
    print(f"{describe(machine())}.", markdown_table(header, rows), sep="\n\n", end="")


if __name__ == "__main__":
    main()
