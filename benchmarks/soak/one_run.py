"""One run of the soak: train, let the mishap happen, check; resume until it is finished, and check again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.common import adopt_orphans, children_cpu_s, die_with_the_parent
from benchmarks.soak import checks, mishaps
from benchmarks.soak.disks import Disk, disk_in, in_a_mount_namespace
from benchmarks.soak.envs import RUNTIME, TAKEN, TOKENS
from benchmarks.soak.files import RunFiles
from benchmarks.soak.plan import POLICIES, Plan
from benchmarks.soak.processes import end_all, show_stacks
from offbeat.core.errors import OffbeatError

RUNS = Path("runs/soak")
HANGS_S = 90.0
"""After which a run is taken to hang: several times what the longest takes alone."""
STOP_S = 15.0
"""Seconds from a signal, or the loss of its directory, to the end of a run."""
RESUMES = 4
"""At most: each may end at an env's failure."""


@dataclass
class Report:
    """What one run came to."""

    plan: Plan
    exit_codes: list[int] = field(default_factory=list)
    """Of the run, and of each resume."""
    happened: bool = False
    """Whether the mishap came before the run had ended."""
    failed_envs: int = 0
    """How often envs failed as they were meant to."""
    restarts: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    """CPU time of all its processes."""
    failures: list[str] = field(default_factory=list)
    output: str = ""
    """The end of what was printed, where something failed."""

    def require(self, holds: bool, otherwise: str) -> None:
        """Note a failure unless it holds."""
        if not holds:
            self.failures.append(otherwise)


def prepare() -> None:
    """Prepare this process for runs: it becomes the parent of everything that they leave behind."""
    die_with_the_parent()
    adopt_orphans()
    in_a_mount_namespace()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C ends the process that waits for this one, and that all runs


def soak(plan: Plan) -> Report:
    """Do one run; its folder is deleted unless something failed."""
    folder = RUNS.absolute() / str(plan.index)
    report, before = Report(plan), checks.shared_memory()
    started_s, cpu_before_s = time.perf_counter(), children_cpu_s()
    files = RunFiles(folder, on_a_disk=plan.mishap.startswith("full disk"))
    _make_folder(files, plan)
    try:
        with _disk(files) as disk:
            try:
                _all_parts(plan, files, disk, report)
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
    (files.folder / POLICIES).write_text(plan.policy_tables)
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
    with _started(plan, files, plan.train(str(files.run))) as child:
        happening = mishaps.happen(plan, files, child, disk)
        report.happened = happening.happened
        _finish(child, files, report, HANGS_S if not happening.ends_soon else STOP_S)
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
    elif files.run.exists():
        report.require(bool(report.failures), f"never finished: its state is {files.state()}")


def _resume(plan: Plan, files: RunFiles, report: Report) -> None:
    """Go on from the checkpoint; without one, `resume` must refuse."""
    found, failed_before = checks.check_checkpoint(files, report), len(files.taken("main"))
    with _started(plan, files, ["resume", str(files.run), "--progress", "none", *_trust()]) as child:
        _finish(child, files, report, HANGS_S)
    code = report.exit_codes[-1]
    expected = {0 if found else 2, *([1] if len(files.taken("main")) > failed_before else [])}
    report.require(code in expected, f"resume ended with {code}, not {min(expected)}")
    checks.check_output(plan, files, report)
    if not found:
        shutil.rmtree(files.run)


def _refuse(plan: Plan, files: RunFiles, report: Report) -> None:
    """Resume a run that was killed when it had done everything: `resume` must say so."""
    checks.check_checkpoint(files, report)
    with _started(plan, files, ["resume", str(files.run), "--progress", "none", *_trust()]) as child:
        _finish(child, files, report, HANGS_S)
    report.require(report.exit_codes[-1] == 2, f"resume ended with {report.exit_codes[-1]}, not 2")
    report.require("nothing is left to do" in files.output(), "resume does not say that nothing is left to do")


def _trust() -> list[str]:
    """Return what lets `resume` import the soak's own envs."""
    from offbeat.cli.train import Resume

    return ["--trust-code"] if hasattr(Resume, "trust_code") else []


@contextmanager
def _started(plan: Plan, files: RunFiles, arguments: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start `offbeat`. What it prints goes to files, as what outlives a run would keep a pipe open."""
    command = [str(Path(sys.executable).parent / "offbeat"), *arguments]
    path = os.pathsep.join([str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path, "PYTHONFAULTHANDLER": "1", RUNTIME: plan.runtime}
    files.begin_part()
    with files.stdout.open("wb") as out, files.stderr.open("ab") as err:
        child = subprocess.Popen(
            command, cwd=files.folder, env=environment, stdout=out, stderr=err, start_new_session=True
        )
    with child:
        try:
            yield child
        finally:
            child.kill()


def _finish(child: subprocess.Popen[bytes], files: RunFiles, report: Report, seconds: float) -> None:
    """Wait for the end of a run, and for that of all its processes."""
    hung = not mishaps.ended_within(child, seconds)
    if hung:
        show_stacks(files.stderr)
        report.failures.append(f"still running after {seconds:g} s; the stacks of its threads are in {files.stderr}")
        child.kill()
        child.wait()
    report.exit_codes.append(child.returncode)
    alive = end_all()
    report.require(hung or not alive, f"alive after the end: {', '.join(alive)}")
