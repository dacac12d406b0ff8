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
from pathlib import Path

from benchmarks.common import RESULTS, machine, record_of
from benchmarks.options import new_parser
from benchmarks.records import Record, append_record, find_record, read_parts, read_records
from benchmarks.replay_variants.page import page
from benchmarks.replay_variants.sides import (
    COMMON,
    CPU_S,
    ENV,
    EVAL_EPISODES,
    EVAL_EVERY,
    OFFBEAT,
    SCORES,
    SIDES,
    STEPS,
    Side,
)

PATH = RESULTS / "replay-variants.jsonl"
SEEDS = (1, 2)
PEER = Path(__file__).parents[1] / "peers/sbx_variants.py"


def identity(side: Side, seed: int) -> Record:
    """Return what identifies a run."""
    return {"side": side.name, "seed": seed, "steps": STEPS, "cpu_s": CPU_S}


def make(side: Side, seed: int, sbx: Path) -> Record:
    """Make a run in a process of its own, and return its record."""
    work = {"env": ENV, "seed": seed, "steps": STEPS, "cpu_s": CPU_S}
    work |= {"goal": SCORES[-1], "eval_every": EVAL_EVERY, "eval_episodes": EVAL_EPISODES}
    settings = {key: value for key, value in COMMON.items() if key not in side.without}
    arguments = {**work, "algorithm": side.algorithm, "settings": {**settings, **side.changes}}
    is_ours = side.library == OFFBEAT
    command = [sys.executable, "-m", "benchmarks.replay_variants.run"] if is_ours else [str(sbx), str(PEER)]
    return {**identity(side, seed), **record_of([*command, json.dumps(arguments)]), "machine": machine()}


def make_missing(sides: list[Side], seeds: list[int], sbx: Path) -> None:
    """Make the runs that have no record."""
    for seed in seeds:
        for side in sides:
            if find_record(identity(side, seed), read_records(PATH)) is None:
                record = make(side, seed, sbx)
                append_record(PATH, record)
                print(f"{side.name}, seed {seed}: {record['curve'][-1]}", flush=True)


def main() -> None:
    """Make what is missing, and write the table."""
    parser = new_parser(__doc__)
    parser.add_argument("--sbx", type=Path, default=Path(".venv-sbx/bin/python"), help="Python with sbx-rl")
    options, sides = read_parts(parser, SIDES, SEEDS)
    make_missing(sides, options.seeds, options.sbx.expanduser())
    (RESULTS / "replay-variants.md").write_text(page(read_records(PATH)))


if __name__ == "__main__":
    main()
