"""A population of the soak: its members are killed, or it is stopped and run again; the family tree stays the same."""

from __future__ import annotations

import signal
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomli_w

from benchmarks.soak.bits import REFERENCE, arrays
from benchmarks.soak.disks import Disk
from benchmarks.soak.endings import ended_within, finish
from benchmarks.soak.files import RunFiles, last_env_steps
from benchmarks.soak.mishaps import POLL_EVERY_S
from benchmarks.soak.plan import Plan
from benchmarks.soak.processes import children_of, send
from benchmarks.soak.programs import Program, run_aside, started
from benchmarks.soak.report import Report

SPEC, FOLDER, LEDGER = "spec.toml", "population", "population.jsonl"
GENERATIONS = 2
TABLE: dict[str, Any] = {"episodes": 2, "gap_std": 0.0, "gap_relative": 0.0, "mutation_rate": 1.0}
"""Copies happen as soon as scores differ."""
RUNS_AGAIN = 3
"""At most."""


def all_parts(plan: Plan, files: RunFiles, _disk: Disk | None, report: Report) -> None:
    """Run the population, let the mishap happen, and run it again until it is finished."""
    (files.folder / SPEC).write_text(spec_of(plan))
    with _started(plan, files) as child:
        report.happened = _happen(plan, files, child)
        finish(child, files, report)
    expected = _exit_codes(plan, report.happened)
    report.require(report.exit_codes[0] in expected, f"ended with {report.exit_codes[0]}, not {expected}")
    while report.exit_codes[-1] and len(report.exit_codes) <= RUNS_AGAIN and not report.failures:
        with _started(plan, files) as child:
            finish(child, files, report)
    _check_end(plan, files, report)


def spec_of(plan: Plan, **changes: Any) -> str:
    """Return the spec; `changes` replace settings."""
    pairs = dict(text.split("=", 1) for text in plan.settings())
    del pairs["eval_every"]  # each generation ends with an evaluation
    generation = max(plan.batch, plan.steps // GENERATIONS)
    settings = {key: _value(text) for key, text in pairs.items()} | {"steps": GENERATIONS * generation} | changes
    rates = {} if plan.replayed else {"learning_rate": {"low": 1e-5, "high": 1e-2}}
    population = {
        **TABLE,
        "members": plan.members,
        "generation": generation,
        "mutate": {"gamma": {"low": 0.9, "high": 0.999}, **rates},
    }
    return tomli_w.dumps(
        {
            "algorithm": plan.algorithm,
            "env": plan.env,
            "seeds": [plan.index],
            "settings": settings,
            "population": population,
        }
    )


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _started(plan: Plan, files: RunFiles) -> Any:
    arguments = ["run", SPEC, "--dir", FOLDER, "--jobs", str(plan.members), "--progress", "none"]
    return started(plan, files, arguments, plan.runtime)


# --- mishaps --------------------------------------------------------------------------------------------------


def _happen(plan: Plan, files: RunFiles, child: Program) -> bool:
    """Let the mishap happen; return whether it came before the end."""
    if plan.mishap == "none":
        return False
    if plan.mishap == "kill -9 a member":
        return any([_kill_one(plan, files, child, number) for number in range(plan.kills)])  # noqa: C419 - kill all
    if not _moment_comes(plan, files, child, 0):
        return False
    if plan.mishap == "kill -9 the main process":
        child.kill()
    else:
        send([child.pid], signal.SIGINT if plan.mishap == "SIGINT" else signal.SIGTERM)
    return True


def _kill_one(plan: Plan, files: RunFiles, child: Program, number: int) -> bool:
    """Kill the process of a member, whatever it does; return whether there was one."""
    if not _moment_comes(plan, files, child, number):
        return False
    running = children_of(child.pid)
    send([running[int(plan.victim * len(running))]] if running else [], signal.SIGKILL)
    ended_within(child, plan.delay_s)
    return bool(running)


def _moment_comes(plan: Plan, files: RunFiles, child: Program, number: int) -> bool:
    """Wait until a member runs and the part of the env steps is done; return False if the end comes before."""
    steps = plan.members * plan.steps * (plan.progress + 0.1 * number) * (plan.moment == "learning")
    learned: Callable[[], int] = lambda: sum(last_env_steps(run) for run in members(files.folder / FOLDER))  # noqa: E731
    while not children_of(child.pid) or learned() < steps:
        if ended_within(child, POLL_EVERY_S):
            return False
    return not ended_within(child, plan.delay_s * (plan.moment != "learning"))


def _exit_codes(plan: Plan, happened: bool) -> list[int]:
    if not happened or plan.mishap == "kill -9 a member":
        return [0]
    return [-signal.SIGKILL] if plan.mishap == "kill -9 the main process" else [130, 0]


# --- the end --------------------------------------------------------------------------------------------------


def members(population: Path) -> list[Path]:
    """Return the run directories of the members."""
    return sorted(path for path in population.glob("member-*") if path.is_dir())


def _check_end(plan: Plan, files: RunFiles, report: Report) -> None:
    """Check a finished population, and compare it with one that ran in one process if it is exact."""
    population = files.folder / FOLDER
    report.require(report.exit_codes[-1] == 0, f"never finished: {report.exit_codes}")
    if report.failures:
        return
    report.require((population / "winner" / "checkpoints" / "latest").exists(), "there is no winner")
    report.require(len(members(population)) == plan.members, "a member has no run directory")
    if plan.exact:
        _check_bits(plan, files, report)


def _check_bits(plan: Plan, files: RunFiles, report: Report) -> None:
    there = files.folder / REFERENCE
    there.mkdir()
    (there / SPEC).write_text(spec_of(plan.reference))
    run_aside(_in_one_process, there, files.environment(plan, "serial"))
    report.compared = True
    trees = [sorted((each / LEDGER).read_text().splitlines()) for each in (files.folder / FOLDER, there / FOLDER)]
    report.require(trees[0] == trees[1], f"another family tree than in one process: {trees[0]}, not {trees[1]}")
    pairs = zip(members(files.folder / FOLDER), members(there / FOLDER), strict=True)
    others = [here.name for here, reference in pairs if arrays(here) != arrays(reference)]
    report.require(not others, f"other bits than in one process: {', '.join(others)}")


def _in_one_process() -> None:
    """Run the population of the spec in the current folder, in this process."""
    from tests.support.populations import run_here

    from offbeat.population.population import Population

    failed = run_here(Population(Path(SPEC), Path(FOLDER))).failed
    if failed:
        raise SystemExit(f"members failed: {failed}")
