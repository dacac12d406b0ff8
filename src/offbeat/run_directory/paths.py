"""Paths of runs: which folders are runs, and where a new run goes."""

from __future__ import annotations

import time
from pathlib import Path
from shlex import quote

from offbeat.config.config import Config
from offbeat.core.errors import ConfigError
from offbeat.core.files import user_path
from offbeat.run_directory.checkpoint import MANIFEST

MOST_BYTES_OF_NAMES = 150
"""Largest part of the algorithm and the env in the name of a run directory: file systems allow 255 bytes for all."""


def require_run(path: Path) -> None:
    """Raise ConfigError if a path is not that of a run directory."""
    if is_pushed(path):
        run = path.parent if (path.parent / "config.toml").is_file() else None
        remedy = "pass the run" if run is None else f"pass {quote(str(run))}"
        raise ConfigError(f"{path} has the files that `offbeat push` uploads, but a run is expected: {remedy}")
    if not (path / "config.toml").is_file():
        if path.parent.name == "checkpoints" and (path.parents[1] / "config.toml").is_file():
            raise ConfigError(
                f"{path} is a checkpoint of a run, but a run is expected: pass {quote(str(path.parents[1]))}. Where a "
                f'checkpoint can be chosen, pass --checkpoint "{path.name}"'
            )
        runs = _runs_in(path, "*") or _runs_in(path, "*/*")  # of an experiment
        example = f", such as {quote(str(runs[0]))}" if runs else " that `offbeat train` has created"
        fault = "it has no config.toml" if path.exists() else "it does not exist"
        raise ConfigError(f"{path} is not a run directory ({fault}): pass one{example}")


def _runs_in(path: Path, pattern: str) -> list[Path]:
    """Return the run directories that match a pattern in a folder."""
    return sorted(file.parent for file in path.glob(f"{pattern}/config.toml") if not is_pushed(file.parent))


def is_pushed(path: Path) -> bool:
    """Whether a folder has a policy with the config of its run, as `offbeat push` uploads them."""
    return (path / MANIFEST).is_file() and (path / "config.toml").is_file()


def default_path(config: Config) -> Path:
    """Return runs/<algorithm>-<env>-s<seed>-<time>, which does not exist yet.

    Raises:
        ConfigError: no file can be looked up in the current folder.
    """
    names = f"{config.run.algorithm}-{config.run.env}".replace("/", "-").replace(":", "-")
    short = names.encode()[:MOST_BYTES_OF_NAMES].decode(errors="ignore")
    stem = f"{short}-s{config.run.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, number = user_path(Path("runs") / stem), 1
    while path.exists():
        number += 1
        path = Path("runs") / f"{stem}-{number}"
    return path
