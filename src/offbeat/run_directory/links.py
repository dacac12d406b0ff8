"""Refuses links that lead out of a run directory, or out of the directory of an experiment or population.

A run that is written through such a link could change other files of the user.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from offbeat.config.importing import is_accepted
from offbeat.config.trust import TRUST_FLAG
from offbeat.core.errors import ConfigError


def require_inside(run: Path) -> None:
    """Refuse links that lead out of a directory, and special files, unless the caller has accepted the directory.

    Raises:
        ConfigError: with the first such path.
    """
    if not is_accepted(str(run.resolve())) and (problem := _first_problem(run)):
        raise ConfigError(problem)


def leads_outside(run: Path) -> bool:
    """Whether `require_inside` would refuse the directory in a process in which nothing was accepted."""
    return bool(_first_problem(run))


def _first_problem(run: Path) -> str:
    """Return the message about the first link that leads out of a directory, or special file; '' if there is none."""
    inside = run.resolve()
    for folder, folders, files in os.walk(inside):
        for path in (Path(folder, name) for name in (*folders, *files)):
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:  # the run still trains, and has deleted an older checkpoint
                continue
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
                return f"{path} is neither a file nor a folder: delete it"
            if stat.S_ISLNK(mode) and not _leads_inside(path, inside) and not _is_log_of_wandb(path, inside):
                return (
                    f"{path} is a link to {path.readlink()}, outside of the run, which offbeat would "
                    f"then write to. If the run is your own, pass {TRUST_FLAG}; otherwise delete the link"
                )
    return ""


def _is_log_of_wandb(link: Path, run: Path) -> bool:
    """Whether a link is one that W&B makes to its own log."""
    return link.relative_to(run).match("wandb/*run-*/logs/*.log")


def _leads_inside(link: Path, folder: Path) -> bool:
    try:
        return link.resolve().is_relative_to(folder)
    except (OSError, RuntimeError):  # the link points to itself
        return False
