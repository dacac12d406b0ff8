"""The table of an experiment, a row a trial: as CSV for programs, as Markdown for people."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from offbeat.experiments.results import Row, result_of, summary
from offbeat.experiments.sessions import Session
from offbeat.experiments.trials import spelled
from offbeat.metrics.text import compact, figure

_COMPACT = ("steps_to_target", "env_steps", "sps", "ups")
"""Columns that people read in thousands and millions."""


def row_of(sessions: Sequence[Session], failed: Collection[str], target: float | None) -> Row:
    """Return the row of a trial; `failed` are the names of sessions that have failed."""
    trial = sessions[0].trial
    results = [result for session in sessions if (result := result_of(session, target))]
    return {
        "trial": trial.name,
        **{key: spelled(value) for key, value in trial.values.items()},
        "env": trial.env,
        "sessions": len(sessions),
        "finished": sum(result.finished for result in results),
        "failed": sum(session.name in failed for session in sessions),
        **summary(results, with_target=target is not None),
    }


def write_table(rows: Sequence[Row], csv_file: Path, markdown_file: Path) -> None:
    """Write both forms, each in one step."""
    _write(csv_file, as_csv(rows))
    _write(markdown_file, as_markdown(rows))


def as_csv(rows: Sequence[Row]) -> str:
    """Return the table with all digits; what is not known is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_markdown(rows: Sequence[Row]) -> str:
    """Return the table with as many digits as one reads."""
    header = list(rows[0])
    rule = ["---" if isinstance(rows[0][name], str) else "---:" for name in header]
    body = [[_shown(name, row[name]) for name in header] for row in rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [header, rule, *body])


def _shown(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return compact(value) if name in _COMPACT else figure(value)
    return str(value)


def _write(file: Path, text: str) -> None:
    temporary = file.with_name(f".{file.name}.writing")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(file)
