"""What makes SAC better: variants of it on HalfCheetah-v5, by env steps and CPU seconds to scores.

    python -m benchmarks.replay_variants --sbx ~/sbx/bin/python                all that is missing: many hours
    python -m benchmarks.replay_variants SAC layer_norm --seeds 1              a part of it
    python -m benchmarks.replay_variants --only-page                           the table from the results that are there

One run at a time, each in a process of its own, on one thread: a whole seed, then the next one. A run is appended to
benchmarks/results/replay-variants.jsonl at its end, so an interrupted command continues. SBX runs with the Python of
the environment that has it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.common import RESULTS, machine, record_of
from benchmarks.missing_runs import Job, make_missing, require_python
from benchmarks.options import new_parser
from benchmarks.records import Record, read_parts, read_records
from benchmarks.replay_variants.page import page
from benchmarks.replay_variants.sides import (
    COMMON,
    CPU_S,
    ENV,
    EVAL_EPISODES,
    EVAL_EVERY,
    OFFBEAT,
    SBX,
    SCORES,
    SIDES,
    STEPS,
    Side,
)

PATH = RESULTS / "replay-variants.jsonl"
SEEDS = (1, 2)
PEER = Path(__file__).parents[1] / "peers/sbx_variants.py"


def make(side: Side, seed: int, sbx: Path) -> Record:
    """Make a run in a process of its own, and return what was measured."""
    settings = {key: value for key, value in COMMON.items() if key not in side.without}
    arguments = {
        "env": ENV, "seed": seed, "steps": STEPS, "cpu_s": CPU_S, "goal": SCORES[-1], "eval_every": EVAL_EVERY,
        "eval_episodes": EVAL_EPISODES, "algorithm": side.algorithm, "settings": {**settings, **side.changes},
    }  # fmt: skip
    is_ours = side.library == OFFBEAT
    command = [sys.executable, "-m", "benchmarks.replay_variants.run"] if is_ours else [str(sbx), str(PEER)]
    return {**record_of([*command, json.dumps(arguments)]), "machine": machine()}


def jobs(sides: list[Side], seeds: list[int], sbx: Path) -> Iterator[Job]:
    """Yield the runs: a whole seed, then the next one."""
    for seed in seeds:
        for side in sides:
            yield {"side": side.name, "seed": seed, "steps": STEPS, "cpu_s": CPU_S}, partial(make, side, seed, sbx)


def said(record: Record) -> str:
    """Return a run in one line."""
    return f"{record['side']}, seed {record['seed']}: {record['curve'][-1]}"


def main() -> None:
    """Make what is missing, and write the table."""
    parser = new_parser(__doc__)
    parser.add_argument("--sbx", type=Path, default=Path(".venv-sbx/bin/python"), help="Python with sbx-rl")
    options, sides = read_parts(parser, SIDES, SEEDS)
    sbx = options.sbx.expanduser()
    if any(side.library == SBX for side in sides):
        require_python(parser, sbx)
    make_missing(PATH, jobs(sides, options.seeds, sbx), said)
    (RESULTS / "replay-variants.md").write_text(page(read_records(PATH)))


if __name__ == "__main__":
    main()
