"""A job: what `offbeat run` trains or evaluates in one process, with its files and its status."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from offbeat.config.importing import import_flags, is_accepted
from offbeat.config.trust import TRUST_FLAG, Code, flags_for, modules_to_name
from offbeat.core.errors import ConfigError
from offbeat.metrics.sinks import metrics_from_end
from offbeat.metrics.text import compact, rounded
from offbeat.run_directory.checkpoint import MANIFEST
from offbeat.run_directory.directory import RunDirectory
from offbeat.run_directory.links import leads_outside

JobStatus = Literal["new", "lost", "unfinished", "finished"]
"""new: there is no run yet; lost: the run has no checkpoint; unfinished: the run can be resumed; finished."""


class Job(ABC):
    """A session of an experiment; in a population, the training or the evaluation of one generation of a member."""

    @property
    @abstractmethod
    def run(self) -> RunDirectory:
        """The directory of the run."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """Env steps after which the process ends."""

    @property
    def time_s(self) -> float | None:
        """Seconds of training, of all parts of the run together, after which the process ends; None: no limit."""
        return None

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
        latest = run.checkpoints_folder / "latest" / MANIFEST
        return [run.config_file, run.status_file, run.metrics_file, latest, *([self.output] if self.output else [])]

    @property
    @abstractmethod
    def caller_imports(self) -> tuple[str, ...]:
        """Modules that the caller has named, which each process of the job imports too."""

    @property
    @abstractmethod
    def about(self) -> str:
        """What the run is, for messages: its settings, env and seed."""

    @property
    def activity(self) -> str:
        """What the process does in place of training, for the progress view; '': it trains."""
        return ""

    @abstractmethod
    def arguments(self) -> list[str]:
        """Return the arguments of `offbeat` for the process."""

    def trust_flags(self, code: Code) -> list[str]:
        """Return the flags with which a process that opens the run imports the caller's modules and accepts its code.

        A caller who has named modules instead of passing --trust-code has not accepted other code in the run.

        Args:
            code: the code of the spec that the process uses, which the caller has accepted.
        """
        path = self.run.path.resolve()
        if not any(is_accepted(str(folder)) for folder in (path, *path.parents)):
            return import_flags((*self.caller_imports, *modules_to_name(code)))
        trusted = [TRUST_FLAG] if flags_for(code) or leads_outside(path) else []
        return [*import_flags(self.caller_imports), *trusted]

    # --- status ---------------------------------------------------------------------------------------------

    def status(self) -> JobStatus:
        """Return the status, from the run directory."""
        if not self.run.path.exists():
            return "new"
        saved = self.run.saved_env_steps()
        if saved is None:
            return "lost"
        if self.run.has_state("finished"):
            return "finished"
        line = self.last_line()
        limited = self.is_over(line) and saved >= line.get("env_steps", 0)  # else the run has failed after the line
        learned = saved >= self.steps and not self.run.evaluation_is_due()
        return "finished" if learned or limited else "unfinished"

    def is_over(self, line: dict[str, Any]) -> bool:  # noqa: ARG002 - most runs have no limit but their env steps
        """Whether a metrics line has reached a limit of the run that is not in env steps."""
        return False

    def last_line(self) -> dict[str, Any]:
        """Return the last complete metrics line; empty if there is none yet."""
        with suppress(OSError, ConfigError):
            return next(metrics_from_end(self.run.metrics_file), {})
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
