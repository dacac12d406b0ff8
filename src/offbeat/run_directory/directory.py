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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any, Literal, TextIO

from offbeat.config.registry import accept, is_accepted
from offbeat.config.resolve import load, load_run, read_tables
from offbeat.config.tables import Config, RunConfig
from offbeat.config.trust import HOW, Code, code_of, require
from offbeat.core.errors import ConfigError, RunFailed
from offbeat.core.fields import in_short
from offbeat.core.files import replace_file, sync
from offbeat.core.strict_json import LARGEST_RECORD, read_json
from offbeat.run_directory.checkpoint import Checkpoint
from offbeat.run_directory.checkpoint import load as load_checkpoint
from offbeat.run_directory.store import CheckpointStore

RunState = Literal["running", "finished", "interrupted", "failed"]
LOCK_TRIES, LOCK_PAUSE_S = 5, 0.02
"""Who only looks whether a run is locked holds its lock for a moment; so it is tried more than once."""
POLL_EVERY_S = 1.0
"""Seconds between checks whether the run directory is still there."""


class RunDirectoryGone(RunFailed):
    """The run directory was deleted, or moved, while the run went on."""


def lock(file: TextIO, otherwise: str) -> None:
    """Lock an open file for this process alone; the lock goes with the file, or with the process.

    Raises:
        ConfigError: another process holds it; the message is `otherwise`.
    """
    for _ in range(LOCK_TRIES):
        with suppress(OSError):
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(LOCK_PAUSE_S)
    raise ConfigError(otherwise)


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
        self.tracker = path / "tracker.json"
        self._lock = path / ".lock"
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
            directory.command.write_text(shlex.join(sys.argv) + "\n")
            config.save(directory.config)
            for made in directory._made:
                sync(made.parent)
        except OSError as error:
            directory.discard()
            raise ConfigError(
                f"the run directory {path} cannot be made ({error.strerror}): make room, or give another with --run-dir"
            ) from None
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
            raise ConfigError(f"{name!r} names no checkpoint: pass --checkpoint latest, best or step-<12 digits>")
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

    def sync_metrics(self) -> None:
        """Return when all metrics lines are on the disk.

        Raises:
            OSError: they could not be written.
        """
        if self.metrics.exists():
            sync(self.metrics)

    # --- its state, as other programs see it ----------------------------------------------------------------

    def write_status(self, state: RunState, reason: str = "", children: Mapping[str, Sequence[int]] = {}) -> None:
        """Replace status.json; `children` are the ids of the child processes, by role and index."""
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
        self.put_status((json.dumps(status, indent=1) + "\n").encode(), synced=state != "running")

    def put_status(self, content: bytes, *, synced: bool = True) -> None:
        """Replace status.json by this, in one step; where there is no room for a second file, where it lies."""
        try:
            replace_file(self.status, content, synced=synced)
        except OSError:
            with suppress(OSError):  # a full disk costs the news, not the run
                _overwrite(self.status, content)

    def read_status(self) -> dict[str, Any]:
        """Return status.json; empty if there is none, or it is no JSON object."""
        with suppress(OSError, ValueError):
            return read_json(self.status, LARGEST_RECORD)
        return {}

    def crash(self) -> str:
        """Say that the run crashed, if it did: status.json says running, and no process holds the run's lock."""
        status = self.read_status()
        if status.get("state") != "running" or self.is_locked():
            return ""
        updated = in_short(status.get("updated"))
        return (
            f"{self.path} has crashed: its status, of {updated}, is running, but its process is gone. "
            f"What it had saved is whole: `offbeat resume {self.path}` goes on from there"
        )

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for this process alone; the lock dies with the process.

        Raises:
            ConfigError: another process is training in it, or the folder cannot be written to.
        """
        try:
            file = self._lock.open("a")
        except OSError as error:
            raise ConfigError(
                f"{self.path} cannot be written to ({error.strerror}), and training needs that: make it writable"
            ) from None
        with file:
            lock(file, f"another process is training in {self.path}: wait for it, or stop it first")
            yield

    def is_locked(self) -> bool:
        """Whether a process is training in it."""
        if not self._lock.is_file():
            return False
        try:
            with self._lock.open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    def presence(self) -> Presence:
        """Return what tells from now on whether the directory is still there."""
        return Presence(self.path)

    def discard(self) -> None:
        """Delete the run, and the folders that were made for it, as far as they are empty."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):  # one is not empty
            for parent in self._made[1:]:
                parent.rmdir()

    def note(self, text: str) -> None:
        """Add to log.txt what happened and when."""
        with suppress(OSError), self.log.open("a") as log:
            log.write(f"{_now()} {text}\n")


class Presence:
    """Tells whether a run directory is still the one that it was."""

    def __init__(self, path: Path) -> None:
        self._named, self._path = path, path.absolute()
        self._identity, self._next_poll = _identity(self._path), 0.0

    def require(self, *, at_once: bool = False) -> None:
        """Look whether it is there: every `POLL_EVERY_S` seconds, however often this is called, or at once.

        Raises:
            RunDirectoryGone: it is not.
        """
        if monotonic() < self._next_poll and not at_once:
            return
        self._next_poll = monotonic() + POLL_EVERY_S
        now = _identity(self._path)
        if now is None or now != self._identity:
            raise RunDirectoryGone(
                f"the run directory {self._named} was deleted or moved while the run went on: the run stops, and what "
                "it learned since its last checkpoint is lost"
            )


def _overwrite(path: Path, content: bytes) -> None:
    """Write to a file where it lies: within the blocks that it has, this needs no more room."""
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a folder from others, None if it is not there."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


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
            if stat.S_ISLNK(mode) and not _leads_inside(path, inside) and not _is_log_of_wandb(path, inside):
                raise ConfigError(
                    f"{path} is a link to {path.readlink()}, outside of the run: what is written to it would be "
                    f"written there. If the run is your own, {HOW}"
                )


def _is_log_of_wandb(link: Path, run: Path) -> bool:
    """Whether it is a link that W&B made to a log of its own, in its folder of a part of the run that has ended."""
    return link.relative_to(run).match("wandb/*run-*/logs/*.log")


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
