"""The directory of a run: its files, its status file, and its lock."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from shlex import quote
from time import monotonic
from typing import Any, Literal, TextIO

from offbeat.config.config import Config
from offbeat.config.importing import accept, is_accepted
from offbeat.config.league import LeagueConfig
from offbeat.config.resolve import league_of, load, load_run, load_settings_of, read_tables
from offbeat.config.run_config import RunConfig
from offbeat.config.trust import HOW, UNCHANGED, Code, code_to_run, require
from offbeat.core.errors import ConfigError, RunFailed
from offbeat.core.fields import in_short
from offbeat.core.files import replace_file, sync, user_path
from offbeat.core.strict_json import LARGEST_RECORD, read_json
from offbeat.run_directory.checkpoint import Checkpoint, SavedPolicy
from offbeat.run_directory.checkpoint import load as load_checkpoint
from offbeat.run_directory.snapshots import SnapshotStore
from offbeat.run_directory.store import CheckpointStore

RunState = Literal["running", "finished", "interrupted", "failed"]
LOCK_TRIES, LOCK_PAUSE_S = 5, 0.02
"""`is_locked` takes the lock for a moment, so locking is tried more than once."""
POLL_EVERY_S = 1.0
"""Seconds between checks whether the run directory is still there."""


class RunDirectoryGone(RunFailed):
    """The run directory was deleted or moved during the run."""


def lock(file: TextIO, message: str) -> None:
    """Lock an open file for this process. The lock ends with the file or the process.

    Raises:
        ConfigError: another process has the lock. The message is `message`.
    """
    for _ in range(LOCK_TRIES):
        with suppress(OSError):
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(LOCK_PAUSE_S)
    raise ConfigError(message)


class RunDirectory:
    """The files of a run."""

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
        self._created: list[Path] = []
        """The folders that `create` has created: the run directory first, then its parents."""

    @classmethod
    def create(cls, path: Path, config: Config) -> RunDirectory:
        """Create a new run directory.

        Raises:
            ConfigError: the path exists, or the directory cannot be created.
        """
        directory = cls(path)
        directory.refuse_existing()
        directory._created = [p for p in (path, *path.parents) if not p.exists()]
        try:
            path.mkdir(parents=True)
            directory.command.write_text(shlex.join(sys.argv) + "\n")
            config.save(directory.config)
            for folder in directory._created:
                sync(folder.parent)
        except OSError as error:
            directory.discard()
            raise ConfigError(
                f"the run directory {path} cannot be created ({error.strerror}): free some disk space, or pass another "
                "--run-dir"
            ) from None
        return directory

    def refuse_existing(self) -> None:
        """Raise ConfigError if the path exists: a run is never reused silently."""
        if self.path.exists() or self.path.is_symlink():
            resume = f", or run `offbeat resume {quote(str(self.path))}`" if self.config.is_file() else ""
            raise ConfigError(f"the run directory {self.path} exists: pass another --run-dir{resume}")

    @classmethod
    def open(cls, path: Path, *, trust_code: bool = False) -> RunDirectory:
        """Return an existing run's directory.

        Raises:
            ConfigError: there is no run, or it has a link to another directory and is not trusted.
        """
        path = user_path(path)
        directory = cls(path)
        if trust_code:
            accept(str(path.resolve()))
        if not directory.config.is_file():
            raise ConfigError(
                f"{path} is not a run directory (it has no config.toml): pass one that `offbeat train` has created"
            )
        _require_inside(path)
        return directory

    def code(self, changes: Mapping[str, object] = UNCHANGED) -> Code:
        """Return the code that the run would use if it is resumed with these settings."""
        return code_to_run(read_tables(self.config), changes)

    def require_code(self, changes: Mapping[str, object], *, trust_code: bool = False) -> None:
        """Refuse to resume a run with code that the caller has neither named nor installed; see `trust.require`.

        Args:
            changes: settings that the caller has changed, by key.
            trust_code: accept all code.

        Raises:
            ConfigError: with the refused code, and how to allow it. Nothing was imported.
        """
        require(self.code(changes), str(self.path), trust_code=trust_code)

    def next_old_config(self) -> Path:
        """Return the path for the config of the run so far, before a resume changes settings: config-1.toml, ..."""
        return next(path for n in count(1) if not (path := self.path / f"config-{n}.toml").exists())

    def read_config(self) -> Config:
        """Return the config of the run."""
        return load(self.config)

    def read_run(self) -> RunConfig:
        """Return the [run] part of the config, which needs no torch."""
        return load_run(self.config)

    def read_settings_of(self, policy: str) -> dict[str, object]:
        """Return the algorithm's settings of a policy as the config has them, unchecked and without their code."""
        return load_settings_of(self.config, policy)

    def read_league(self) -> LeagueConfig | None:
        """Return the table [league] of the config, which needs no torch; None if the run has no league."""
        return league_of(read_tables(self.config), str(self.config))

    def read_checkpoint(self, name: str, *, with_replay: bool = False) -> Checkpoint:
        """Read and verify a checkpoint.

        Args:
            name: latest, best or step-<12 digits>.
            with_replay: Whether to read and verify its replay too.

        Raises:
            ConfigError: there is no such checkpoint, or it is damaged or of another env.
        """
        if Path(name).name != name:
            raise ConfigError(
                f"{name!r} is not the name of a checkpoint: pass --checkpoint latest, best or step-<12 digits>"
            )
        saved = load_checkpoint(self.store().path(name), with_replay=with_replay)
        self._require_env(saved.policies, f"checkpoint {name}")
        return saved

    def _require_env(self, policies: Mapping[str, SavedPolicy], what: str) -> None:
        """Raise ConfigError if the config of the run has another env than saved policies."""
        env = self.read_run().env
        for policy in policies.values():
            trained_on = policy.about.get("env")
            if trained_on != env:
                raise ConfigError(
                    f"the {what} of {self.path} was trained on {_named(trained_on)}, but the run's config.toml has "
                    f"{env}: restore the original files"
                )

    def store(self, max_full: int = 1) -> CheckpointStore:
        """Return the checkpoints of the run; saving keeps the newest `max_full` full ones."""
        return CheckpointStore(self.checkpoints, max_full)

    def snapshots(self) -> SnapshotStore:
        """Return the snapshots of the run's league."""
        return SnapshotStore(self.path / "league")

    def read_snapshot(self, policy: str, number: int) -> SavedPolicy:
        """Read and verify a snapshot of the run's league.

        Raises:
            ConfigError: there is no such snapshot, or it is damaged or of another env.
        """
        saved = self.snapshots().load(policy, number)
        self._require_env({policy: saved}, f"snapshot {number}")
        return saved

    def sync_metrics(self) -> None:
        """Sync all metrics lines to the disk.

        Raises:
            OSError: they could not be written.
        """
        if self.metrics.exists():
            sync(self.metrics)

    # --- status -------------------------------------------------------------------------------------------

    def write_status(self, state: RunState, reason: str = "", children: Mapping[str, Mapping[int, int]] = {}) -> None:
        """Replace status.json.

        Args:
            state: State of the run.
            reason: Why the run ended; '' while it is running.
            children: Role -> index -> process id of the child processes.
        """
        main = {"role": "main", "index": 0, "pid": os.getpid()}
        others = ({"role": role, "index": i, "pid": pid} for role, pids in children.items() for i, pid in pids.items())
        status = {
            "state": state,
            "reason": reason,
            "updated": _now(),
            "processes": [main, *others],
        }
        self.put_status((json.dumps(status, indent=1) + "\n").encode(), synced=state != "running")

    def put_status(self, content: bytes, *, synced: bool = True) -> None:
        """Replace status.json atomically; on a full disk, overwrite it in place."""
        try:
            replace_file(self.status, content, synced=synced)
        except OSError:
            with suppress(OSError):  # a full disk must not end the run
                _overwrite(self.status, content)

    def read_status(self) -> dict[str, Any]:
        """Return status.json; empty if it is missing or not a JSON object."""
        with suppress(OSError, ValueError):
            return read_json(self.status, LARGEST_RECORD)
        return {}

    def crash(self) -> str:
        """Return a message if the run crashed, else '': its status is running, but no process has its lock."""
        status = self.read_status()
        if status.get("state") != "running" or self.is_locked():
            return ""
        updated = in_short(status.get("updated"))
        return (
            f"{self.path} has crashed: its status is running (last updated {updated}), but its process no longer "
            f"exists. Its checkpoints are complete: continue with `offbeat resume {quote(str(self.path))}`"
        )

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the run for this process while entered.

        Raises:
            ConfigError: another process has the lock, or the folder is not writable.
        """
        try:
            file = self._lock.open("a")
        except OSError as error:
            raise ConfigError(
                f"{self.path} cannot be written to ({error.strerror}): make it writable, because training writes to it"
            ) from None
        with file:
            lock(file, f"another process is training in {self.path}: wait for it, or stop it first")
            yield

    def is_locked(self) -> bool:
        """Whether a process has the lock of the run."""
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
        """Return an object that checks whether the directory still exists."""
        return Presence(self.path)

    def discard(self) -> None:
        """Delete the run, and the empty parent folders that were created for it."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):  # a folder is not empty
            for parent in self._created[1:]:
                parent.rmdir()

    def note(self, text: str) -> None:
        """Append a text with the time to log.txt."""
        with suppress(OSError), self.log.open("a") as log:
            log.write(f"{_now()} {text}\n")


class Presence:
    """Checks whether a run directory still exists and is the same one."""

    def __init__(self, path: Path) -> None:
        self._named, self._path = path, path.absolute()
        self._identity, self._next_poll = _identity(self._path), 0.0

    def require(self, *, at_once: bool = False) -> None:
        """Check the directory, at most every `POLL_EVERY_S` seconds, or `at_once`.

        Raises:
            RunDirectoryGone: it was deleted, moved or replaced.
        """
        if monotonic() < self._next_poll and not at_once:
            return
        self._next_poll = monotonic() + POLL_EVERY_S
        now = _identity(self._path)
        if now is None or now != self._identity:
            raise RunDirectoryGone(
                f"the run directory {self._named} was deleted or moved during the run: the run stops, and all "
                "progress since its last checkpoint is lost"
            )


def _overwrite(path: Path, content: bytes) -> None:
    """Overwrite a file in place, which needs no more space on the disk."""
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the identity of a folder (device and inode); None if it does not exist."""
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
    """Refuse links that lead out of a run directory, and special files.

    A run that is written through such a link could change other files of the user.

    Raises:
        ConfigError: with the first such path.
    """
    inside = run.resolve()
    if is_accepted(str(inside)):
        return
    for folder, folders, files in os.walk(inside):
        for path in (Path(folder, name) for name in (*folders, *files)):
            mode = path.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
                raise ConfigError(f"{path} is neither a file nor a folder: delete it")
            if stat.S_ISLNK(mode) and not _leads_inside(path, inside) and not _is_log_of_wandb(path, inside):
                raise ConfigError(
                    f"{path} is a link to {path.readlink()}, outside of the run, which offbeat would "
                    f"then write to. If the run is your own, {HOW}; otherwise delete the link"
                )


def _is_log_of_wandb(link: Path, run: Path) -> bool:
    """Whether a link is one that W&B makes to its own log."""
    return link.relative_to(run).match("wandb/*run-*/logs/*.log")


def _leads_inside(link: Path, folder: Path) -> bool:
    try:
        return link.resolve().is_relative_to(folder)
    except (OSError, RuntimeError):  # the link points to itself
        return False


def default_path(config: Config) -> Path:
    """Return runs/<algorithm>-<env>-s<seed>-<time>, which does not exist yet."""
    names = f"{config.run.algorithm}-{config.run.env}".replace("/", "-").replace(":", "-")
    stem = f"{names}-s{config.run.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, number = Path("runs") / stem, 1
    while path.exists():
        number += 1
        path = Path("runs") / f"{stem}-{number}"
    return path
