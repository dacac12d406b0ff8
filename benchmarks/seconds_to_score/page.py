"""The table of seconds to scores, in docs/concepts/performance.md."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from benchmarks.common import describe, markdown_table, spread, write_section
from benchmarks.records import Record
from benchmarks.seconds_to_score.works import OURS, WORKS, Work

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "performance.md"
START, END = "<!-- seconds to a score: written by benchmarks/seconds_to_score -->", "<!-- end of seconds to a score -->"
FEWEST_SEEDS = 3
"""Of both sides, for a ratio of their medians."""
HEADER = ["env", "score", "side", "seeds", "env steps to it", "seconds to it", "x offbeat"]


def write_page(records: list[Record]) -> None:
    """Write the table of all records into the page."""
    write_section(PAGE, START, END, content(records))


def content(records: list[Record]) -> str:
    """Return the table of all records."""
    rows = [row for work in WORKS for score in work.scores for row in rows_of(work, f"{score:g}", records)]
    machines = sorted({describe(record["machine"]) for record in records})
    parts = [markdown_table(HEADER, rows).strip(), *(f"Machine: {machine}." for machine in machines)]
    return "\n\n".join(parts)


def rows_of(work: Work, score: str, records: list[Record]) -> list[list[str]]:
    """Return a row for each side that was run."""
    own = [record for record in records if is_of(work, record)]
    sides = sorted({record["side"] for record in own}, key=lambda side: (side != OURS, side))
    points = {side: [record["reached"][score] for record in own if record["side"] == side] for side in sides}
    return [row_of(work, score, side, points[side], points.get(OURS, [])) for side in sides]


def is_of(work: Work, record: Record) -> bool:
    """Whether a record is of a work with today's settings."""
    return bool(record["work"] == work.name and record["settings"] == work.digest(record["side"]))


def row_of(work: Work, score: str, side: str, points: list[Point], ours: list[Point]) -> list[str]:
    """Return a row: medians with the least and the most, over the seeds that reached the score."""
    reached, ours_reached = [point for point in points if point], [point for point in ours if point]
    seeds = f"{len(reached)} of {len(points)}"
    if not reached:
        return [work.env, score, side, seeds, "-", "-", "-"]
    steps, seconds = zip(*reached, strict=True)
    enough = min(len(reached), len(ours_reached)) >= FEWEST_SEEDS
    times = median(seconds) / median(second for _, second in ours_reached) if enough else None
    return [
        work.env,
        score,
        side,
        seeds,
        spread(list(steps), ",.0f"),
        spread(list(seconds), ".1f"),
        f"{times:.1f}" if times else "-",
    ]


Point = tuple[int, float] | None
"""Env steps and seconds at which a score was reached."""
