"""A run's directory: its files, and its state as other programs see it."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, TextIO

from offbeat.checkpoint import Checkpoint, CheckpointStore
from offbeat.checkpoint import load as load_checkpoint
from offbeat.config import Config, RunConfig, load, load_run, read_tables
from offbeat.errors import ConfigError
from offbeat.fields import in_short
from offbeat.registry import accept, is_accepted
from offbeat.trust import HOW, Code, code_of, require

RunState = Literal["running", "finished", "interrupted", "failed"]


def hold(file: TextIO, otherwise: str) -> None:
    """Lock an open file for this process alone; the lock goes with the file, or with the process.

    Raises:
        ConfigError: another process holds it; the message is `otherwise`.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise ConfigError(otherwise) from None


class RunDirectory:
    """Paths of a run directory, and its status file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.toml"
        self.command = path / "command.txt"
        self.metrics = path / "metrics.jsonl"
        self.status = path / "status.json"
        self.log = path / "log.txt"
        self.tensorboard = path / "tensorboard"
        self.checkpoints = path / "checkpoints"
        self._made: list[Path] = []
        """What `create` has made, the run directory first, then its parents."""

    @classmethod
    def create(cls, path: Path, config: Config) -> RunDirectory:
        """Make a new run directory.

        Raises:
            ConfigError: something is there already, or it cannot be made.
        """
        directory = cls(path)
        directory.refuse_existing()
        directory._made = [p for p in (path, *path.parents) if not p.exists()]
        try:
            path.mkdir(parents=True)
        except OSError as error:
            raise ConfigError(
                f"the run directory {path} cannot be made ({error.strerror}): give another with --run-dir"
            ) from None
        config.save(directory.config)
        directory.command.write_text(shlex.join(sys.argv) + "\n")
        return directory

    def refuse_existing(self) -> None:
        """Raise ConfigError if there is something at the path: a run is never reused silently."""
        if self.path.exists() or self.path.is_symlink():
            go_on = f", or go on with `offbeat resume {self.path}`" if self.config.is_file() else ""
            raise ConfigError(f"the run directory {self.path} exists: give another with --run-dir{go_on}")

    @classmethod
    def open(cls, path: Path, *, trust_code: bool = False) -> RunDirectory:
        """Return an existing run's directory.

        Raises:
            ConfigError: there is no run, or a link in it leads elsewhere and the caller does not trust it.
        """
        directory = cls(path)
        if trust_code:
            accept(str(path.resolve()))
        if not directory.config.is_file():
            raise ConfigError(f"{path} is no run directory (it has no config.toml): give one that `offbeat train` made")
        _require_inside(path)
        return directory

    def code(self) -> Code:
        """Return the code that the config names."""
        return code_of(read_tables(self.config))

    def require_code(self, *, trust_code: bool = False) -> None:
        """Refuse a run that names code which the caller has neither named nor installed; see `trust.require`.

        Raises:
            ConfigError: with what was refused, and how to allow it; nothing of it was imported.
        """
        require(self.code(), str(self.path), trust_code=trust_code)

    def read_config(self) -> Config:
        return load(self.config)

    def read_run(self) -> RunConfig:
        """Return the [run] part of the config, which needs no torch."""
        return load_run(self.config)

    def read_checkpoint(self, name: str, *, with_replay: bool = False) -> Checkpoint:
        """Read one of the run's checkpoints and verify it; its replay too if that is asked for.

        Raises:
            ConfigError: there is none of that name, or it is damaged or of another env.
        """
        if Path(name).name != name:
            raise ConfigError(f"{name!r} names no checkpoint: type --checkpoint latest, best or step-<12 digits>")
        saved = load_checkpoint(self.store().path(name), with_replay=with_replay)
        env, trained_on = self.read_run().env, saved.policy.get("env")
        if trained_on != env:
            raise ConfigError(
                f"the checkpoint {name} of {self.path} was trained on {_named(trained_on)}, but the run's "
                f"config.toml says {env}: put back the checkpoint, or the config, that belongs here"
            )
        return saved

    def store(self, kept: int = 1) -> CheckpointStore:
        """Return the run's checkpoints."""
        return CheckpointStore(self.checkpoints, kept)

    def write_status(self, state: RunState, reason: str = "", children: Mapping[str, Sequence[int]] = {}) -> None:
        """Replace status.json in one step; `children` are the ids of the child processes, by role and index."""
        main = {"role": "main", "index": 0, "pid": os.getpid()}
        others = (
            {"role": role, "index": i, "pid": pid} for role, pids in children.items() for i, pid in enumerate(pids)
        )
        status = {
            "state": state,
            "reason": reason,
            "updated": _now(),
            "processes": [main, *others],
        }
        temporary = self.status.with_suffix(".writing")
        with suppress(OSError):  # a full disk costs the news, not the run
            temporary.write_text(json.dumps(status, indent=1) + "\n")
            temporary.replace(self.status)

    def discard(self) -> None:
        """Delete the run, and the folders that were made for it, as far as they are empty."""
        shutil.rmtree(self.path)
        for parent in self._made[1:]:
            if any(parent.iterdir()):
                break
            parent.rmdir()

    def note(self, text: str) -> None:
        """Add to log.txt what happened and when."""
        with suppress(OSError), self.log.open("a") as log:
            log.write(f"{_now()} {text}\n")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _named(env: object) -> str:
    return env if isinstance(env, str) and env.isprintable() and len(env) < 200 else in_short(env)


def _require_inside(run: Path) -> None:
    """Refuse links that lead out of a run directory, and what is neither a file nor a folder.

    What is written into the run would else be written elsewhere: log.txt could be a link to a file of the user's.

    Raises:
        ConfigError: with the first that was found.
    """
    inside = run.resolve()
    if is_accepted(str(inside)):
        return
    for folder, folders, files in os.walk(inside):
        for path in (Path(folder, name) for name in (*folders, *files)):
            mode = path.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
                raise ConfigError(f"{path} is neither a file nor a folder, and does not belong in a run: delete it")
            if stat.S_ISLNK(mode) and not _leads_inside(path, inside):
                raise ConfigError(
                    f"{path} is a link to {path.readlink()}, outside of the run: what is written to it would be "
                    f"written there. If the run is your own, {HOW}"
                )


def _leads_inside(link: Path, folder: Path) -> bool:
    try:
        return link.resolve().is_relative_to(folder)
    except (OSError, RuntimeError):  # it leads to itself
        return False


def default_path(config: Config) -> Path:
    """Return runs/<algorithm>-<env>-s<seed>-<time>, which does not exist yet."""
    names = f"{config.run.algorithm}-{config.run.env}".replace("/", "-").replace(":", "-")
    stem = f"{names}-s{config.run.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, again = Path("runs") / stem, 1
    while path.exists():
        again += 1
        path = Path("runs") / f"{stem}-{again}"
    return path
