"""One run of the soak: train, let the mishap happen, check; resume until it is finished, and check again."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from benchmarks.common import adopt_orphans, children_cpu_s, die_with_the_parent
from benchmarks.missing_runs import revision
from benchmarks.soak import checks, mishaps, populations
from benchmarks.soak.bits import check_bits
from benchmarks.soak.disks import Disk, disk_in, in_a_mount_namespace
from benchmarks.soak.endings import HANGS_S, STOP_S, finish
from benchmarks.soak.envs import TAKEN, TOKENS
from benchmarks.soak.files import RunFiles
from benchmarks.soak.forks import load, offbeat
from benchmarks.soak.plan import EARLIER, EARLIER_TABLES, Plan
from benchmarks.soak.processes import end_all
from benchmarks.soak.programs import Program, run_aside, started
from benchmarks.soak.report import Report
from offbeat.core.errors import OffbeatError

RUNS = Path("runs/soak")
RESUMES = 4
"""At most: each may end at an env's failure."""


def prepare() -> None:
    """Prepare this process for runs: it becomes the parent of everything that they leave behind."""
    die_with_the_parent()
    adopt_orphans()
    in_a_mount_namespace()
    load()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C ends the process that waits for this one, and that all runs


def soak(plan: Plan) -> Report:
    """Do one run; its folder is deleted unless something failed."""
    folder = RUNS.absolute() / str(plan.index)
    report, before = Report(plan, revision=revision()), checks.shared_memory()
    started_s, cpu_before_s = time.perf_counter(), children_cpu_s()
    files = RunFiles(folder, on_a_disk=plan.mishap.startswith("full disk"))
    try:
        _make_folder(files, plan)
        with _disk(files) as disk:
            try:
                _train_earlier(files, plan)
                (populations.all_parts if plan.members else _all_parts)(plan, files, disk, report)
            except (OSError, ValueError, LookupError, OffbeatError) as error:
                report.failures.append(f"{type(error).__name__}: {error}")
            if report.failures and files.disk:
                shutil.copytree(
                    files.disk, folder / "disk-copy", symlinks=True, ignore=shutil.ignore_patterns("filler")
                )
    finally:
        end_all()
    checks.check_shared_memory(before, report)
    report.seconds = round(time.perf_counter() - started_s, 2)
    report.cpu_s = round(children_cpu_s() - cpu_before_s, 2)
    if report.failures:
        report.output = files.output()[-3000:]
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return report


def _make_folder(files: RunFiles, plan: Plan) -> None:
    shutil.rmtree(files.folder, ignore_errors=True)
    (files.folder / TAKEN).mkdir(parents=True)
    (files.folder / TOKENS).mkdir()
    files.tables.write_text(plan.tables())
    (files.folder / EARLIER_TABLES).write_text(plan.tables(earlier=True))


def _train_earlier(files: RunFiles, plan: Plan) -> None:
    """Train the earlier run that the run starts from, if it does; then lay out the tokens of the failures."""
    if plan.has_earlier:
        arguments = plan.earlier.train(EARLIER, EARLIER_TABLES)
        run_aside(offbeat(arguments), files.folder, files.environment(plan, "serial"))
    for number in range(plan.times):
        (files.folder / TOKENS / str(number)).touch()


@contextmanager
def _disk(files: RunFiles) -> Iterator[Disk | None]:
    """Provide the disk that is filled, if the run is on one."""
    if files.disk is None:
        yield None
        return
    disk = disk_in(files.disk)
    try:
        yield disk
    finally:
        disk.close()


def _all_parts(plan: Plan, files: RunFiles, disk: Disk | None, report: Report) -> None:
    """Train, then resume until the run is finished."""
    with started(plan, files, plan.train(str(files.run)), plan.runtime) as child:
        happening = mishaps.happen(plan, files, child, disk)
        report.happened = happening.happened
        finish(child, files, report, STOP_S if happening.ends_soon else HANGS_S)
        if disk:
            disk.free(child.pid)
    checks.check_part(plan, files, report, happening)
    while files.state() not in ("finished", None) and len(report.exit_codes) <= RESUMES and not report.failures:
        if checks.has_all(plan, files):
            _refuse(plan, files, report)
            return
        _resume(plan, files, report)
    report.failed_envs = len(files.taken())
    if files.state() == "finished":
        checks.check_end(plan, files, report, happening)
        check_bits(plan, files, report)
    elif files.run.exists():
        report.require(bool(report.failures), f"never finished: its state is {files.state()}")


def _resume(plan: Plan, files: RunFiles, report: Report) -> None:
    """Go on from the checkpoint; without one, `resume` must refuse."""
    found, failed_before = checks.check_checkpoint(files, report), len(files.taken("main"))
    with _resumed(plan, files) as child:
        finish(child, files, report)
    code = report.exit_codes[-1]
    expected = {0 if found else 2, *([1] if len(files.taken("main")) > failed_before else [])}
    report.require(code in expected, f"resume ended with {code}, not {min(expected)}")
    checks.check_output(plan, files, report)
    if not found:
        shutil.rmtree(files.run)


def _refuse(plan: Plan, files: RunFiles, report: Report) -> None:
    """Resume a run that was killed when it had done everything: `resume` must say so."""
    checks.check_checkpoint(files, report)
    with _resumed(plan, files) as child:
        finish(child, files, report)
    report.require(report.exit_codes[-1] == 2, f"resume ended with {report.exit_codes[-1]}, not 2")
    report.require("nothing is left to do" in files.output(), "resume does not say that nothing is left to do")


def _resumed(plan: Plan, files: RunFiles) -> AbstractContextManager[Program]:
    """Start `offbeat resume`, in the runtime that the plan has for it."""
    runtime = [] if plan.resumes_in == plan.runtime else ["--runtime", plan.resumes_in]
    arguments = ["resume", str(files.run), "--progress", "none", "--trust-code", *runtime]
    return started(plan, files, arguments, plan.resumes_in)
