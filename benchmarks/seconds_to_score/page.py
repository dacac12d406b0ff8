"""The table of seconds to scores, in docs/concepts/performance.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import describe, markdown_table, median_reached, spread_reached, write_section
from benchmarks.records import Record
from benchmarks.seconds_to_score.works import OURS, WORKS, Work

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "performance.md"
START, END = "<!-- seconds to a score: written by benchmarks/seconds_to_score -->", "<!-- end of seconds to a score -->"
FEWEST_SEEDS = 3
"""Seeds of each side that a ratio of their medians needs."""
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
    """Whether a record is of a work with today's settings, on a seed that counts."""
    counts = record["seed"] not in work.chosen_on
    return bool(counts and record["work"] == work.name and record["settings"] == work.digest(record["side"]))


def row_of(work: Work, score: str, side: str, points: Sequence[Point], ours: Sequence[Point]) -> list[str]:
    """Return a row: medians over all seeds, with the least and the most of those that reached the score."""
    return [
        work.env,
        score,
        side,
        f"{sum(point is not None for point in points)} of {len(points)}",
        spread_reached([point and point[0] for point in points], ",.0f"),
        spread_reached(_seconds(points), ".1f"),
        _ratio(points, ours),
    ]


def _ratio(points: Sequence[Point], ours: Sequence[Point]) -> str:
    """Return a side's median of the seconds over ours; a dash for few seeds, or where a median is never."""
    theirs, own = median_reached(_seconds(points)), median_reached(_seconds(ours))
    enough = min(len(points), len(ours)) >= FEWEST_SEEDS
    return f"{theirs / own:.1f}" if enough and theirs and own else "-"


def _seconds(points: Sequence[Point]) -> list[float | None]:
    return [point and point[1] for point in points]


Point = tuple[int, float] | None
"""Env steps and seconds at which a score was reached."""
