"""The results: the raw record, one line a run, and tables of what was covered and what failed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from benchmarks.common import describe, machine, markdown_table
from benchmarks.soak.choices import ALL_MISHAPS, BEHAVIOURS, KINDS, POLICIES, SIZES, WORLDS
from benchmarks.soak.draw import draw
from benchmarks.soak.plan import Plan
from benchmarks.soak.report import Report

SETTINGS = (
    *("actors", "max_lag", "lag", "unroll_length", "envs_per_actor", "env_groups", "learner_workers", "evaluates"),
    *("starts_from", "members"),
)
LEAGUE = "with a league"
EXACT = (
    "Each of them ended with the weights, the snapshots and the counts of an undisturbed run in serial, bit for bit, "
    "unless it is among the failures."
)


def write_results(reports: Sequence[Report], seed: int, out: Path) -> str:
    """Write soak.json and soak.md, and return the text."""
    reports = sorted(reports, key=lambda report: report.plan.index)
    write_json(out / "soak.json", reports, seed)
    failed = [report for report in reports if report.failures]
    parts = [
        "# Soak",
        f"{len(reports)} runs, seed {seed}: {len(failed)} failed. {_moved(reports)} {_costs(reports)}",
        f"{describe(machine())}. The library is that of {_revisions(reports)}.",
        f"{sum(report.compared for report in reports)} runs are exact. {EXACT}",
        _mishaps(reports),
        "Runs by mishap, and how many of each algorithm and runtime:\n\n"
        + _coverage(reports, ALL_MISHAPS, lambda plan: [plan.mishap]),
        "By what is observed and done, and by what envs do besides:\n\n"
        + _coverage(reports, [*SIZES, *BEHAVIOURS], lambda plan: [plan.kind, plan.behaviour]),
        "Worlds, how many policies of what kind, and leagues:\n\n"
        + _coverage(
            [r for r in reports if r.plan.world != "none"], [*list(WORLDS)[1:], *POLICIES, "drawn", LEAGUE], _of_world
        ),
        "  \n".join(f"{name}: {_counts(getattr(report.plan, name) for report in reports)}" for name in SETTINGS),
        "\n".join(f"- {report.plan}: {'; '.join(report.failures)}" for report in failed),
    ]
    text = "\n\n".join(part.strip() for part in parts if part) + "\n"
    (out / "soak.md").write_text(text)
    return text


def _of_world(plan: Plan) -> list[str]:
    return [plan.world, plan.policies, *([LEAGUE] if plan.league else [])]


def _revisions(reports: Sequence[Report]) -> str:
    """Name the revisions that were tested, with the number of runs if there are several."""
    counts = Counter(report.revision for report in reports)
    return ", ".join(f"`{name}`" + (f" ({count} runs)" if len(counts) > 1 else "") for name, count in counts.items())


def read_reports(file: Path, seed: int) -> list[Report]:
    """Return the reports in a file of an earlier soak of this seed.

    Raises:
        SystemExit: it is of another seed, or of another machine: the results name one.
    """
    saved = json.loads(file.read_text())
    if saved["seed"] != seed:
        raise SystemExit(f"{file} is of seed {saved['seed']}, not {seed}")
    if describe(saved["machine"]) != describe(machine()):
        raise SystemExit(f"{file} is of another machine: {describe(saved['machine'])}")
    names = {each.name for each in fields(Report)} - {"plan"}
    return [
        Report(draw(seed, run["index"]), **{name: run[name] for name in names & run.keys()}) for run in saved["runs"]
    ]


def _moved(reports: Sequence[Report]) -> str:
    """Say how many runs were resumed, and how many of them in another runtime."""
    resumed = [report.plan for report in reports if len(report.exit_codes) > 1]
    moved = sum(plan.resumes_in != plan.runtime for plan in resumed)
    return f"{len(resumed)} were resumed, {moved} of them in another runtime."


def _costs(reports: Sequence[Report]) -> str:
    """Say what a run took on average."""
    runs = max(1, len(reports))
    seconds, cpu_s = sum(report.seconds for report in reports) / runs, sum(report.cpu_s for report in reports) / runs
    return f"A run took {seconds:.1f} s, and {cpu_s:.1f} s of CPU time."


def write_json(path: Path, reports: Sequence[Report], seed: int) -> None:
    """Write JSON with one line a run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(_record(report)) for report in reports]
    start = json.dumps({"machine": machine(), "seed": seed, "runs": []}).removesuffix("]}")
    path.write_text(start + "\n" + ",\n".join(lines) + "\n]}\n")


def _record(report: Report) -> dict[str, Any]:
    """Return what is kept of a run; its plan follows from seed and index, but can be read without drawing it."""
    record = asdict(report)
    return {**record.pop("plan"), **{name: value for name, value in record.items() if name != "output" or value}}


def _mishaps(reports: Sequence[Report]) -> str:
    header = ["mishap", "runs", "came before the end", "envs failed", "restarts", "resumed", "exact", "failed"]
    rows = []
    for mishap in ALL_MISHAPS:
        those = [report for report in reports if report.plan.mishap == mishap]
        counts: list[int] = [
            len(those),
            sum(report.happened for report in those),
            sum(report.failed_envs for report in those),
            sum(report.restarts for report in those),
            sum(len(report.exit_codes) > 1 and report.exit_codes[-1] == 0 for report in those),
            sum(report.compared for report in those),
            sum(bool(report.failures) for report in those),
        ]
        rows.append([mishap, *map(str, counts)])
    return markdown_table(header, rows)


def _coverage(reports: Sequence[Report], names: Iterable[str], of: Callable[[Plan], list[str]]) -> str:
    """Return a table of how many runs there were: a row for each name, a column for each algorithm and runtime."""
    algorithms, runtimes = (list(dict.fromkeys(pair[part] for pair in KINDS)) for part in (0, 1))
    rows = []
    for name in names:
        those = [report.plan for report in reports if name in of(report.plan)]
        counts = Counter(word for plan in those for word in (plan.algorithm, plan.runtime))
        rows.append([name, *(str(counts[word]) for word in (*algorithms, *runtimes))])
    return markdown_table(["", *algorithms, *runtimes], rows)


def _counts(values: Iterable[Any]) -> str:
    return ", ".join(f"{value} ({count})" for value, count in sorted(Counter(values).items()))
