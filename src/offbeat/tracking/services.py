"""The trackers, each begun in its own words; from then on both take `log(metrics, step)` and `finish()`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from offbeat.run_directory.directory import RunState

BEGIN_S = 60.0
"""Seconds that a tracker gets to begin."""
PROJECT = "offbeat"
"""Where runs go, unless the environment names a project."""
_EXIT_CODES: Mapping[RunState, int] = {"finished": 0, "interrupted": 255, "failed": 1}
"""W&B shows 255 as killed, and 1 as failed."""


@dataclass(frozen=True)
class LaunchSpec:
    """What a tracker's process is given at its start."""

    tracker: str
    parent: int
    directory: Path
    """The run's."""
    name: str
    """Of a run that is new to the tracker."""
    config: dict[str, Any]
    """The tables of config.toml."""
    known: dict[str, str]
    """What the tracker calls the run, if it goes on with one: project, name and id; else empty."""
    position: int
    """Bytes of metrics.jsonl that the tracker need not see."""
    bell: int
    """File descriptor: a byte for each line, and one for how the run has ended."""


@dataclass(frozen=True)
class Tracked:
    """A run as a tracker has it."""

    run: Any
    """The tracker's own object."""
    known: dict[str, str]
    """See `LaunchSpec`."""
    where: str
    """Where to look at it, for a person."""
    endings: Mapping[RunState, dict[str, Any]] = field(default_factory=dict)
    """What `finish` is told, by how the run has ended."""


def _begin_wandb(launch: LaunchSpec) -> Tracked:
    import wandb

    settings = wandb.Settings(console="off", init_timeout=BEGIN_S / 2, x_stats_pid=launch.parent)
    new: dict[str, Any] = {
        "project": os.environ.get("WANDB_PROJECT", PROJECT),
        "name": os.environ.get("WANDB_NAME", launch.name),
    }
    go_on = {"resume": "allow"} if launch.known else {}
    run: Any = wandb.init(dir=launch.directory, settings=settings, **{**new, **launch.known, **go_on})
    run.config.update(launch.config, allow_val_change=True)  # a run that goes on may have more steps
    known = {"project": run.project, "name": run.name or launch.name, "id": run.id}
    where = run.url or ("nowhere, as it is disabled" if run.disabled else f"offline, in {launch.directory / 'wandb'}")
    return Tracked(run, known, where, {state: {"exit_code": code} for state, code in _EXIT_CODES.items()})


def _begin_trackio(launch: LaunchSpec) -> Tracked:
    import trackio

    new = {"project": os.environ.get("TRACKIO_PROJECT", PROJECT), "name": launch.name, "resume": "never"}
    go_on = {"resume": "allow"} if launch.known else {}
    run = trackio.init(config=launch.config, **{**new, **launch.known, **go_on})
    known = {"project": new["project"], **launch.known, "name": run.name}
    return Tracked(run, known, f"project {known['project']}, run {run.name}; run trackio show")


BEGIN: Mapping[str, Callable[[LaunchSpec], Tracked]] = {"wandb": _begin_wandb, "trackio": _begin_trackio}
"""tracker -> how it begins; what it raises is its own."""
