"""Whatever a command does with a run that crashed, it says first that it did."""

from __future__ import annotations

import sys
from pathlib import Path


def tell_crashes(command: object) -> None:
    """Say on stderr which of the runs that a command names have crashed: status.json still says running."""
    named = getattr(command, "runs", None) or (getattr(command, "run_directory", None),)
    paths = [path for name in named if name is not None for path in _runs_in(Path(name))]
    if not paths:
        return
    from offbeat.run_directory.directory import RunDirectory

    for path in paths:
        if crash := RunDirectory(path).crash():
            print(f"offbeat: {crash}", file=sys.stderr)


def _runs_in(path: Path) -> list[Path]:
    """Return the directories with a status: the run itself, or the sessions of a trial or an experiment."""
    patterns = ("status.json", "seed-*/status.json", "trial-*/seed-*/status.json")
    return sorted(status.parent for pattern in patterns for status in path.glob(pattern))
