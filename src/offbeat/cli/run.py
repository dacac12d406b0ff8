"""`offbeat run`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from offbeat.cli.flags import Imports
from offbeat.cli.on_ray import Cpus, Gpus, On, OnRay, RayAddress, Resources
from offbeat.cli.output import spinner
from offbeat.cli.train import PROGRESS
from offbeat.core.printing import print_text
from offbeat.metrics.progress.views import ProgressKind

if TYPE_CHECKING:
    from offbeat.config.config import Config
    from offbeat.experiments.experiment import Experiment
    from offbeat.experiments.launching import Launcher
    from offbeat.experiments.progress import JobsView
    from offbeat.experiments.results import TableRow
    from offbeat.experiments.running import JobOutcome
    from offbeat.population.population import Population

_STATES = {0: "finished", 1: "failed", 130: "interrupted"}
"""Exit code -> the state of an experiment or a population."""


@dataclass(frozen=True)
class RunSpec:
    """Run an experiment or a population, or resume it: offbeat run experiment.toml."""

    spec: Annotated[Positional[Path], arg(metavar="SPEC.toml")]
    """The spec: a file with the algorithm, the env, the settings to try and their seeds."""
    dry_run: bool = False
    """Print each session that would start, but start none."""
    dir: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None
    """Directory of the experiment. Default: the folder of the spec.toml of an experiment; for other specs, experiments/
    and the name of the spec."""
    jobs: Annotated[str | None, arg(metavar="N", help_behavior_hint="")] = None
    """Number of sessions that run at the same time. Default: as many as there are cores for, on this machine or on the
    nodes of the cluster."""
    on: On = "local"
    ray_address: RayAddress = None
    cpus: Cpus = None
    gpus: Gpus = None
    resources: Resources = None
    progress: Annotated[ProgressKind | None, arg(metavar=PROGRESS, help_behavior_hint="")] = None
    """Default: one line per running session, redrawn in place on a terminal."""
    imports: Imports = ()
    """Python module to import first, in the sessions too, for example one that registers an env. The current folder is
    searched too."""
    trust_code: bool = False
    """Import and call all code that the spec names. Use it only for your own specs, or after you have read the code."""

    def run(self) -> int:
        from offbeat.core.errors import RunFailed
        from offbeat.core.fields import Count, read

        jobs = None if self.jobs is None else read("jobs", self.jobs, Count, "pass, for example, --jobs 2")
        on_ray = OnRay.read(self.on, self.ray_address, self.cpus, self.gpus, self.resources)
        path = self.dir or self._default_directory()
        with spinner("reading the spec and testing the envs", shown=self.progress != "none"):
            from offbeat.experiments.progress import make_jobs_view

            view = make_jobs_view(self.progress, sys.stderr)
            experiment = self._read(path, elsewhere=on_ray is not None)
        try:
            with self._launcher(on_ray, experiment.configs, jobs) as launcher:
                if self.dry_run:
                    launcher.prepare(path, view.message)
                    experiment.print_plan(launcher.room())
                    return 0
                exit_code = experiment.run(launcher, view)
        except KeyboardInterrupt:
            if self.dry_run:
                raise
            print_text("interrupted: the running sessions were killed; they resume from their last checkpoints")
            exit_code = 130
        except RunFailed:
            self._print_how_to_resume()
            raise
        if exit_code:
            self._print_how_to_resume()
        return exit_code

    def _print_how_to_resume(self) -> None:
        print(f"  to resume: {shlex.join(['offbeat', 'run', str(self.spec), *self._flags()])}")

    def _default_directory(self) -> Path:
        """Return the directory of the experiment that the spec was saved in, or a new one with the name of the spec.

        Raises:
            ConfigError: the spec is beside runs of an experiment that has lost its record.
        """
        from offbeat.core.errors import ConfigError
        from offbeat.run_directory.names import EXPERIMENT, SPEC

        folder = self.spec.parent
        if self.spec.name == SPEC and (folder / EXPERIMENT).is_file():
            return folder
        if self.spec.name == SPEC and _has_runs(folder):
            raise ConfigError(
                f"the folder of {self.spec} has runs of an experiment or a population, but not its {EXPERIMENT}, "
                "without which they cannot continue: restore this file, or pass --dir with a new folder to start again"
            )
        return Path("experiments") / self.spec.stem

    def _read(self, path: Path, *, elsewhere: bool) -> _ExperimentCommand | _PopulationCommand:
        """Read and check the spec.

        Args:
            path: the directory of the experiment or population.
            elsewhere: whether it runs on other machines.
        """
        from offbeat.experiments.spec import is_population

        if is_population(self.spec):
            from offbeat.population.population import Population

            population = Population(
                self.spec, path, imports=self.imports, trust_code=self.trust_code, elsewhere=elsewhere
            )
            return _PopulationCommand(population)
        from offbeat.experiments.experiment import Experiment

        experiment = Experiment(self.spec, path, imports=self.imports, trust_code=self.trust_code, elsewhere=elsewhere)
        return _ExperimentCommand(experiment)

    @contextmanager
    def _launcher(self, on_ray: OnRay | None, configs: Sequence[Config], jobs: int | None) -> Iterator[Launcher]:
        """Yield what starts the sessions, whose configs are `configs`."""
        if on_ray is None:
            from offbeat.experiments.launching import LocalLauncher

            yield LocalLauncher(configs, jobs)
            return
        from offbeat.experiments.ray_launcher import RayLauncher, actor_resources, session_resources

        needed = session_resources(configs, on_ray.cpus, on_ray.gpus, on_ray.resources)
        with ExitStack() as connection:
            with spinner("connecting to the Ray cluster", shown=self.progress != "none"):
                cluster = connection.enter_context(on_ray.connected(needed["CPU"]))
                launcher = RayLauncher(cluster, needed, jobs, actor_resources(configs, cluster.address))
            yield launcher

    def _flags(self) -> list[str]:
        """Return the flags that are needed to resume the experiment."""
        from offbeat.config.importing import import_flags

        given = {
            "dir": self.dir, "jobs": self.jobs, "on": None if self.on == "local" else self.on,
            "ray-address": self.ray_address, "cpus": self.cpus, "gpus": self.gpus, "resources": self.resources,
        }  # fmt: skip
        flags = [word for name, value in given.items() if value is not None for word in (f"--{name}", str(value))]
        return [*flags, *import_flags(self.imports), *(["--trust-code"] if self.trust_code else [])]


@dataclass(frozen=True)
class _ExperimentCommand:
    """Prints the plan of an experiment, or runs it."""

    experiment: Experiment

    @property
    def configs(self) -> Sequence[Config]:
        """The configs of the sessions."""
        return self.experiment.configs

    def print_plan(self, jobs: int) -> None:
        """Print each session with the action that would be taken and its command."""
        from offbeat.metrics.text import counted

        experiment = self.experiment
        actions = {"new": "start", "lost": "start again", "unfinished": "resume", "finished": "skip"}
        for trial in experiment.trials:
            for session in experiment.sessions(trial):
                status = session.status()
                if status != "finished" and experiment.pruned(trial):
                    print(f"{session.name}: skip, its trial was pruned")
                    continue
                print(f"{session.name}: {actions[status]}")
                if status != "finished":
                    print(f"  offbeat {shlex.join(session.arguments())}")
        _print_note_on_policies(self.configs)
        known = len(experiment.trials) * len(experiment.spec.seeds)
        if known < experiment.total:
            print(f"{experiment.total - known} more sessions, of trials that Optuna chooses one after the other")
        print(f"{counted(experiment.total, 'session')}, {jobs} at a time, in {experiment.directory.path}")

    def run(self, launcher: Launcher, view: JobsView) -> int:
        """Run the experiment, print the results, and return the exit code."""
        from offbeat.metrics.text import compact, rounded

        result = self.experiment.run(launcher, view)
        for row in result.rows:
            sessions = f"{row['finished']} of {row['sessions']} sessions finished"
            if row.get("pruned_after"):
                sessions += f", pruned after {compact(row['pruned_after'])} env steps"
            final = f"final return {rounded(row['final_return'])} ({row['return_kind']})"
            print_text(f"{row['trial']} ({_setting_of(row)}): {final}, {sessions}")
        _print_failed(result.failed)
        print_text(f"{_STATES[result.exit_code]}: {result.counts}; the table is {self.experiment.directory.markdown}")
        return result.exit_code


@dataclass(frozen=True)
class _PopulationCommand:
    """Prints the plan of a population, or runs it."""

    population: Population

    @property
    def configs(self) -> Sequence[Config]:
        """The configs of the members."""
        return self.population.configs

    def print_plan(self, jobs: int) -> None:
        """Print each member that has finished, or else with its values and its next command, if these are known."""
        from offbeat.population.members import member_name

        population = self.population
        for member in population.finished_members():
            print(f"{member_name(member)}: skip")
        for job in population.known_jobs():
            print(f"{job.name}: {job.about}\n  offbeat {shlex.join(job.arguments())}")
        plan = population.plan
        _print_note_on_policies(self.configs)
        print(
            f"{plan.members} members, {plan.generations} generations of {plan.settings.generation} env "
            f"steps, {jobs} at a time, in {population.path}"
        )

    def run(self, launcher: Launcher, view: JobsView) -> int:
        """Run the population, print the winner, and return the exit code."""
        from offbeat.metrics.text import rounded
        from offbeat.population.members import member_name
        from offbeat.run_directory.directory import RunDirectory

        result = self.population.run(launcher, view)
        path = self.population.path
        _print_failed(result.failed)
        for failure in result.continued:
            name = member_name(failure.member)
            print_text(f"{name} failed in generation {failure.generation} and continued: {failure.reason}")
        table = self.population.directory.markdown
        has = f"the table of all generations is {table}" if table.exists() else "no member has finished a generation"
        print_text(f"{_STATES[result.exit_code]}: {has}")
        if result.winner is not None:
            print(f"  the winner is {result.winner.name}, score {rounded(result.score)}")
            winner = RunDirectory(path / "winner")
            print(f"  next: {winner.next_command('eval')}\n        {winner.next_command('watch')}")
        return result.exit_code


def _has_runs(folder: Path) -> bool:
    """Whether there are runs of an experiment or of a population in a folder."""
    return any(chain(folder.glob("trial-*/seed-*/config.toml"), folder.glob("member-*/config.toml")))


def _print_note_on_policies(configs: Sequence[Config]) -> None:
    """Print why the commands of a plan cannot be run yet, if they name files of policies."""
    if any(config.policies for config in configs):
        print_text("`offbeat run` writes the files of --policies before it starts the first command that needs them")


def _setting_of(row: TableRow) -> str:
    """Return the values of a trial that are searched over, and its env: the columns up to `env`."""
    columns = list(row)[1 : list(row).index("env")]
    return ", ".join([*(f"{key} {row[key]}" for key in columns), row["env"]])


def _print_failed(failed: Sequence[JobOutcome]) -> None:
    for outcome in failed:
        print_text(f"failed: {outcome.job.name}: {outcome.reason}\n  its log: {outcome.job.log}")
