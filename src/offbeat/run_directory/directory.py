"""The directory of a run: its files, its checkpoints, its status, and its lock."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from offbeat.config.config import Config
from offbeat.config.config_file import league_of, load, load_run, load_runtime, load_settings_of, read_tables
from offbeat.config.importing import accept
from offbeat.config.league import LeagueConfig
from offbeat.config.run_config import RunConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.config.trust import Code, code_to_run, flags_for, require
from offbeat.core.errors import ConfigError
from offbeat.core.fields import in_short, shortened
from offbeat.core.files import GivenPath, remedy_for, replace_or_overwrite, sync, user_path
from offbeat.core.frozen_table import EMPTY
from offbeat.core.strict_json import LARGEST_RECORD, read_json
from offbeat.run_directory.checkpoint import POLICY, STATE, STATE_BYTES, Checkpoint, SavedPolicy
from offbeat.run_directory.links import require_inside
from offbeat.run_directory.lock import is_locked, locked
from offbeat.run_directory.paths import default_path, require_run
from offbeat.run_directory.presence import Presence
from offbeat.run_directory.snapshots import SnapshotStore
from offbeat.run_directory.store import LATEST, CheckpointStore

RunState = Literal["running", "finished", "interrupted", "failed"]
MOST_LETTERS_OF_A_CHECKPOINT = 50
"""Largest length of the name of a checkpoint."""
MOST_LETTERS_OF_A_REASON = 10_000
"""Largest length of the reason in status.json: an exception of an env or a callback may have any length."""


class RunDirectoryExists(ConfigError):
    """The path of a new run is not free."""


class RunDirectory:
    """The files of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        """The path as it was given, for messages."""
        self.folder = path.absolute()
        """The same folder, also when an env or a callback changes the working directory."""
        self.config_file = self.folder / "config.toml"
        self.command_file = self.folder / "command.txt"
        self.metrics_file = self.folder / "metrics.jsonl"
        self.status_file = self.folder / "status.json"
        self.log_file = self.folder / "log.txt"
        self.tensorboard_folder = self.folder / "tensorboard"
        self.tracker_file = self.folder / "tracker.json"
        self._lock = self.folder / ".lock"
        self.checkpoints_folder = self.folder / "checkpoints"
        self._created: list[Path] = []
        """The folders that `create` has created: the run directory first, then its parents; none if it was there."""

    @classmethod
    def create(cls, path: Path, config: Config) -> RunDirectory:
        """Create a new run directory.

        Raises:
            RunDirectoryExists: the path exists and is no empty directory.
            ConfigError: the directory cannot be created.
        """
        directory = cls(path)
        directory.refuse_existing()
        directory._created = [p for p in (directory.folder, *directory.folder.parents) if not p.exists()]
        try:
            directory.folder.mkdir(parents=True, exist_ok=True)
            # "x": of two that start at the same time, one creates it. Arguments may have bytes that are not UTF-8.
            with directory.command_file.open("x", encoding="utf-8", errors="surrogateescape") as file:
                file.write(shlex.join(sys.argv) + "\n")
            config.save(directory.config_file)
            for folder in directory._created:
                sync(folder.parent)
        except FileExistsError:
            raise directory._exists() from None
        except OSError as error:
            directory.discard()
            remedy = remedy_for(error, "pass another --run-dir")
            raise ConfigError(f"the run directory {path} cannot be created ({error.strerror}): {remedy}") from None
        return directory

    @classmethod
    def create_default(cls, config: Config) -> RunDirectory:
        """Create a new run directory at `default_path`. Of two runs that start in the same second, each gets its own.

        Raises:
            ConfigError: the directory cannot be created.
        """
        while True:
            path = default_path(config)
            try:
                return cls.create(path, config)
            except RunDirectoryExists:
                if not path.is_dir():  # a folder above it is something else
                    raise

    def refuse_existing(self) -> None:
        """Raise RunDirectoryExists if the path is no empty directory but exists: a run is never reused silently."""
        if self.path.is_symlink() or (self.path.exists() and not _is_empty_folder(self.path)):
            raise self._exists()

    def _exists(self) -> RunDirectoryExists:
        resume = f", or run `offbeat resume {quote(str(self.path))}`" if self.config_file.is_file() else ""
        return RunDirectoryExists(f"the run directory {self.path} exists: pass another --run-dir{resume}")

    @classmethod
    def open(cls, path: GivenPath, *, trust_code: bool = False) -> RunDirectory:
        """Return an existing run's directory.

        Raises:
            ConfigError: there is no run, or it has a link to another directory and is not trusted.
        """
        path = user_path(path)
        directory = cls(path)
        require_run(path)
        if trust_code:
            accept(str(path.resolve()))
        require_inside(path)
        return directory

    def code(self, changes: Mapping[str, object] = EMPTY) -> Code:
        """Return the code that the run would use if it is resumed with these settings."""
        return code_to_run(read_tables(self.config_file), changes)

    def require_code(self, changes: Mapping[str, object], *, trust_code: bool = False) -> None:
        """Refuse to resume a run with code that the caller has neither named nor installed; see `trust.require`.

        Args:
            changes: settings that the caller has changed, by key.
            trust_code: accept all code.

        Raises:
            ConfigError: with the refused code, and how to allow it. Nothing was imported.
        """
        require(self.code(changes), str(self.path), trust_code=trust_code)

    def next_command(self, verb: Literal["resume", "eval", "match", "watch"], *flags: str) -> str:
        """Return the command that does something with the run in a new process, with the flags that accept its code.

        Only for a run whose code the caller has trusted already: a message must not invite to trust another one.

        Args:
            verb: what is done.
            flags: other flags with their values, quoted as for a shell.
        """
        trust: list[str] = []
        with suppress(ConfigError):  # the config cannot be read, which the command will say
            code = self.code()
            trust = flags_for(code if verb == "resume" else code.to_play())
        return " ".join([f"offbeat {verb}", quote(str(self.path)), *flags, *map(quote, trust)])

    def next_old_config(self) -> Path:
        """Return the path for the config of the run so far, before a resume changes settings: config-1.toml, ..."""
        return next(path for n in count(1) if not (path := self.folder / f"config-{n}.toml").exists())

    def read_config(self) -> Config:
        """Return the config of the run."""
        return load(self.config_file)

    def read_run(self) -> RunConfig:
        """Return the [run] part of the config, which needs no torch."""
        return load_run(self.config_file)

    def read_runtime(self) -> RuntimeConfig:
        """Return the [runtime] part of the config, which needs no torch."""
        return load_runtime(self.config_file)

    def read_settings_of(self, policy: str) -> dict[str, object]:
        """Return the algorithm's settings of a policy as the config has them, unchecked and without their code."""
        return load_settings_of(self.config_file, policy)

    def read_league(self) -> LeagueConfig | None:
        """Return the table [league] of the config, which needs no torch; None if the run has no league."""
        return league_of(read_tables(self.config_file), str(self.config_file))

    def read_checkpoint(self, name: str, *, with_state: bool = True, with_replay: bool = False) -> Checkpoint:
        """Read and verify a checkpoint.

        Args:
            name: latest, best or step-<12 digits>.
            with_state: as for `checkpoint.load`.
            with_replay: as for `checkpoint.load`.

        Raises:
            ConfigError: there is no such checkpoint, or it is damaged or of another env.
        """
        if name in ("", "..") or Path(name).name != name or len(name) > MOST_LETTERS_OF_A_CHECKPOINT:
            raise ConfigError(
                f"{in_short(name, 100)} is not the name of a checkpoint: pass --checkpoint latest, best or step-<12 "
                "digits>"
            )
        saved = self.checkpoint_store().load(name, with_state=with_state, with_replay=with_replay)
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

    def checkpoint_store(self, max_full: int = 1) -> CheckpointStore:
        """Return the checkpoints of the run; saving keeps the newest `max_full` full ones."""
        return CheckpointStore(self.checkpoints_folder, max_full)

    @property
    def has_checkpoint(self) -> bool:
        """Whether the run can be resumed or played."""
        return (self.checkpoints_folder / LATEST).exists()

    def saved_env_steps(self) -> int | None:
        """Return the env steps of the checkpoint for a resume; None if there is none."""
        latest = self.checkpoints_folder / LATEST
        for file in (latest / POLICY, *sorted(latest.glob(f"policies/*/{POLICY}"))[:1]):
            with suppress(OSError, ValueError, KeyError, TypeError):
                return int(read_json(file, LARGEST_RECORD)["env_steps"])
        return None

    def evaluation_is_due(self) -> bool:
        """Whether the checkpoint for a resume was saved before an evaluation that was due had its result."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            state = read_json(self.checkpoints_folder / LATEST / STATE, STATE_BYTES)
            return state["evaluations"]["is_due"] is True
        return False

    def snapshot_store(self) -> SnapshotStore:
        """Return the snapshots of the run's league."""
        return SnapshotStore(self.folder / "league")

    def read_snapshot(self, policy: str, number: int) -> Checkpoint:
        """Read and verify a snapshot of the run's league. The checkpoint has this policy, under its name.

        Raises:
            ConfigError: there is no such snapshot, or it is damaged or of another env.
        """
        saved = Checkpoint({policy: self.snapshot_store().load(policy, number)}, None)
        self._require_env(saved.policies, f"snapshot {number}")
        return saved

    def sync_metrics(self) -> None:
        """Sync all metrics lines to the disk.

        Raises:
            OSError: they could not be written.
        """
        if self.metrics_file.exists():
            sync(self.metrics_file)

    # --- status -------------------------------------------------------------------------------------------

    def write_status(
        self,
        state: RunState,
        reason: str = "",
        *,
        phase: str | None = None,
        children: Mapping[str, Mapping[int, int]] = {},
    ) -> None:
        """Replace status.json.

        Args:
            state: State of the run.
            reason: Why the run ended; '' while it is running. A long one is truncated.
            phase: What the run does now; None if it has ended.
            children: Role -> index -> process id of the child processes.
        """
        main = {"role": "main", "index": 0, "pid": os.getpid()}
        others = ({"role": role, "index": i, "pid": pid} for role, pids in children.items() for i, pid in pids.items())
        status = {
            "state": state,
            "reason": shortened(reason, MOST_LETTERS_OF_A_REASON),
            "phase": phase,
            "updated": _now(),
            "processes": [main, *others],
        }
        content = (json.dumps(status, indent=1) + "\n").encode()
        with suppress(OSError):  # a full disk must not end the run
            replace_or_overwrite(self.status_file, content, synced=state != "running")

    def read_status(self) -> dict[str, Any]:
        """Return status.json; empty if it is missing or not a JSON object."""
        with suppress(OSError, ValueError):
            return read_json(self.status_file, LARGEST_RECORD)
        return {}

    def has_state(self, state: RunState) -> bool:
        """Whether this is the state of the run, by its status.json."""
        return bool(self.read_status().get("state") == state)

    def crash_message(self) -> str:
        """Return a message if the run crashed, else '': its status is running, but no process has its lock."""
        status = self.read_status()
        if status.get("state") != "running" or self.is_locked():
            return ""
        updated = in_short(status.get("updated")).strip("'")
        return (
            f"{self.path} has crashed: its status is running (last updated {updated}), but its process no longer "
            "exists. Its checkpoints are complete"
        )

    def status_damage(self) -> str:
        """Return a message if status.json cannot be read, else ''. A resume writes it again."""
        try:
            read_json(self.status_file, LARGEST_RECORD)
        except FileNotFoundError:
            return ""
        except (OSError, ValueError):
            path = self.path / self.status_file.name
            return f"{path} is damaged, so how the run has ended is not known. The file is written again"
        return ""

    # --- lock and presence ---------------------------------------------------------------------------------

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the run for this process while entered.

        Raises:
            ConfigError: another process has the lock, or the folder is not writable, or its disk has no locks.
        """
        try:
            file = self._lock.open("a")
        except OSError as error:
            raise ConfigError(
                f"{self.path} cannot be written to ({error.strerror}): make it writable, because training writes to it"
            ) from None
        with file, locked(file, f"another process is training in {self.path}: wait for it, or stop it first"):
            yield

    def is_locked(self) -> bool:
        """Whether a process has the lock of the run."""
        return is_locked(self._lock)

    def presence(self) -> Presence:
        """Return an object that checks whether the directory still exists."""
        return Presence(self.folder, self.path)

    # --- other files ----------------------------------------------------------------------------------------

    def discard(self) -> None:
        """Delete the run, and the empty parent folders that were created for it; an own directory is emptied."""
        if not self._created:
            _delete_contents(self.folder)
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        for parent in self._created[1:]:
            with suppress(OSError):  # it is not empty, or could not be created
                parent.rmdir()

    def append_to_log(self, text: str) -> bool:
        """Append a text with the time to log.txt; return whether it could be written."""
        try:
            with self.log_file.open("a", encoding="utf-8", errors="backslashreplace") as log:
                log.write(f"{_now()} {text}\n")
        except OSError:
            return False
        return True


def _is_empty_folder(path: Path) -> bool:
    """Whether a path is an empty directory that can be listed."""
    try:
        return next(path.iterdir(), None) is None
    except OSError:
        return False


def _delete_contents(folder: Path) -> None:
    """Delete all that is in a directory, and keep the directory itself with its permissions."""
    with suppress(OSError):
        for entry in list(folder.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink()


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _named(env: object) -> str:
    return env if isinstance(env, str) and env.isprintable() and len(env) < 200 else in_short(env)
