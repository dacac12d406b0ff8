"""What lag costs in learning: presets with no lag, a small and a large one, many seeds, equal env steps.

    python -m benchmarks.policy_lag                                  all that is missing: days on two cores
    python -m benchmarks.policy_lag ppo-CartPole-v1 --seeds 1 2 3    a part of it
    python -m benchmarks.policy_lag --only-page                      the page from the results that are there

The lag is exact: every batch is as old as the bound allows, which is the worst case. So a run has the same bits in
every runtime, and the serial one, which needs one core, gives the scores of all. A run is appended to
benchmarks/results/policy-lag.jsonl at its end. Several commands may run at the same time.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import partial

from benchmarks.common import RESULTS, machine, record_of
from benchmarks.missing_runs import Job, make_missing
from benchmarks.options import new_parser
from benchmarks.policy_lag.page import write_page
from benchmarks.policy_lag.works import WORKS, Work
from benchmarks.records import Record, read_parts, read_records

PATH = RESULTS / "policy-lag.jsonl"
SEEDS = range(1, 11)


def make(work: Work, what: Record) -> Record:
    """Make a run in a process of its own, and return what was measured."""
    arguments = {"algorithm": work.algorithm, "env": work.env, "key": work.key, "changes": work.changes, **what}
    command = [sys.executable, "-m", "benchmarks.policy_lag.run", json.dumps(arguments)]
    return {**record_of(command), "machine": machine()}


def jobs(works: list[Work], seeds: list[int]) -> Iterator[Job]:
    """Yield the runs: a whole seed, then the next one, the lags by turns."""
    for seed in seeds:
        for work in works:
            for lag in work.lags if seed % 2 else reversed(work.lags):
                what = {"name": work.name_of(lag), "steps": work.steps, "lag": lag, "seed": seed}
                yield what, partial(make, work, what)


def said(record: Record) -> str:
    """Return a run in one line."""
    return f"{record['name']}, lag {record['lag']}, seed {record['seed']}: {record['score']:.1f}"


def main() -> None:
    """Make what is missing, and write the page."""
    options, works = read_parts(new_parser(__doc__), WORKS, SEEDS)
    make_missing(PATH, jobs(works, options.seeds), said)
    write_page(read_records(PATH))


if __name__ == "__main__":
    main()
