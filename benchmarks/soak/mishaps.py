"""Mishaps: what happens to a run from outside."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.soak.choices import STALL_TIMEOUTS_S
from benchmarks.soak.disks import Disk
from benchmarks.soak.endings import ended_within
from benchmarks.soak.files import RunFiles
from benchmarks.soak.plan import Plan
from benchmarks.soak.processes import catches, descendants, send
from benchmarks.soak.programs import Program

POLL_EVERY_S = 0.02
SHORT_STOP_S = 1.0
LONG_STOP_S = 3.0
"""Longer than a worker may stand still."""
NOTICE_S = 6.0
"""Seconds after which a lock-free run that goes on must have noticed that a worker is gone, and counted it."""
WORKERS = ("actor", "worker")
INFERENCE_WORKERS, LEARNERS = ("inference worker",), ("learner",)
COUNTED = (WORKERS, INFERENCE_WORKERS)
"""Roles whose restarts a run counts."""


@dataclass
class Happening:
    """What has happened to a run."""

    happened: bool = False
    """Whether it came before the run had ended."""
    harmed: int = 0
    """Workers and inference workers that were killed, or stopped."""
    noticed: int = 0
    """How many of them the run must have noticed, as it went on for so long."""
    ends_soon: bool = False
    """Whether the run is to end now, whatever is left to do."""


def happen(plan: Plan, files: RunFiles, child: Program, disk: Disk | None) -> Happening:
    """Let the plan's mishap happen to a run that has just started."""
    mishap = plan.mishap
    if mishap == "none":
        return Happening()
    if roles := _roles_harmed(plan):
        return _harm(plan, files, child, roles, plan.kills if mishap.startswith("kill") and roles in COUNTED else 1)
    _wait_for_the_moment(plan, files, child)
    if child.poll() is not None:
        return Happening()
    _strike(plan, files, child, disk)
    return Happening(True, ends_soon="SIGINT" in mishap or "SIGTERM" in mishap or mishap == "directory deleted")


def _roles_harmed(plan: Plan) -> tuple[str, ...]:
    """Return the roles of the processes of which some are killed or stopped; none if the whole run is struck."""
    of_a_name = {
        "a worker": WORKERS,
        "a worker for a second": WORKERS,
        "an inference worker": INFERENCE_WORKERS,
        "a learner": LEARNERS,
        "the evaluator": ("evaluator",),
    }
    return of_a_name.get(plan.mishap.removeprefix("kill -9 ").removeprefix("SIGSTOP "), ())


def _wait_for_the_moment(plan: Plan, files: RunFiles, child: Program) -> None:
    """Wait for the moment of the mishap, or for the end of the run."""
    _wait_while(child, lambda: not _has_come(plan, files, child))
    if plan.moment != "learning":
        ended_within(child, plan.delay_s)


def _has_come(plan: Plan, files: RunFiles, child: Program) -> bool:
    """Whether the moment has come, or the one from which the mishap's delay counts."""
    if plan.moment == "learning":
        return files.env_steps() >= plan.progress * plan.steps
    if plan.moment == "begun" or plan.mishap == "directory deleted":
        return files.state() is not None
    return catches(child.pid, signal.SIGTERM)


def _strike(plan: Plan, files: RunFiles, child: Program, disk: Disk | None) -> None:
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


def _harm(plan: Plan, files: RunFiles, child: Program, roles: tuple[str, ...], times: int) -> Happening:
    """Kill or stop processes in these roles, one after the other."""
    happening = Happening(ends_soon=roles == LEARNERS)
    for _ in range(times):
        learned = files.env_steps()
        if not _harm_one(plan, files, child, roles):
            break
        happening.happened = True
        if roles in COUNTED:
            happening.harmed += 1
            happening.noticed += _must_be_noticed(plan, child, learned)
    return happening


def _must_be_noticed(plan: Plan, child: Program, learned: int) -> bool:
    """Whether a run cannot end without noticing that a worker is gone, which it was after so many env steps."""
    if "for a second" in plan.mishap:
        return False
    if not plan.hogwild:  # each actor has every so many-th ticket, and asks an inference worker
        return plan.steps - max(0, learned) > plan.in_flight
    return not ended_within(child, NOTICE_S + sum(STALL_TIMEOUTS_S.values()) * plan.mishap.startswith("SIGSTOP"))


def _harm_one(plan: Plan, files: RunFiles, child: Program, roles: tuple[str, ...]) -> bool:
    """Kill or stop one of those that status.json names, at the moment; return whether one was left."""
    _wait_while(child, lambda: not files.pids(*roles))
    _wait_for_the_moment(plan, files, child)
    alive = set(descendants())
    pids = [pid for pid in files.pids(*roles) if pid in alive]
    if child.poll() is not None or not pids:
        return False
    victim = [pids[int(plan.victim * len(pids))]]
    stops = plan.mishap.startswith("SIGSTOP")
    send(victim, signal.SIGSTOP if stops else signal.SIGKILL)
    if plan.mishap.endswith("for a second"):
        ended_within(child, SHORT_STOP_S)
        send(victim, signal.SIGCONT)
    elif not stops:
        _wait_while(child, lambda: victim[0] in files.pids(*roles), seconds=NOTICE_S)  # then another has its place
    return True


# --- waiting ------------------------------------------------------------------------------------------------


def _wait_while(child: Program, holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait as long as the run goes on and a condition holds, at most so many seconds."""
    until = time.monotonic() + seconds
    while holds() and time.monotonic() < until and not ended_within(child, POLL_EVERY_S):
        pass
