"""An experiment's directory: its files, whose it is, and who works in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from offbeat.core.errors import ConfigError
from offbeat.experiments.sessions import Session
from offbeat.experiments.spec import Spec
from offbeat.experiments.trials import Trial, read_trial, require_same_trial, write_trial
from offbeat.plots.runs import EXPERIMENT, TRIAL
from offbeat.run_directory.directory import lock
from offbeat.run_directory.versions import made_with


class ExperimentDirectory:
    """Paths of an experiment, and its record."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.spec = path / "spec.toml"
        self.record = path / EXPERIMENT
        self.csv = path / "table.csv"
        self.markdown = path / "table.md"

    # --- whose it is ----------------------------------------------------------------------------------------

    def require_for(self, spec: Spec) -> None:
        """Refuse a directory that holds something else than this experiment, or nothing; nothing is changed.

        Raises:
            ConfigError: with what differs.
        """
        if self.record.is_file():
            self._require_same(spec)
        elif self.path.exists() and (not self.path.is_dir() or any(not _is_hidden(p) for p in self.path.iterdir())):
            raise ConfigError(f"{self.path} exists, and is no experiment: give another with --dir")

    def _require_same(self, spec: Spec) -> None:
        there = self._read()
        differences = list(_differences(there["spec"], spec.meaning()))
        if differences:
            raise ConfigError(
                f"{self.path} holds another experiment: {'; '.join(differences)}. Give another with --dir, or put the "
                f"spec back ({self.spec} is the one that it was begun with)"
            )
        missing = [seed for seed in there["seeds"] if seed not in spec.seeds]
        if missing:
            raise ConfigError(
                f"{self.path} has the seeds {there['seeds']}, of which the spec lacks {missing}: seeds can be added, "
                "not taken away; put them back, or give another --dir"
            )
        if spec.draws is not None and spec.draws < there["trials"]:
            raise ConfigError(
                f"{self.path} has {there['trials']} trials, and the spec asks for {spec.draws}: trials can be added, "
                "not taken away; raise it, or give another --dir"
            )

    def _read(self) -> dict[str, Any]:
        try:
            record: dict[str, Any] = json.loads(self.record.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ConfigError(f"{self.record} is not JSON ({error}): restore it, or give another --dir") from None
        return record

    # --- who works in it ------------------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory, which is made if need be, for this process alone; the lock dies with the process.

        Raises:
            ConfigError: another process holds it, or it cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / ".lock").open("a")
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be made ({error.strerror}): give another with --dir") from None
        with file:
            lock(file, f"another `offbeat run` works in {self.path}: wait for it, stop it, or give another --dir")
            yield

    def begin(self, spec: Spec, text: bytes) -> None:
        """Write down what the experiment is, and what it is being made with this time."""
        parts = self._read()["made_with"] if self.record.is_file() else []
        record = {
            "spec": spec.meaning(),
            "seeds": list(spec.seeds),
            "trials": spec.draws,
            "made_with": [*parts, made_with()],
        }
        _replace(self.record, (json.dumps(record, indent=1) + "\n").encode())
        _replace(self.spec, text)

    # --- what is in it --------------------------------------------------------------------------------------

    def folder(self, trial: Trial) -> Path:
        return self.path / trial.name

    def sessions(self, spec: Spec, trial: Trial) -> list[Session]:
        """Return a trial's sessions, one a seed."""
        return [Session(trial, seed, self.folder(trial)) for seed in spec.seeds]

    def require_same_sessions(self, spec: Spec, trials: list[Trial]) -> None:
        """Refuse what is in the directory under a trial's or session's name, and is another one.

        Raises:
            ConfigError: with what differs.
        """
        for trial in trials:
            require_same_trial(trial, self.folder(trial) / TRIAL)
            for session in self.sessions(spec, trial):
                session.require_same()

    def write_trial(self, trial: Trial) -> None:
        write_trial(trial, self.folder(trial) / TRIAL)

    def known_trials(self, spec: Spec) -> list[Trial]:
        """Return the trials that have been begun, by number."""
        files = {number: self.path / f"trial-{number:03}" / TRIAL for number in range(spec.draws or 0)}
        return [read_trial(spec, number, file) for number, file in files.items() if file.is_file()]


def _differences(there: dict[str, Any], here: dict[str, Any], within: str = "") -> Iterator[str]:
    """Say what differs between two meanings of specs, or between two tables of them."""
    for key in {**there, **here}:
        theirs, ours = there.get(key), here.get(key)
        if isinstance(theirs, dict) and isinstance(ours, dict):
            yield from _differences(theirs, ours, f"{within}{key}.")
        elif theirs != ours:
            yield f"{within}{key} is {_as_text(theirs)} there and {_as_text(ours)} here"


def _as_text(value: Any) -> str:
    return "not given" if value is None else str(value)


def _is_hidden(path: Path) -> bool:
    return path.name.startswith(".")


def _replace(file: Path, content: bytes) -> None:
    temporary = file.with_name(f".{file.name}.writing")
    temporary.write_bytes(content)
    temporary.replace(file)
