"""What lag costs in learning: presets with no lag, a small and a large one, many seeds, equal env steps.

    python -m benchmarks.policy_lag                                      all that is missing: days on two cores
    python -m benchmarks.policy_lag ppo-CartPole-v1 --seeds 1 2 3        a part of it
    python -m benchmarks.policy_lag --runtime processes --seeds 1 2 3    the same runs for their seconds
    python -m benchmarks.policy_lag --only-page                          the page from the results that are there

The lag is exact: every batch is as old as the bound allows, which is the worst case. So a run has the same bits in
every runtime, and the serial one, which needs one core, gives the scores of all. A run in `processes` whose last
weights differ from those in `serial` is an error. A run is appended to benchmarks/results/policy-lag.jsonl at its end.
Several commands may run at the same time, but not for seconds.
"""

from __future__ import annotations

import json
import sys

from benchmarks.common import RESULTS, machine, record_of
from benchmarks.options import new_parser
from benchmarks.policy_lag.page import SIMULATED, TIMED, write_page
from benchmarks.policy_lag.works import WORKS, Work
from benchmarks.records import Record, append_record, find_record, read_parts, read_records

PATH = RESULTS / "policy-lag.jsonl"
SEEDS = range(1, 11)


def identity(work: Work, lag: int, seed: int, runtime: str) -> Record:
    """Return what identifies a run."""
    return {"name": work.name_of(lag), "steps": work.steps, "lag": lag, "seed": seed, "runtime": runtime}


def make(work: Work, what: Record) -> Record:
    """Make a run in a process of its own, and return its record."""
    arguments = {"algorithm": work.algorithm, "env": work.env, "key": work.key, "changes": work.changes, **what}
    command = [sys.executable, "-m", "benchmarks.policy_lag.run", json.dumps(arguments)]
    return {**what, **record_of(command), "machine": machine()}


def require_same_weights(record: Record, records: list[Record]) -> None:
    """Refuse a run whose last weights are not those of the same run in another runtime.

    Raises:
        SystemExit: they differ.
    """
    for runtime in (SIMULATED, TIMED):
        what = {key: record[key] for key in ("name", "steps", "lag", "seed")} | {"runtime": runtime}
        other = find_record(what, records)
        is_comparable = other is not None and other["machine"] == record["machine"]
        if other is not None and is_comparable and other["weights"] != record["weights"]:
            raise SystemExit(f"{what}: its weights are not those in {record['runtime']}")


def make_missing(works: list[Work], seeds: list[int], runtime: str) -> None:
    """Make the runs that have no record: a whole seed, then the next one, the lags by turns."""
    for seed in seeds:
        for work in works:
            for lag in work.lags if seed % 2 else reversed(work.lags):
                what = identity(work, lag, seed, runtime)
                if find_record(what, read_records(PATH)) is None:
                    record = make(work, what)
                    require_same_weights(record, read_records(PATH))
                    append_record(PATH, record)
                    print(f"{work.name}, {work.key} {lag}, seed {seed}: {record['score']:.1f}", flush=True)


def main() -> None:
    """Make what is missing, and write the page."""
    parser = new_parser(__doc__)
    parser.add_argument("--runtime", choices=(SIMULATED, TIMED), default=SIMULATED)
    options, works = read_parts(parser, WORKS, SEEDS)
    make_missing(works, options.seeds, options.runtime)
    write_page(read_records(PATH))


if __name__ == "__main__":
    main()
