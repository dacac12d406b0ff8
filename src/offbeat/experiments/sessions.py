"""A session: one seed of a trial, with its files, its status, and the command that starts or resumes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from offbeat.config.assignments import assignments_of
from offbeat.config.config import Config
from offbeat.config.importing import is_accepted
from offbeat.config.policies import Policies, tables_of
from offbeat.config.run_config import LIMITS
from offbeat.config.trust import FLAG, Code, code_to_run, flags_for, modules_of, modules_to_name, policies_code
from offbeat.core.errors import ConfigError
from offbeat.core.strict_json import LARGEST_RECORD, read_json
from offbeat.core.threads import usable_cores
from offbeat.core.typed_text import change_text
from offbeat.experiments.trials import POLICIES, Trial
from offbeat.metrics.sinks import metrics_from_end
from offbeat.metrics.text import compact, rounded
from offbeat.run_directory.checkpoint import MANIFEST
from offbeat.run_directory.directory import RunDirectory
from offbeat.run_directory.links import leads_outside

SessionStatus = Literal["new", "lost", "unfinished", "finished"]
"""new: there is no run yet; lost: the run has no checkpoint; unfinished: the run can be resumed; finished."""


class RunProcess(ABC):
    """A run, or a part of one, that is trained in a process of its own; with its files and its status."""

    @property
    @abstractmethod
    def run(self) -> RunDirectory:
        """The directory of the run."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """Env steps after which the process ends."""

    @property
    def name(self) -> str:
        return f"{self.run.path.parent.name}/{self.run.path.name}"

    @property
    def log(self) -> Path:
        """Path of the log with the output of the run's processes."""
        return self.run.path.with_name(f"{self.run.path.name}.log")

    @property
    def output(self) -> Path | None:
        """Path of a file for the standard output; None: it is written to the log."""
        return None

    @property
    def files(self) -> list[Path]:
        """Paths of the files from which it is decided what comes next."""
        run = self.run
        latest = run.checkpoints / "latest" / MANIFEST
        return [run.config, run.status, run.metrics, latest, *([self.output] if self.output else [])]

    @property
    @abstractmethod
    def about(self) -> str:
        """What the run is, for messages: its settings, env and seed."""

    @abstractmethod
    def arguments(self) -> list[str]:
        """Return the arguments of `offbeat` for the process."""

    def trust_flags(self, code: Code) -> list[str]:
        """Return the flags with which a process that opens the run accepts its code.

        A caller who has named modules instead of passing --trust-code has not accepted other code in the run.

        Args:
            code: the code of the spec that the process uses, which the caller has accepted.
        """
        path = self.run.path.resolve()
        if not any(is_accepted(str(folder)) for folder in (path, *path.parents)):
            return [word for module in modules_to_name(code) for word in ("--import", module)]
        return [FLAG] if flags_for(code) or leads_outside(path) else []

    # --- status ---------------------------------------------------------------------------------------------

    def status_on_disk(self) -> SessionStatus:
        """Return the status, from the run directory."""
        if not self.run.path.exists():
            return "new"
        saved = self.saved_steps()
        if saved is None:
            return "lost"
        line = self.last_line()
        limited = self.is_over(line) and saved >= line.get("env_steps", 0)  # else the run has failed after the line
        finished = self.status().get("state") == "finished" or saved >= self.steps or limited
        return "finished" if finished else "unfinished"

    def has_failed(self) -> bool:
        """Whether the run has ended with an error, in this start or in an earlier one, and is not finished."""
        return self.status().get("state") == "failed" and self.status_on_disk() != "finished"

    def is_over(self, line: dict[str, Any]) -> bool:  # noqa: ARG002 - most runs have no limit but their env steps
        """Whether a metrics line has reached a limit of the run that is not in env steps."""
        return False

    def saved_steps(self) -> int | None:
        """Return the env steps of the checkpoint for a resume; None if there is none."""
        latest = self.run.checkpoints / "latest"
        for file in (latest / "policy.json", *sorted(latest.glob("policies/*/policy.json"))[:1]):
            with suppress(OSError, ValueError, KeyError, TypeError):
                return int(read_json(file, LARGEST_RECORD)["env_steps"])
        return None

    def status(self) -> dict[str, Any]:
        """Return status.json; empty if there is none."""
        return self.run.read_status()

    def last_line(self) -> dict[str, Any]:
        """Return the last complete metrics line; empty if there is none yet."""
        with suppress(OSError, ConfigError):
            return next(metrics_from_end(self.run.metrics), {})
        return {}

    def summary(self) -> str:
        """Return the last return as text."""
        line = self.last_line()
        if not line:
            return "nothing learned yet"
        name, key = "evaluation", "eval_return_mean"
        if line.get(key) is None:
            name, key = "return", "episode_return_mean"
        return f"{name} {rounded(line.get(key))} at {compact(int(line.get('env_steps', 0)))} env steps"

    def is_locked(self) -> bool:
        """Whether a process is training the run."""
        return self.run.is_locked()

    def rename_lost(self) -> Path:
        """Rename a run directory without a checkpoint, so that the run can start again; return the new path."""
        number = 1
        while (renamed := self.run.path.with_name(f"{self.run.path.name}.lost-{number}")).exists():
            number += 1
        return self.run.path.rename(renamed)


@dataclass(frozen=True)
class Session(RunProcess):
    """One seed of a trial."""

    trial: Trial
    seed: int
    folder: Path
    """Path of the trial's directory."""

    @property
    def run(self) -> RunDirectory:
        return RunDirectory(self.folder / f"seed-{self.seed}")

    @property
    def steps(self) -> int:
        run = self.trial.config.run
        return min(run.steps, run.stop_at or run.steps)

    @property
    def about(self) -> str:
        return ", ".join(filter(None, (self.trial.label, f"{self.trial.env}", f"seed {self.seed}")))

    def is_over(self, line: dict[str, Any]) -> bool:
        """Whether a metrics line has reached `stop_at_return` or `time` of the settings."""
        run = self.trial.config.run
        best, seconds = line.get("best_eval_return_mean"), line.get("wall_time_s")
        return _reaches(best, run.stop_at_return) or _reaches(seconds, run.time)

    def arguments(self) -> list[str]:
        """Return the arguments of `offbeat` that start or resume the session."""
        view = ["--progress", "lines"]
        if self.status_on_disk() == "unfinished":
            flags = self.trust_flags(code_to_run(self.trial.config.tables()))
            return ["resume", str(self.run.path), *flags, *self._limits(), *view]
        run, policies = self.trial.config.run, self.trial.config.policies
        preset = ["--preset", run.preset] if run.preset else []
        imports = [word for module in run.imports for word in ("--import", module)]
        flags = flags_of_policies(policies, self.folder / POLICIES)
        settings = without_file_of_policies(self.trial.settings, policies)
        return [
            *("train", run.algorithm, run.env, *preset, *imports, *flags, "--run-dir", str(self.run.path), *view),
            *("--set", *assignments_of({"seed": self.seed, **settings})),
        ]

    def _limits(self) -> list[str]:
        """Return the arguments for the limits of the settings, which a resumed run does not have by itself."""
        run = self.trial.config.run
        given = assignments_of({key: limit for key in LIMITS if (limit := getattr(run, key)) is not None})
        return ["--set", *given] if given else []

    def require_same(self) -> None:
        """Raise ConfigError, with the differences, if the run directory is of another trial or seed."""
        if not self.run.config.is_file():
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


def flags_of_policies(policies: Policies, file: Path) -> list[str]:
    """Return the flags that give a run the policies in a file.

    The modules of their encoders must be named, because a file names the encoders.
    """
    modules = modules_of(policies_code(tables_of(policies)))
    imports = [word for module in modules for word in ("--import", module)]
    return [*imports, "--policies", str(file)] if policies else []


def without_file_of_policies(settings: Mapping[str, Any], policies: Policies) -> dict[str, Any]:
    """Return settings without the file that has these policies, which `flags_of_policies` gives."""
    return {key: value for key, value in settings.items() if key != "policies" or not policies}


def _keys_that_may_differ(config: Config) -> set[str]:
    """Return the keys that may differ between a run and the config that it was started with."""
    measured = {"split", "actors", "envs_per_actor", "unrolls_per_batch", "learner_threads"}
    return set(LIMITS) | (measured if config.runtime.split == "measured" else set())


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


def cores_of(config: Config) -> int:
    """Return the number of cores that a session uses, at most those of this machine."""
    busy = busy_cores_of(config)
    return usable_cores() if busy is None else min(usable_cores(), busy)


def busy_cores_of(config: Config) -> int | None:
    """Return how many cores a session can keep busy; None if it chooses its topology itself, from those that it has."""
    runtime = config.runtime
    if runtime.split == "measured":
        return None
    actors = runtime.actors if runtime.ray_address is None else 0  # else they are on a cluster, with their own cores
    return runtime.entry.busy_cores(actors, config.workers * runtime.learners * config.threads)
