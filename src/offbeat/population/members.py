"""The jobs of a member: the training of one generation, and the evaluation at its end."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from offbeat.config.assignments import assignments_of
from offbeat.config.importing import import_flags
from offbeat.config.trust import code_to_run
from offbeat.core.errors import ConfigError
from offbeat.core.fields import in_short
from offbeat.core.policy_names import policy_key
from offbeat.core.strict_json import LARGEST_RECORD, read_json
from offbeat.experiments.jobs import Job, JobStatus
from offbeat.experiments.trials import with_written_policies
from offbeat.metrics.sinks import metrics_from_end
from offbeat.population.mutation import Values, shown
from offbeat.population.plan import PopulationPlan
from offbeat.run_directory.directory import RunDirectory


def member_name(member: int) -> str:
    """Return the name of a member, and of its run directory."""
    return f"member-{member:03}"


@dataclass(frozen=True)
class MemberJob(Job):
    """A job of one generation of a member."""

    plan: PopulationPlan
    path: Path
    """The directory of the population."""
    member: int
    generation: int
    values: Values
    """The values of the keys that mutate."""

    @property
    def run(self) -> RunDirectory:
        return RunDirectory(self.path / member_name(self.member))

    @property
    def steps(self) -> int:
        return (self.generation + 1) * self.plan.settings.generation

    @property
    def name(self) -> str:
        return f"{member_name(self.member)} generation {self.generation}"

    @property
    def caller_imports(self) -> tuple[str, ...]:
        return self.plan.spec.caller_imports

    def _flags(self, *, algorithm: bool = True) -> list[str]:
        code = code_to_run(self.plan.configs[self.member].tables())  # of the spec, which the caller has accepted
        return self.trust_flags(code if algorithm else code.to_play())


@dataclass(frozen=True)
class Training(MemberJob):
    """Trains a member to the end of one generation."""

    @property
    def about(self) -> str:
        return shown(self.values)

    def arguments(self) -> list[str]:
        view = ["--progress", "lines"]
        last = self.generation == self.plan.generations - 1
        limits = {} if last else {"stop_at": self.steps}
        if self.status() == "unfinished":
            changes = assignments_of({**self.plan.changes(self.values), **limits})
            return ["resume", str(self.run.path), *self._flags(), *view, "--set", *changes]
        spec = self.plan.spec
        preset = ["--preset", spec.preset] if spec.preset else []
        imports = import_flags((*self.caller_imports, *spec.imports))
        seed = {"seed": self.plan.seed_of(self.member)}
        flags, settings = with_written_policies(self.plan.run_settings(self.values), self.plan.policies, self.path)
        pairs = assignments_of({**seed, **settings, **limits})
        return [
            *("train", spec.algorithm, spec.envs[0], *preset, *imports, *flags),
            *("--run-dir", str(self.run.path), *view),
            *("--set", *pairs),
        ]


@dataclass(frozen=True)
class Scoring(MemberJob):
    """Evaluates a member at the end of one generation, on episodes that are the same for all members."""

    @property
    def name(self) -> str:
        return f"{super().name} evaluation"

    @property
    def about(self) -> str:
        return f"{self.plan.settings.episodes} episodes"

    @property
    def activity(self) -> str:
        return f"evaluating {self.about}"

    @property
    def output(self) -> Path:
        return self.path / "scores" / f"{member_name(self.member)}-generation-{self.generation:03}.json"

    def arguments(self) -> list[str]:
        episodes = ["--episodes", str(self.plan.settings.episodes), "--seed", str(self.plan.seed)]
        return ["eval", str(self.run.path), *episodes, *self._flags(algorithm=False), "--json"]

    def status(self) -> JobStatus:
        return "new" if self.result() is None else "finished"

    def summary(self) -> str:
        """Return the number of episodes: the score is another message."""
        return self.about

    def result(self) -> dict[str, Any] | None:
        """Return the result of the evaluation; None if it has not ended."""
        with suppress(OSError, ValueError):
            return read_json(self.output, LARGEST_RECORD)
        return None

    def score(self, since: int) -> float:
        """Return the objective.

        Args:
            since: env steps of the member at the start of the generation.

        Raises:
            ConfigError: neither the evaluation nor the metrics of training in this generation have it.
        """
        settings = self.plan.settings
        found = self._evaluated if settings.objective_is_evaluated else self._trained(since)
        value = found.get(settings.objective_key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            known = ", ".join(key for key, number in found.items() if isinstance(number, int | float))
            measured = "the evaluation" if settings.objective_is_evaluated else "the training"
            raise ConfigError(
                f"{measured} has no number {settings.objective}, the objective, but {in_short(value)}: pass another "
                f"--dir, and choose one of these as the objective: {known}"
            )
        return float(value)

    @cached_property
    def _evaluated(self) -> dict[str, Any]:
        result = self.result() or {}
        own = result.get("policies", {})
        return {**result, **{policy_key(name, key): value for name in own for key, value in own[name].items()}}

    def _trained(self, since: int) -> dict[str, Any]:
        """Return the last value of each metric in this generation, read from the end until the objective is known.

        After a copy, the results of earlier evaluations are those of the weights that were replaced.
        """
        settings, values = self.plan.settings, dict[str, Any]()
        steps = "eval_env_steps" if settings.objective_is_of_training_evaluations else "env_steps"
        for line in metrics_from_end(self.run.metrics_file):
            if settings.objective in values or (line.get(steps) or 0) <= since:
                break
            values = {**{key: value for key, value in line.items() if value is not None}, **values}
        return values
