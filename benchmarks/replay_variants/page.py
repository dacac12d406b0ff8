"""The tables of benchmarks/results/replay-variants.md, from the records that are there."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.common import describe, in_words, markdown_table
from benchmarks.records import Record
from benchmarks.replay_variants.sides import COMMON, CPU_S, ENV, EVAL_EPISODES, EVAL_EVERY, SCORES, SIDES, STEPS

AT_STEPS = (20_000, 30_000, STEPS)
AT_CPU_S = (200, 400, CPU_S)
RETURNS = (
    "Mean return of the last evaluation up to so many env steps, and up to so many CPU seconds. With a star: the run "
    "had ended before."
)
Point = Sequence[float]
"""[env_steps, seconds, cpu_s, mean return] of an evaluation."""


def page(records: list[Record]) -> str:
    """Return the page."""
    current = [record for record in records if (record["steps"], record["cpu_s"]) == (STEPS, CPU_S)]
    runs = {
        side.name: sorted((record for record in current if record["side"] == side.name), key=lambda run: run["seed"])
        for side in SIDES
    }
    found = {name: of_side for name, of_side in runs.items() if of_side}
    missing = [name for name, of_side in runs.items() if not of_side]
    parts = [
        "# Variants of SAC",
        _introduction(),
        *sorted({describe(record["machine"]) for record in current}),
        *_sbx_versions(current),
        scores_table(found),
        RETURNS,
        returns_table(found),
        f"Not run yet: {'; '.join(missing)}." if missing else "",
    ]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _introduction() -> str:
    return f"""\
SAC on {ENV}: one env, batches of {COMMON["batch_size"]}, layers {COMMON["hidden_sizes"]}, learning rate
{COMMON["learning_rate"]:g}, one update per env step after {COMMON["warmup"]:,} env steps of warm-up, unless the side
says otherwise. CrossQ has its own learning rate 0.001 and policy delay 3, and layers of the same sizes instead of its
own. Every {EVAL_EVERY:,} env steps {EVAL_EPISODES} greedy episodes give the mean return. A run ends at a mean return of
{SCORES[-1]:,}, after {STEPS:,} env steps or after {CPU_S:,.0f} CPU seconds, whichever is first.

Each run had one thread. CPU seconds do not include the evaluations, but they do include JAX's compilation.
Several seeds are separated by a slash; "-": the run did not get there."""


def _sbx_versions(records: list[Record]) -> list[str]:
    found = [record["versions"] for record in records if "versions" in record]
    return sorted({f"SBX's side: {in_words(each)}" for each in found})


def scores_table(runs: dict[str, list[Record]]) -> str:
    """Return when the sides reach the scores: a row for each side."""
    rows = []
    for name, of_side in runs.items():
        curves = [run["curve"] for run in of_side]
        row = [name, ", ".join(str(run["seed"]) for run in of_side)]
        row.append(_joined([f"{1000 * curve[-1][2] / curve[-1][0]:.1f}" for curve in curves]))
        for score in SCORES:
            row += [_joined([_reached(curve, score, column) for curve in curves]) for column in (0, 2)]
        rows.append(row)
    header = ["side", "seeds", "CPU ms per env step"]
    for score in SCORES:
        header += [f"env steps to {score:,}", f"CPU s to {score:,}"]
    return markdown_table(header, rows)


def returns_table(runs: dict[str, list[Record]]) -> str:
    """Return the returns at equal env steps and at equal CPU seconds: a row for each side."""
    rows = [
        [
            name,
            *(_joined([_last(run["curve"], 0, steps) for run in of_side]) for steps in AT_STEPS),
            *(_joined([_last(run["curve"], 2, cpu_s) for run in of_side]) for cpu_s in AT_CPU_S),
        ]
        for name, of_side in runs.items()
    ]
    header = ["side", *(f"{steps:,} env steps" for steps in AT_STEPS), *(f"{cpu_s:,.0f} CPU s" for cpu_s in AT_CPU_S)]
    return markdown_table(header, rows)


def _reached(curve: list[Point], score: float, column: int) -> str:
    """Return a column of the first evaluation with this mean return."""
    return next((f"{point[column]:,.0f}" for point in curve if point[3] >= score), "-")


def _last(curve: list[Point], column: int, limit: float) -> str:
    """Return the mean return of the last evaluation up to a limit; with a star if no later one exceeds it."""
    before = [point for point in curve if point[column] <= limit]
    if not before:
        return "-"
    ended = len(before) == len(curve) and before[-1][column] < limit
    return f"{before[-1][3]:,.0f}{'*' if ended else ''}"


def _joined(values: list[str]) -> str:
    return values[0] if len(set(values)) == 1 else " / ".join(values)
