"""Mishaps: what happens to a run from outside."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.soak.disks import Disk
from benchmarks.soak.files import RunFiles
from benchmarks.soak.plan import STALL_TIMEOUTS_S, Plan
from benchmarks.soak.processes import catches, descendants, send

POLL_EVERY_S = 0.01
SHORT_STOP_S = 1.0
LONG_STOP_S = 3.0
"""Longer than a worker may stand still."""
NOTICE_S = 3.0
"""Seconds after which a run that goes on must have noticed that a worker is gone, and counted it."""
WORKERS = ("actor", "worker")


@dataclass
class Happening:
    """What has happened to a run."""

    happened: bool = False
    """Whether it came before the run had ended."""
    harmed: int = 0
    """Workers that were killed, or stopped."""
    noticed: int = 0
    """How many of them the run must have noticed, as it went on for so long."""
    ends_soon: bool = False
    """Whether the run is to end now, whatever is left to do."""


def happen(plan: Plan, files: RunFiles, child: subprocess.Popen[bytes], disk: Disk | None) -> Happening:
    """Let the plan's mishap happen to a run that has just started."""
    mishap = plan.mishap
    if mishap == "none":
        return Happening()
    if mishap.startswith("kill -9 a worker") or mishap in ("SIGSTOP a worker", "SIGSTOP a worker for a second"):
        return _harm(plan, files, child, WORKERS, plan.kills if mishap.startswith("kill") else 1)
    if mishap.endswith("the evaluator"):
        return _harm(plan, files, child, ("evaluator",), 1)
    _wait_while(child, lambda: not _has_come(plan, files, child))
    ended_within(child, plan.delay_s)
    if child.poll() is not None:
        return Happening()
    _strike(plan, files, child, disk)
    return Happening(True, ends_soon="SIGINT" in mishap or "SIGTERM" in mishap or mishap == "directory deleted")


def _has_come(plan: Plan, files: RunFiles, child: subprocess.Popen[bytes]) -> bool:
    """Whether the moment has come from which the mishap's delay counts."""
    if plan.moment == "learning":
        return bool(files.lines())
    if plan.moment == "begun" or plan.mishap == "directory deleted":
        return files.state() is not None
    return catches(child.pid, signal.SIGTERM)


def _strike(plan: Plan, files: RunFiles, child: subprocess.Popen[bytes], disk: Disk | None) -> None:
    """Do to the whole run what the mishap says."""
    mishap = plan.mishap
    if mishap == "directory deleted":
        _delete(files)
    elif disk:
        disk.fill(child.pid)
        if mishap == "full disk for a second":
            ended_within(child, SHORT_STOP_S)
            disk.free(child.pid)
    elif mishap == "SIGSTOP all for three seconds":
        pids = descendants()
        send(pids, signal.SIGSTOP)
        time.sleep(LONG_STOP_S)
        send(pids, signal.SIGCONT)
    elif mishap == "kill -9 the main process":
        child.kill()
    else:
        number = signal.SIGINT if "SIGINT" in mishap else signal.SIGTERM
        send(descendants() if mishap.endswith("to all") else [child.pid], number)


def _delete(files: RunFiles) -> None:
    """Delete the run directory. In one step: what is deleted file by file may be written anew meanwhile."""
    if files.run.exists():
        deleted = files.run.with_name("deleted")
        files.run.rename(deleted)
        shutil.rmtree(deleted)


# --- one process of the run ---------------------------------------------------------------------------------


def _harm(plan: Plan, files: RunFiles, child: subprocess.Popen[bytes], roles: tuple[str, ...], times: int) -> Happening:
    """Kill or stop processes in these roles, one after the other."""
    moments = [moment for _ in range(times) if (moment := _harm_one(plan, files, child, roles))]
    happening = Happening(bool(moments), harmed=len(moments) if roles == WORKERS else 0)
    if not moments or roles != WORKERS or "for a second" in plan.mishap:
        return happening
    patience_s = NOTICE_S + (sum(STALL_TIMEOUTS_S.values()) if plan.mishap.startswith("SIGSTOP") else 0)
    for moment in moments:
        happening.noticed += not ended_within(child, max(0.0, moment + patience_s - time.monotonic()))
    return happening


def _harm_one(plan: Plan, files: RunFiles, child: subprocess.Popen[bytes], roles: tuple[str, ...]) -> float | None:
    """Kill or stop one of those that status.json names, a while after it does; return when, None if none was left."""
    _wait_while(child, lambda: not files.pids(*roles))
    ended_within(child, plan.delay_s)
    alive = set(descendants())
    pids = [pid for pid in files.pids(*roles) if pid in alive]
    if child.poll() is not None or not pids:
        return None
    victim = [pids[int(plan.victim * len(pids))]]
    stops = plan.mishap.startswith("SIGSTOP")
    send(victim, signal.SIGSTOP if stops else signal.SIGKILL)
    moment = time.monotonic()
    if plan.mishap.endswith("for a second"):
        ended_within(child, SHORT_STOP_S)
        send(victim, signal.SIGCONT)
    elif not stops:
        _wait_while(child, lambda: victim[0] in files.pids(*roles), seconds=NOTICE_S)  # then another has its place
    return moment


# --- waiting ------------------------------------------------------------------------------------------------


def _wait_while(child: subprocess.Popen[bytes], holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait as long as the run goes on and a condition holds, at most so many seconds."""
    until = time.monotonic() + seconds
    while holds() and time.monotonic() < until and not ended_within(child, POLL_EVERY_S):
        pass


def ended_within(child: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for the end of a run, at most so long; return whether it came."""
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True
