"""What must hold after a part of a run, and at its end."""

from __future__ import annotations

import signal
import time
from math import floor
from pathlib import Path
from typing import Any

from benchmarks.soak.choices import SIZES
from benchmarks.soak.files import RunFiles
from benchmarks.soak.mishaps import Happening
from benchmarks.soak.plan import Plan
from benchmarks.soak.report import Report

SHARED_MEMORY = Path("/dev/shm")
NAMES_IN_SHARED_MEMORY = ("offbeat", "psm_", "sem.", "torch")
STATES = {0: "finished", 130: "interrupted", 1: "failed", -signal.SIGKILL: "running"}
"""Exit code -> what status.json must say. Nobody is left to write it after `kill -9`."""
ENV_ERRORS = ("ZeroDivisionError", "SystemExit", "EnvFailed", "NaN")
"""What the traceback of an env's own error names."""
AGENTS = 3
"""In a world."""
FULL_DISK_WARNINGS = 2
"""At most, in runs of less than a minute."""


def check_part(plan: Plan, files: RunFiles, report: Report, happening: Happening) -> None:
    """Check how the first part of a run ended; a mishap may come too late to matter."""
    code, state = report.exit_codes[0], files.state()
    finished = state == "finished" or (state is None and "finished: learned" in files.output())
    allowed = _exit_codes(plan, files, happening)
    no_room = plan.mishap.startswith("full disk") and code == 2 and "free some disk" in files.output()  # not to begin
    report.require(code in allowed or (finished and code == 0) or no_room, f"ended with {code}, not {allowed}")
    check_output(plan, files, report)
    if plan.mishap == "directory deleted" and happening.happened:
        report.require(not files.run.exists() or finished, "the deleted run directory is there again")
        return
    if state is None:  # it was stopped before there was a directory
        without = happening.happened and (code in (130, -signal.SIGKILL) or no_room)
        report.require(without, f"ended with {code}, and kept nothing")
    else:
        report.require(state == STATES.get(code) or finished, f"ended with {code}, but its state is {state}")
        check_checkpoint(files, report)


def _exit_codes(plan: Plan, files: RunFiles, happening: Happening) -> list[int]:
    """Return the exit codes with which the first part may end, the likeliest first."""
    codes = [0]
    if happening.happened:
        ends = {"directory deleted": [1], "full disk": [1, 0], "full disk for a second": [0, 1]}
        codes = ends.get(plan.mishap, codes)
        if "SIGINT" in plan.mishap or "SIGTERM" in plan.mishap:
            codes = [130]
        elif plan.mishap.endswith("a learner"):
            codes = [1]
        elif plan.mishap == "kill -9 the main process":
            codes = [-signal.SIGKILL]
    return [*codes, 1] if files.taken("main") else codes


def check_output(plan: Plan, files: RunFiles, report: Report) -> None:
    """Check what was printed: no traceback but of the env's own errors, nothing of envs on stdout, few warnings."""
    out, err = files.stdout.read_text(errors="replace"), files.stderr.read_text(errors="replace")
    report.require("printed" not in out, "what envs print was on stdout")
    tracebacks = (out + err).split("Traceback (most recent call last)")[1:]
    own = [text for text in tracebacks if files.taken() and any(error in text for error in ENV_ERRORS)]
    report.require(tracebacks == own, "a traceback was printed that is not of an env's own error")
    warnings = err.count("could not be written")
    report.require(warnings <= FULL_DISK_WARNINGS, f"{warnings} warnings that something could not be written")
    if plan.mishap.endswith("to all") and report.exit_codes == [130]:
        report.require("no longer exact" not in out + err, "a signal to all processes made an exact run inexact")


def check_checkpoint(files: RunFiles, report: Report) -> bool:
    """Check the latest checkpoint, and return whether there is one."""
    from numpy import isfinite

    from offbeat.run_directory.checkpoint import load

    latest = files.run / "checkpoints" / "latest"
    if not latest.exists():
        report.require(not files.lines(), "there are metrics, but no checkpoint")
        return False
    saved = load(latest)
    report.require(saved.state is not None, "the latest checkpoint cannot be resumed from")
    for weights in saved.weights_by_policy.values():
        report.require(all(isfinite(array).all() for array in weights.values()), "weights that are not finite")
    return True


def has_all(plan: Plan, files: RunFiles) -> bool:
    """Whether a run that was killed had nothing left to do: its latest checkpoint has all env steps."""
    from offbeat.run_directory.checkpoint import load

    latest = files.run / "checkpoints" / "latest"
    return latest.exists() and all(policy.about["env_steps"] >= plan.steps for policy in load(latest).policies.values())


# --- the end of a run ---------------------------------------------------------------------------------------


def check_end(plan: Plan, files: RunFiles, report: Report, happening: Happening) -> None:
    """Check what a finished run has counted, and its last checkpoint."""
    report.require(check_checkpoint(files, report), "finished without a checkpoint")
    lines = files.lines()
    last = lines[-1]
    report.restarts = last["actor_restarts"]
    _check_restarts(plan, files, report, happening)
    excess = last["env_steps"] - plan.steps
    report.require(0 <= excess < plan.beyond, f"ended {excess} env steps after --steps, with batches of {plan.batch}")
    for name in ("env_steps", "learning_step", "updates", "episodes", "actor_restarts"):
        values = [line[name] for line in lines]
        report.require(values == sorted(values), f"{name} went backwards")
    if plan.evaluates and plan.behaviour in ("plain", "prints", "spawns") and not plan.mishap.endswith("evaluator"):
        stopped = "a signal stopped the evaluation" in (files.run / "log.txt").read_text()
        report.require(last["evaluations"] > 0 or stopped, "finished without an evaluation")
    if not plan.hogwild:
        _check_counts(plan, report, lines)


def _check_counts(plan: Plan, report: Report, lines: list[dict[str, Any]]) -> None:
    """Check the counts that the pace makes sure of."""
    last = lines[-1]
    if plan.world != "none":
        _check_agents(plan, report, last)
    if plan.replayed and plan.world == "none":
        due = floor(SIZES[plan.kind].utd_ratio * max(0, last["env_steps"] - plan.warmup))
        report.require(last["updates"] == due, f"{last['updates']} updates, but {due} were due")
        return
    if plan.replayed:
        _check_updates(plan, report, last)
        return
    lag = max(lag or 0 for line in lines for lag in _of_each_policy(line, "policy_lag_max").values())
    report.require(lag <= plan.max_lag, f"a policy lag of {lag}, but max_lag is {plan.max_lag}")
    if plan.world == "none":
        _check_rows(plan, report, last)


def _check_agents(plan: Plan, report: Report, last: dict[str, Any]) -> None:
    """Check that each env step has one to three decisions; of players that are not learned from, none are counted."""
    env_steps, agent_steps = last["env_steps"], last["agent_steps"]
    least = env_steps if plan.policies != "frozen" and not plan.league else 1
    report.require(least <= agent_steps <= 3 * env_steps, f"{agent_steps} agent steps in {env_steps} env steps")


def _check_updates(plan: Plan, report: Report, last: dict[str, Any]) -> None:
    """Check that the policies together have made the updates that the decisions of each make due.

    Where agents act by turns, a replay has a decision only when its agent is on turn again.
    """
    ratio, steps = SIZES[plan.kind].utd_ratio, _of_each_policy(last, "agent_steps").values()
    open_decisions = plan.actors * plan.envs_per_actor * AGENTS if plan.world == "turns" else 0
    most, least = (
        sum(floor(ratio * max(0, (each or 0) - fewer - plan.warmup)) for each in steps) for fewer in (0, open_decisions)
    )
    report.require(least <= last["updates"] <= most, f"{last['updates']} updates, but {least} to {most} were due")


def _of_each_policy(line: dict[str, Any], metric: str) -> dict[str, Any]:
    """Return a metric of each policy; of a run with one policy under the name of the metric."""
    found = {
        name: value for name, value in line.items() if name.startswith("policies/") and name.endswith(f"/{metric}")
    }
    return found or {metric: line[metric]}


def _check_restarts(plan: Plan, files: RunFiles, report: Report, happening: Happening) -> None:
    """Check that all restarts are counted: of workers that were killed, or stood still, and of those whose envs failed.

    Who fails last may not be missed any more, and an evaluator that fails is none of them.
    """
    failed = len(files.taken("child"))
    least = happening.noticed + (0 if plan.evaluates else max(0, failed - plan.actors))
    most = happening.harmed + failed
    if plan.mishap == "SIGSTOP all for three seconds":  # on a busy machine, who goes on late counts as hung
        most += plan.actors + plan.inference_workers
    if plan.mishap.startswith("SIGSTOP"):  # likewise who starts slowly
        most += (files.run / "log.txt").read_text().count("did not start in time")
    if len(report.exit_codes) > 1:  # what was counted after the last checkpoint is not known any more
        least = 0
    report.require(least <= report.restarts <= most, f"{report.restarts} restarts counted, not {least} to {most}")


def _check_rows(plan: Plan, report: Report, last: dict[str, Any]) -> None:
    """Check that every row of every learned batch was an env step or a reset, and none was counted twice.

    Each episode that ended has one reset row, the last one of a column perhaps not yet, nor one that a restart or a
    resume without snapshots cut off.
    """
    columns = plan.actors * plan.envs_per_actor
    batches = plan.batches_used(last["learning_step"])
    resets = batches * plan.batch - last["env_steps"]
    cuts = report.restarts * plan.envs_per_actor + (len(report.exit_codes) - 1) * columns
    least, most = last["episodes"] - columns - cuts, last["episodes"] + cuts
    report.require(
        least <= resets <= most,
        f"{batches} batches of {plan.batch} rows have {last['env_steps']} env steps and so {resets} "
        f"reset rows, but {last['episodes']} episodes ended and at most {cuts} were cut",
    )


# --- shared memory ------------------------------------------------------------------------------------------


def shared_memory() -> set[str]:
    """Return the names of what offbeat, Python and torch have in shared memory, of any process."""
    return {path.name for path in SHARED_MEMORY.glob("*") if path.name.startswith(NAMES_IN_SHARED_MEMORY)}


def check_shared_memory(before: set[str], report: Report) -> None:
    """Check that shared memory has nothing new; what other runs have there for a moment is given time to go."""
    fresh = shared_memory() - before
    if fresh:
        time.sleep(1.0)
    left = fresh & shared_memory()
    report.require(not left, f"left in shared memory: {', '.join(sorted(left))}")
