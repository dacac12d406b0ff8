"""A learning step of two versions of the code, side by side: what a change to the learner wins.

    python -m benchmarks.versions REVISION_A REVISION_B [--rounds 5]

Each round runs A B, the next B A, each in a process of its own on one thread; a figure is the CPU time of a learning
step from the same batch, the median of a process's steps, and the median (least to most) of the rounds.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.common import RESULTS, describe, finish, machine, markdown_table, spread, write_json
from benchmarks.works import WORKS

ROOT = Path(__file__).parent.parent
PROBE = """
import json, sys
from statistics import median
from time import process_time
from offbeat.config import resolve
from offbeat.runtime.serial import SerialActing
from offbeat.runtime.wiring import build
from offbeat.threads import limit

settings = json.loads(sys.argv[1])
limit(1)
parts = build(resolve("ppo", settings.pop("env"), flags=settings))
acting = SerialActing(parts.plan, parts.arrays, 0)
parts.learner.publish(0)
acting.begin([None])
acting.wait(1)
costs = []
for _ in range(300):
    begun = process_time()
    parts.learner.learn(0, 0.0)
    costs.append(process_time() - begun)
print(1e3 * median(costs[30:]))
"""


def exported(revision: str, folder: Path) -> Path:
    """Put the package as it was at a revision into a folder, and return where it can be imported from."""
    archive = subprocess.run(["git", "archive", revision, "src"], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return folder / "src"


def step_ms(source: Path, work: str) -> float:
    """Return the CPU milliseconds of a learning step."""
    left_out = ("steps", "envs")
    settings = {key: value for key, value in WORKS[work].items() if key not in left_out}
    flags = {**settings, "envs_per_actor": WORKS[work]["envs"], "max_lag": 1, "runtime": "serial"}
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    return float(finish([sys.executable, "-c", PROBE, json.dumps(flags)], environment))


def main() -> None:
    """Compare two revisions on all works, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revisions", nargs=2, metavar="REVISION")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sources = [exported(revision, Path(folder) / str(i)) for i, revision in enumerate(options.revisions)]
        costs: dict[str, list[list[float]]] = {work: [[], []] for work in WORKS}
        for work in WORKS:
            for turn in range(options.rounds):
                for side in (0, 1) if turn % 2 == 0 else (1, 0):
                    costs[work][side].append(step_ms(sources[side], work))
            print(work, *(f"{median(side):.3f} ms" for side in costs[work]), flush=True)
    about = machine()
    write_json(options.out / "versions.json", {"machine": about, "revisions": options.revisions, "ms": costs})
    rows = [
        [work, *(spread(side, ".2f") for side in sides), spread([b / a for a, b in zip(*sides, strict=True)], ".2f")]
        for work, sides in costs.items()
    ]
    header = ["work", *(f"{revision}, ms" for revision in options.revisions), "ratio"]
    method = "CPU milliseconds of a learning step: median (least to most) of the rounds."
    text = "\n\n".join(["# Two versions", method, f"{describe(about)}.", markdown_table(header, rows)])
    (options.out / "versions.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
