"""A session: one seed of a trial, and the command that starts or resumes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offbeat.config.assignments import assignments_of
from offbeat.config.config import Config
from offbeat.config.importing import import_flags
from offbeat.config.preset_files import NO_PRESET
from offbeat.config.run_config import LIMITS
from offbeat.config.runtime_config import CHANGED_BY_AUTO_LAYOUT
from offbeat.config.trust import code_to_run
from offbeat.core.errors import ConfigError
from offbeat.core.typed_text import change_text
from offbeat.experiments.jobs import Job
from offbeat.experiments.trials import Trial, with_written_policies
from offbeat.run_directory.directory import RunDirectory


@dataclass(frozen=True)
class Session(Job):
    """One seed of a trial."""

    trial: Trial
    seed: int
    folder: Path
    """Path of the trial's directory."""
    caller_imports: tuple[str, ...] = ()

    @property
    def run(self) -> RunDirectory:
        return RunDirectory(self.folder / f"seed-{self.seed}")

    @property
    def steps(self) -> int:
        return self.trial.config.run.last_step

    @property
    def time_s(self) -> float | None:
        return self.trial.config.run.time

    @property
    def about(self) -> str:
        return ", ".join(filter(None, (self.trial.label, f"{self.trial.env}", f"seed {self.seed}")))

    def is_over(self, line: dict[str, Any]) -> bool:
        """Whether a metrics line has reached `stop_at_return` of the settings, or `time` and no evaluation is due."""
        run = self.trial.config.run
        best, seconds = line.get("best_eval_return_mean"), line.get("wall_time_s")
        timed_out = _reaches(seconds, run.time) and not self.run.evaluation_is_due()
        return _reaches(best, run.stop_at_return) or timed_out

    def arguments(self) -> list[str]:
        """Return the arguments of `offbeat` that start or resume the session."""
        view = ["--progress", "lines"]
        if self.status() == "unfinished":
            flags = self.trust_flags(code_to_run(self.trial.config.tables()))
            return ["resume", str(self.run.path), *flags, *self._limits(), *view]
        run, policies = self.trial.config.run, self.trial.config.policies
        imports = import_flags((*self.caller_imports, *run.imports))
        flags, settings = with_written_policies(self.trial.settings, policies, self.folder)
        return [
            *("train", run.algorithm, run.env, "--preset", run.preset or NO_PRESET, *imports, *flags),
            *("--run-dir", str(self.run.path), *view),
            *("--set", *assignments_of({"seed": self.seed, **settings})),
        ]

    def _limits(self) -> list[str]:
        """Return the arguments for the limits of the settings, which a resumed run does not have by itself."""
        run = self.trial.config.run
        given = assignments_of({key: limit for key in LIMITS if (limit := getattr(run, key)) is not None})
        return ["--set", *given] if given else []

    def require_same(self) -> None:
        """Raise ConfigError, with the differences, if the run directory is of another trial or seed."""
        if not self.run.config_file.is_file():
            return
        current = self.trial.config.with_run(seed=self.seed)
        saved, tables = self.run.read_config().tables(), current.tables()
        if current.run.policies == "separate":  # the run has made its tables from the agents of the world
            saved.pop("policies", None)
        differences = _differences(saved, tables, _keys_that_may_differ(current))
        if differences:
            raise ConfigError(
                f"{self.run.path} has other settings than the spec: {'; '.join(differences)}. Move "
                "it away, or pass another --dir"
            )


def _reaches(value: float | None, limit: float | None) -> bool:
    return value is not None and limit is not None and value >= limit


def _keys_that_may_differ(config: Config) -> set[str]:
    """Return the keys that may differ between a run and the config of its trial.

    The imports of a run include the modules of its caller; those of the spec are compared with the spec.
    """
    return {"imports", *LIMITS, *(CHANGED_BY_AUTO_LAYOUT if config.runtime.split == "measured" else ())}


def _differences(saved: dict[str, Any], current: dict[str, Any], ignored: set[str]) -> list[str]:
    if ("policies" in saved) != ("policies" in current):
        return [change_text("policies", saved["run"]["policies"], current["run"]["policies"])]
    if saved.keys() != current.keys():
        return [change_text("algorithm", saved["run"]["algorithm"], current["run"]["algorithm"])]
    return [
        change_text(key, saved[name].get(key), value)
        for name, table in current.items()
        for key, value in table.items()
        if key not in ignored and saved[name].get(key) != value
    ]
