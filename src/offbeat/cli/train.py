"""`offbeat train` and `offbeat resume`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, get_args

from tyro.conf import Positional, UseAppendAction, arg

from offbeat.cli.flags import (
    CheckpointName,
    EnvKwargs,
    Imports,
    RunImports,
    TrustCode,
    Wrappers,
    argument,
    assigned,
    env_settings_of,
    flags_of,
    with_flags,
)
from offbeat.cli.output import spinner, stdout_to_stderr
from offbeat.cli.streams import is_output_written
from offbeat.config.run_config import RunConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.printing import print_text
from offbeat.metrics.progress.views import ProgressKind

if TYPE_CHECKING:
    from offbeat.api.train import Run
    from offbeat.config.config import Config
    from offbeat.run_directory.directory import RunDirectory

Steps = Annotated[
    str | None,
    argument(RunConfig, "steps", "Env steps to train to, in total. Default: the steps of the run's config."),
]
Runtime = Annotated[str | None, argument(RuntimeConfig, "runtime", "Continue in another runtime.")]
PROGRESS = "|".join(get_args(ProgressKind))
Progress = Annotated[
    ProgressKind | None,
    arg(metavar=PROGRESS, help="Default: the dashboard on a terminal, lines elsewhere.", help_behavior_hint=""),
]


@with_flags(RunConfig, RuntimeConfig, after="preset")
class RunArguments:
    """The flags that `train` and `bench` share: all that define a config."""

    algo: Annotated[Positional[str], arg(metavar="ALGO")]
    """Algorithm; `offbeat list algorithms` shows the names. Your own: my_module:MyAlgorithm."""
    env: Annotated[Positional[str], arg(metavar="ENV")]
    """Gymnasium id, or envpool:ID; `offbeat list envs` shows the ids. Your own: my_module:MyEnv."""
    preset: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="")] = None
    """Preset to start from; none: only the defaults. Default: the preset for ALGO and ENV, if there is one."""
    imports: Imports = ()
    """Python module to import first. It can register envs, algorithms, encoders and runtimes."""
    env_kwargs: EnvKwargs = ()
    wrappers: Wrappers = ()
    set: Annotated[UseAppendAction[tuple[tuple[str, ...], ...]], arg(metavar="KEY=VALUE ...")] = ()
    """Any settings; `offbeat list settings ALGO` shows them."""

    def config(self) -> Config:
        """Build the config and check it."""
        from offbeat.config.resolve import resolve

        return resolve(self.algo, self.env, preset=self.preset, flags=self._flags(), assignments=assigned(self.set))

    def _flags(self) -> dict[str, Any]:
        """Return the flags that were given, by config key."""
        values = {name: getattr(self, name) for name in (*flags_of(RunConfig), *flags_of(RuntimeConfig))}
        flags: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
        if self.imports:
            flags["imports"] = self.imports
        return flags | env_settings_of(self.env_kwargs, self.wrappers)


@dataclass(frozen=True)
class Train(RunArguments):
    """Train an agent: offbeat train ppo CartPole-v1."""

    run_dir: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None
    """Run directory; it must not exist yet. Default: a new directory under runs/."""
    progress: Progress = None

    def run(self) -> int:
        with spinner("starting", shown=self.progress != "none"):
            config = self.config()
        from offbeat.api.train import train_config

        with stdout_to_stderr():
            run = train_config(config, self.run_dir, progress=self.progress)
        return _report(run)


@dataclass(frozen=True)
class Resume:
    """Continue a run from its latest checkpoint, or from an earlier one: offbeat resume runs/NAME.

    Settings that are not given stay as they are in the run.
    """

    run_directory: Annotated[Positional[Path], arg(metavar="RUN")]
    """Run directory."""
    steps: Steps = None
    stop_at: Annotated[str | None, argument(RunConfig, "stop_at")] = None
    stop_at_return: Annotated[str | None, argument(RunConfig, "stop_at_return")] = None
    time: Annotated[str | None, argument(RunConfig, "time")] = None
    eval_every: Annotated[str | None, argument(RunConfig, "eval_every")] = None
    runtime: Runtime = None
    device: Annotated[str | None, argument(RuntimeConfig, "device")] = None
    set: Annotated[UseAppendAction[tuple[tuple[str, ...], ...]], arg(metavar="KEY=VALUE ...")] = ()
    """Settings that change from here on, such as learning_rate. One that cannot change is refused with the reason."""
    checkpoint: CheckpointName = "latest"
    """latest, best or step-<12 digits>. Later metrics lines and checkpoints are deleted, except the best checkpoint. A
    best checkpoint that has only weights is refused."""
    progress: Progress = None
    imports: RunImports = ()
    trust_code: TrustCode = False

    def run(self) -> int:
        with spinner("starting", shown=self.progress != "none"):
            from offbeat.api.resume import continue_run
            from offbeat.config.importing import import_modules

            import_modules(self.imports)
            given = self._given()
        with stdout_to_stderr():
            run = continue_run(
                self.run_directory,
                given,
                checkpoint=self.checkpoint,
                progress=self.progress,
                trust_code=self.trust_code,
            )
        return _report(run)

    def _given(self) -> dict[str, object]:
        """Return the settings that were given, by flags and by --set.

        Raises:
            ConfigError: one is given twice.
        """
        from offbeat.config.assignments import given_twice

        given = assigned(self.set)
        for key in ("steps", "stop_at", "stop_at_return", "time", "eval_every", "runtime", "device"):
            if (value := getattr(self, key)) is not None:
                if key in given:
                    raise given_twice(key)
                given[key] = value
        return given


def _report(run: Run) -> int:
    """Print how the run ended and the next commands, and return the exit code."""
    from offbeat.plots.runs import has_returns
    from offbeat.run_directory.directory import RunDirectory

    print_text(f"{run.state}: {run.reason}")
    directory = RunDirectory(run.path)
    if directory.has_checkpoint:
        if run.state == "interrupted":
            commands = [directory.next_command("resume")]
        else:  # the returns of a league say little: each policy plays against itself
            commands = [directory.next_command("eval")]
            if _can_match(directory):
                commands.append(directory.next_command("match"))
        if has_returns(run.path):
            commands.append(f"offbeat plot {quote(str(run.path))}")
        print("  next: " + "\n        ".join(commands))
    is_output_written()  # if it is not, the run has still ended as it has
    return run.exit_code


def _can_match(directory: RunDirectory) -> bool:
    """Whether the run has a league whose players can meet in a match."""
    from offbeat.league.seatings import can_meet
    from offbeat.league.sides import agents_of_sides, policies_by_agent
    from offbeat.run_directory.checkpoint import agents_in

    league = directory.read_league()
    if league is None:
        return False
    agents = agents_in(directory.checkpoints_folder / "latest")
    policies = policies_by_agent(agents)
    sides = agents_of_sides(
        league.sides, directory.read_run().env, policies, what="league", example="--set league.sides"
    )
    return can_meet(agents.values(), sides)
