"""The directory of an experiment: its files, its record, and its lock."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from offbeat.config.importing import accept
from offbeat.core.errors import ConfigError, RunFailed
from offbeat.core.fields import build
from offbeat.core.files import remedy_for, replace_file
from offbeat.core.strict_json import LARGEST_RECORD, read_json
from offbeat.core.typed_text import change_text
from offbeat.experiments.pruning_rule import Pruned
from offbeat.experiments.sessions import Session
from offbeat.experiments.spec import Spec
from offbeat.experiments.trials import (
    Trial,
    read_trial,
    require_same_trial,
    trial_name,
    with_saved_workers,
    write_trial,
)
from offbeat.run_directory.links import require_inside
from offbeat.run_directory.lock import locked
from offbeat.run_directory.names import EXPERIMENT, SPEC, TRIAL
from offbeat.run_directory.versions import current_versions


def _is_record(record: Mapping[str, Any]) -> bool:
    """Whether the values of a record have the types that `write_record` writes."""
    seeds, trials = record.get("seeds"), record.get("trials", "missing")
    return (
        isinstance(record.get("spec"), dict)
        and isinstance(record.get("made_with"), list)
        and isinstance(seeds, list)
        and all(type(seed) is int for seed in seeds)
        and (trials is None or type(trials) is int)
    )


class ExperimentDirectory:
    """The files of an experiment."""

    def __init__(self, path: Path, *, trust_code: bool = False) -> None:
        """Take a path, which may not exist yet. `trust_code`: whether to accept links that lead out of it."""
        self.path = path
        if trust_code:
            accept(str(path.resolve()))
        self.spec = path / SPEC
        self.record = path / EXPERIMENT
        self.csv = path / "table.csv"
        self.markdown = path / "table.md"
        self._pruned: dict[int, Pruned] = {}
        """Number of a trial -> why it was pruned, as far as it is known."""

    # --- the record ----------------------------------------------------------------------------------------

    def require_for(self, spec: Spec) -> None:
        """Raise ConfigError if the directory contains another experiment, other files, or links that lead out of it.

        Nothing is changed.
        """
        if not self.path.exists():
            return
        is_experiment = self.record.is_file()
        if not is_experiment and (
            not self.path.is_dir() or any(not p.name.startswith(".") for p in self.path.iterdir())
        ):
            raise ConfigError(f"{self.path} exists but is not an experiment: pass another --dir")
        require_inside(self.path)
        if is_experiment:
            self._require_same(spec)

    def _require_same(self, spec: Spec) -> None:
        saved = self._read()
        differences = list(_differences(saved["spec"], spec.identity()))
        if differences:
            raise ConfigError(
                f"{self.path} contains another experiment: {'; '.join(differences)}. Pass another --dir, or "
                f"restore the spec: the experiment was started with {self.spec}"
            )
        missing = [seed for seed in saved["seeds"] if seed not in spec.seeds]
        if missing:
            raise ConfigError(
                f"{self.path} has the seeds {saved['seeds']}, but the spec lacks {missing}: seeds can be added, but "
                "not removed. Restore them, or pass another --dir"
            )
        if (saved["trials"] is None) != (spec.trials_per_env is None):
            raise self._changed()
        if spec.trials_per_env is not None and spec.trials_per_env < saved["trials"]:
            raise ConfigError(
                f"{self.path} has {saved['trials']} trials, but the spec has {spec.trials_per_env}: trials can "
                "be added, but not removed. Raise the number, or pass another --dir"
            )

    def _read(self) -> dict[str, Any]:
        try:
            record = read_json(self.record, LARGEST_RECORD)
        except ValueError as error:
            raise ConfigError(f"{self.record} {error}: restore it, or pass another --dir") from None
        if not _is_record(record):
            raise self._changed()
        return record

    def _changed(self) -> ConfigError:
        return ConfigError(f"{self.record} was changed: restore it, or pass another --dir")

    # --- the lock -------------------------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the directory, which is created if necessary, while entered. The lock ends with the process.

        Raises:
            ConfigError: another process has the lock, or the directory cannot be created.
            RunFailed: while entered, a file could not be written, for example because the disk is full.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / ".lock").open("a")
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be created ({error.strerror}): pass another --dir") from None
        in_use = f"another `offbeat run` is using {self.path}: wait for it, stop it, or pass another --dir"
        with file, locked(file, in_use):
            try:
                yield
            except OSError as error:
                raise RunFailed(
                    f"{self.path} cannot be written to ({error.strerror or error}): {remedy_for(error)}, then run "
                    "the command again"
                ) from error

    def write_record(self, spec: Spec, text: bytes) -> None:
        """Save the spec and its text, and add the versions of the packages, the machine and the code."""
        earlier = self._read()["made_with"] if self.record.is_file() else []
        record = {
            "spec": spec.identity(),
            "seeds": list(spec.seeds),
            "trials": spec.trials_per_env,
            "made_with": [*earlier, current_versions()],
        }
        replace_file(self.record, (json.dumps(record, indent=1) + "\n").encode(), synced=False)
        replace_file(self.spec, text, synced=False)

    # --- trials ---------------------------------------------------------------------------------------------

    def folder(self, trial: Trial) -> Path:
        return self.path / trial.name

    def sessions(self, spec: Spec, trial: Trial) -> list[Session]:
        """Return a trial's sessions, one per seed."""
        return [Session(trial, seed, self.folder(trial), spec.caller_imports) for seed in spec.seeds]

    def started(self, spec: Spec, trials: list[Trial]) -> list[Trial]:
        """Return trials as they have been started, on this machine or on another one."""
        return [with_saved_workers(spec, trial, self.folder(trial) / TRIAL) for trial in trials]

    def require_same_sessions(self, spec: Spec, trials: list[Trial]) -> None:
        """Raise ConfigError, with the differences, if a saved trial or session differs from that of the spec."""
        for trial in trials:
            require_same_trial(trial, self.folder(trial) / TRIAL)
            for session in self.sessions(spec, trial):
                session.require_same()

    def write_trial(self, trial: Trial) -> None:
        write_trial(trial, self.folder(trial) / TRIAL)

    def pruned(self, trial: Trial) -> Pruned | None:
        """Return why a trial was pruned; None if it was not.

        Raises:
            ConfigError: its file was changed by another program.
        """
        file = self._pruned_file(trial)
        if trial.number not in self._pruned and file.exists():
            try:
                self._pruned[trial.number] = build(Pruned, read_json(file, LARGEST_RECORD), str(file))
            except (ValueError, ConfigError):
                raise ConfigError(f"{file} was changed: delete it, so that the trial goes on") from None
        return self._pruned.get(trial.number)

    def write_pruned(self, trial: Trial, pruned: Pruned) -> None:
        """Save that a trial was pruned, and why."""
        replace_file(self._pruned_file(trial), (json.dumps(asdict(pruned)) + "\n").encode())

    def _pruned_file(self, trial: Trial) -> Path:
        return self.folder(trial) / "pruned.json"

    def known_trials(self, spec: Spec) -> list[Trial]:
        """Return the trials that have been started, by number."""
        files = {number: self.path / trial_name(number) / TRIAL for number in range(spec.trials_per_env or 0)}
        return [read_trial(spec, number, file) for number, file in files.items() if file.is_file()]


def _differences(saved: dict[str, Any], current: dict[str, Any], within: str = "") -> Iterator[str]:
    """Yield the differences between two specs, or between two of their tables."""
    for key in {**saved, **current}:
        old, new = saved.get(key), current.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{within}{key}.")
        elif old != new:
            yield change_text(f"{within}{key}", *("not given" if value is None else value for value in (old, new)))
