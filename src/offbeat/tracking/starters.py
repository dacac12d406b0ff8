"""One function per tracker, which starts a run. The runs of both trackers have `log(metrics, step)` and `finish()`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from offbeat.run_directory.directory import RunState
from offbeat.tracking.tracker_file import TrackerFile

START_S = 60.0
"""Seconds in which a tracker must start."""
PROJECT = "offbeat"
"""Default project; environment variables of the trackers override it."""
_EXIT_CODES: Mapping[RunState, int] = {"finished": 0, "interrupted": 255, "failed": 1}
"""W&B shows 255 as killed, and 1 as failed."""


@dataclass(frozen=True)
class TrackerLaunch:
    """The arguments of a tracker's process."""

    parent: int
    """Id of the training process, whose system metrics W&B logs."""
    directory: Path
    """Path of the run directory."""
    name: str
    """Name of a run that is new to the tracker."""
    config: dict[str, Any]
    """The tables of config.toml, without the cluster."""
    before: TrackerFile
    """The run that is continued, with the position after the lines that stay."""
    pipe: int
    """File descriptor to read from: one byte per new line, and one for the state in which the run ended."""


@dataclass(frozen=True)
class StartedRun:
    """A run that a tracker has started."""

    run: Any
    """The tracker's own object."""
    known: dict[str, str]
    """See `TrackerFile`."""
    location: str
    """Where the user finds the run, for a message."""
    endings: Mapping[RunState, dict[str, Any]] = field(default_factory=dict)
    """State in which the run ended -> arguments of `finish`."""
    has_lines: Literal["after log", "after finish", "never"] = "after log"
    """When the tracker has the lines, so that a resume does not log them again. W&B's `log` only puts them in a queue,
    which is lost if a process is killed."""
    first_step: int = 0
    """Lines of earlier env steps are not logged: the tracker has them."""


def _start_wandb(launch: TrackerLaunch) -> StartedRun:
    import wandb

    settings = wandb.Settings(console="off", init_timeout=START_S / 2, x_stats_pid=launch.parent)
    new: dict[str, Any] = {
        "project": os.environ.get("WANDB_PROJECT", PROJECT),
        "name": os.environ.get("WANDB_NAME", launch.name),
    }
    resume = {"resume": "allow"} if launch.before.known else {}
    run: Any = wandb.init(dir=launch.directory, settings=settings, **{**new, **launch.before.known, **resume})
    run.config.update(launch.config, allow_val_change=True)  # a resumed run may have more steps
    if run.disabled:
        return StartedRun(run, launch.before.known, "nowhere, because W&B is disabled", has_lines="never")
    known = {"project": run.project, "name": run.name or launch.name, "id": run.id}
    if run.entity:  # not known offline, unless it is given
        known["entity"] = run.entity
    return StartedRun(
        run,
        known,
        location=run.url or f"offline, in {launch.directory / 'wandb'}",
        endings={state: {"exit_code": code} for state, code in _EXIT_CODES.items()},
        has_lines="after finish",
        first_step=run.starting_step,
    )


def _start_trackio(launch: TrackerLaunch) -> StartedRun:
    import trackio

    new = {"project": os.environ.get("TRACKIO_PROJECT", PROJECT), "name": launch.name, "resume": "never"}
    resume = {"resume": "allow"} if launch.before.known else {}
    run = trackio.init(config=launch.config, **{**new, **launch.before.known, **resume})
    known = {"project": new["project"], **launch.before.known, "name": run.name}
    return StartedRun(run, known, f"project {known['project']}, run {run.name}; run trackio show")


STARTERS: Mapping[str, Callable[[TrackerLaunch], StartedRun]] = {"wandb": _start_wandb, "trackio": _start_trackio}
"""Tracker -> function that starts a run. It may raise any exception of the tracker."""
