"""The report of an experiment: a table with one row per trial, as CSV and Markdown, and graphs of the returns."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from offbeat.core.errors import ConfigError
from offbeat.core.files import replace_file
from offbeat.core.messages import ignore, once
from offbeat.core.typed_text import as_text
from offbeat.experiments.pruning_rule import Pruned
from offbeat.experiments.results import ReturnKind, TableRow, result_of, summary
from offbeat.experiments.sessions import Session
from offbeat.metrics.text import compact, first_few, rounded
from offbeat.plots.curves import draw_runs
from offbeat.plots.figures import write_figure
from offbeat.plots.runs import NoReturns, XAxis, runs_of

_COMPACT = ("pruned_after", "steps_to_target", "env_steps", "sps", "ups")
"""Columns that the Markdown table shows in thousands and millions."""


def row_of(
    sessions: Sequence[Session],
    failed: Collection[str],
    target: float | None,
    kind: ReturnKind,
    pruned: Pruned | None = None,
    *,
    with_pruning: bool = False,
) -> TableRow:
    """Return the row of a trial.

    Args:
        sessions: Sessions of the trial.
        failed: Names of the sessions that have failed in this start; others may have failed in an earlier one.
        target: Return to reach; None for no target.
        kind: Of which returns the row is. A session without such returns is not in their means.
        pruned: Why the trial was pruned. Then it has no returns, because they would be those of some of its sessions.
        with_pruning: Whether the table says which trials were pruned.
    """
    trial = sessions[0].trial
    statuses = [(session, session.status() == "finished") for session in sessions]
    results = [result_of(session, target, kind, finished=finished) for session, finished in statuses]
    unfinished = [session for session, finished in statuses if not finished]
    found = [result if pruned is None else replace(result, finished=False) for result in results if result]
    return {
        "trial": trial.name,
        **{key: as_text(value) for key, value in trial.values.items()},
        "env": trial.env,
        "sessions": len(sessions),
        "finished": len(sessions) - len(unfinished),
        "failed": sum(session.name in failed or session.run.has_state("failed") for session in unfinished),
        **({"pruned_after": pruned and pruned.env_steps} if with_pruning else {}),
        "return_kind": kind,
        **summary(found, with_target=target is not None),
    }


def write_table(rows: Sequence[TableRow], csv_file: Path, markdown_file: Path) -> None:
    """Write the table to both files, each atomically."""
    replace_file(csv_file, as_csv(rows).encode(), synced=False)
    replace_file(markdown_file, as_markdown(rows).encode(), synced=False)


def as_csv(rows: Sequence[TableRow]) -> str:
    """Return the table with all digits. Unknown values are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_markdown(rows: Sequence[TableRow]) -> str:
    """Return the table with rounded numbers."""
    header = list(rows[0])
    rule = ["---" if isinstance(rows[0][name], str) else "---:" for name in header]
    body = [[_rounded(name, row[name]) for name in header] for row in rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [header, rule, *body])


def _rounded(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name in _COMPACT:
        return compact(value)
    if isinstance(value, float):
        return rounded(value)
    return str(value).replace("|", "\\|")  # which would begin another cell


# --- graphs -------------------------------------------------------------------------------------------------

_AXES: tuple[XAxis, ...] = ("steps", "time")
_MOST_NAMED = 3
"""Directories that a message names; the others are counted."""


def plot_experiment(experiment: Path, trials: Sequence[Path], notify: Callable[[str], None]) -> None:
    """Plot the returns of each trial and of all trials together, over env steps and over time.

    Graphs that are newer than all metrics that they show stay as they are.

    Args:
        experiment: Path of the experiment.
        trials: Paths of its trials. Those without returns are skipped.
        notify: Called with a message before each directory is plotted, if a session ends a curve of the experiment
            early, with the characters that the font lacks, and at the end with the directories that are not plotted.
    """
    of_fonts = once(notify)  # the graphs have mostly the same texts
    failed: dict[str, list[Path]] = {}
    for folder in (*trials, experiment):
        files = {x: folder / f"return-{x}.png" for x in _AXES}
        notify_of_runs = notify if folder == experiment else ignore  # else each message would be there twice
        try:
            runs = runs_of(folder)
            if _are_newer(files.values(), [run / "metrics.jsonl" for run in runs]):
                continue
            notify(f"plotting {folder.name}")
            for x, file in files.items():
                write_figure(draw_runs(runs, x, notify=notify_of_runs), file, of_fonts)
        except NoReturns:
            continue
        except (ConfigError, OSError) as error:
            failed.setdefault(str(error), []).append(folder)
    for reason, folders in failed.items():  # that of a trial is also one of the experiment
        names = first_few([folder.name for folder in folders], _MOST_NAMED)
        verb = "is" if len(folders) == 1 else "are"
        command = f"`offbeat plot {quote(str(folders[-1]))}`"
        notify(f"{' and '.join(names)} {verb} not plotted: {reason}; to try again, run {command}")


def _are_newer(files: Iterable[Path], others: Iterable[Path]) -> bool:
    """Whether all files exist, and were written after all others."""
    try:
        return min(file.stat().st_mtime_ns for file in files) > max(other.stat().st_mtime_ns for other in others)
    except OSError:
        return False
