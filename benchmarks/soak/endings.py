"""The end of a program of a run, and of all that it has started."""

from __future__ import annotations

from subprocess import TimeoutExpired

from benchmarks.soak.files import RunFiles
from benchmarks.soak.processes import end_all, show_stacks
from benchmarks.soak.programs import Program
from benchmarks.soak.report import Report

HANGS_S = 240.0
"""After which a run is taken to hang: many times what the longest takes alone, as the machine may be busy."""
STOP_S = 60.0
"""Seconds from a signal, or the loss of its directory, to the end of a run."""


def finish(child: Program, files: RunFiles, report: Report, seconds: float = HANGS_S) -> None:
    """Wait for the end of a program, and for that of all its processes."""
    hung = not ended_within(child, seconds)
    if hung:
        show_stacks(files.stderr)
        report.failures.append(f"still running after {seconds:g} s; the stacks of its threads are in {files.stderr}")
        child.kill()
        child.wait()
    assert child.returncode is not None
    report.exit_codes.append(child.returncode)
    alive = end_all()
    report.require(hung or not alive, f"alive after the end: {', '.join(alive)}")


def ended_within(child: Program, seconds: float) -> bool:
    """Wait for the end of a program, at most so long; return whether it came."""
    try:
        child.wait(seconds)
    except TimeoutExpired:
        return False
    return True
