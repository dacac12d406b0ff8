"""Do all runs of the soak and write the results.

    python -m benchmarks.soak                         200 runs, two at a time
    python -m benchmarks.soak --again                 those that are missing in an interrupted soak, or failed
    python -m benchmarks.soak --out /tmp/trial --runs 20 --seed 7 --jobs 1
    python -m benchmarks.soak --out /tmp/trial --seed 2 --first 137 --runs 1    one of them again
    python -m benchmarks.soak --out /tmp/trial --minutes 10                     as many as ten minutes allow
    python -m benchmarks.soak --out /tmp/trial --only "SIGSTOP a worker"        of one mishap, runtime, env or world

The reports are in soak.unfinished.json until all runs are done, so an interrupted soak does not replace the results of
an earlier one. A run follows from its seed and index alone. Needs Linux. What failed stays under runs/soak, with its
output.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from tests.support import survivors

from benchmarks.options import new_parser, read_options
from benchmarks.side_by_side import results_of
from benchmarks.soak.draw import draw
from benchmarks.soak.one_run import RUNS, prepare, soak
from benchmarks.soak.plan import Plan
from benchmarks.soak.report import Report
from benchmarks.soak.results import read_reports, write_json, write_results

UNFINISHED = "soak.unfinished.json"


def main() -> int:
    """Do all runs and write the results; 1 if any failed."""
    options = _options()
    # Who is started in the background inherits a SIGINT that is ignored, and would hand that on to the runs.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    survivors.mark_and_watch()
    RUNS.mkdir(parents=True, exist_ok=True)
    plans = [draw(options.seed, options.first + number) for number in range(options.runs)]
    plans = [plan for plan in plans if options.only in str(plan)]
    reports = [report for report in _earlier(options) if not report.failures]
    plans = [plan for plan in plans if plan.index not in {report.plan.index for report in reports}]
    total = len(reports) + len(plans)
    begun = time.monotonic()
    for report in _done(plans, options.jobs, options.minutes):
        reports.append(report)
        _show(reports, total, time.monotonic() - begun)
        write_json(options.out / UNFINISHED, reports, options.seed)
    print(write_results(reports, options.seed, options.out))
    (options.out / UNFINISHED).unlink(missing_ok=True)
    return int(any(report.failures for report in reports))


def _earlier(options: argparse.Namespace) -> list[Report]:
    """Return the reports of the soak that is continued: the interrupted one, else the last one."""
    files = [options.out / name for name in (UNFINISHED, "soak.json") if (options.out / name).exists()]
    return read_reports(files[0], options.seed) if options.again and files else []


def _options() -> argparse.Namespace:
    parser = new_parser(__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="index of the first run")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no run after so many minutes")
    parser.add_argument("--again", action="store_true", help="go on with the reports that are there")
    parser.add_argument("--only", default="", help="leave out runs whose description does not contain this text")
    return read_options(parser, "jobs", "again")


def _done(plans: list[Plan], jobs: int, minutes: float) -> Iterator[Report]:
    """Yield each run's report when it has ended; begin none after so many minutes."""
    until = time.monotonic() + 60 * minutes
    with ProcessPoolExecutor(jobs, initializer=prepare) as pool:
        yield from results_of(pool, soak, plans, jobs, until)


def _show(reports: list[Report], runs: int, seconds: float) -> None:
    """Print a line for each run; on a terminal one line in all, and one for each failure."""
    report, done = reports[-1], len(reports)
    failed = sum(bool(report.failures) for report in reports)
    outcome = "; ".join(report.failures) or "ok"
    line = f"{report.plan}: {outcome} ({report.seconds:.1f} s, CPU {report.cpu_s:.1f} s)"
    if not sys.stdout.isatty():
        print(f"{done}/{runs} {line}", flush=True)
        return
    left = seconds / done * (runs - done) / 60
    width = shutil.get_terminal_size().columns - 1
    if report.failures:
        print(f"\r{line:{width}}")
    status = f"{done} of {runs} runs, {failed} failed, {left:.0f} minutes left"
    print(f"\r{status:{width}.{width}}", end="\n" if done == runs else "", flush=True)


if __name__ == "__main__":
    sys.exit(main())
