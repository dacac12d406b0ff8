"""`offbeat run`."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from offbeat.cli.busy import busy
from offbeat.cli.train import PROGRESS, ProgressKind
from offbeat.cli.trusting import Imports

if TYPE_CHECKING:
    from offbeat.experiments.experiment import Experiment, ExperimentResult

COMMAND = (sys.executable, "-P", "-c", "from offbeat.cli.session import main; main()")
"""What is typed for `offbeat` to begin a session: it ends when this process does."""


@dataclass(frozen=True)
class RunSpec:
    """Run an experiment, or go on with it: offbeat run experiment.toml."""

    spec: Annotated[Positional[Path], arg(metavar="SPEC.toml")]
    """What is tried, and with which seeds; docs/how-to/search.md describes it."""
    dry_run: bool = False
    """Print every run that would start, and start none."""
    dir: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None
    """Where the experiment is kept. Default: experiments/ and the name of the spec."""
    jobs: Annotated[str | None, arg(metavar="N", help_behavior_hint="")] = None
    """Sessions that run side by side. Default: as many as the cores suffice for."""
    progress: Annotated[ProgressKind, arg(metavar=PROGRESS, help_behavior_hint="")] = None
    """Default: a line for each session that runs, redrawn in place on a terminal."""
    imports: Imports = ()
    """Python module to import first, which may register what the spec names; of the current folder too."""
    trust_code: bool = False
    """Import and call whatever code the spec names: only for specs of your own, or after reading them."""

    def run(self) -> int:
        from offbeat.config.registry import import_modules
        from offbeat.core.fields import Count, read

        import_modules(self.imports)
        jobs = None if self.jobs is None else read("jobs", self.jobs, Count)
        path = self.dir or Path("experiments") / self.spec.stem
        with busy("reading the spec, and trying the envs", shown=self.progress != "none"):
            from offbeat.experiments.experiment import Experiment
            from offbeat.experiments.progress import make_view

            view = make_view(self.progress, sys.stderr)
            experiment = Experiment(self.spec, path, trust_code=self.trust_code)
        if self.dry_run:
            _print_plan(experiment, jobs or experiment.jobs)
            return 0
        again = shlex.join(["offbeat", "run", str(self.spec), *self._flags()])
        try:
            ended = experiment.run(COMMAND, view, jobs)
        except KeyboardInterrupt:
            print(f"interrupted: what ran has been killed, and goes on from its last checkpoint\n  to go on: {again}")
            return 130
        _report(ended, path, again)
        return ended.exit_code

    def _flags(self) -> list[str]:
        """Return the flags that are needed to go on with it."""
        directory = ["--dir", str(self.dir)] if self.dir else []
        imports = [word for module in self.imports for word in ("--import", module)]
        return [*directory, *imports, *(["--trust-code"] if self.trust_code else [])]


def _print_plan(experiment: Experiment, jobs: int) -> None:
    """Print every session, how it stands, and what would be typed for it."""
    words = {"new": "begin", "lost": "begin anew", "unfinished": "go on", "finished": "leave alone"}
    for trial in experiment.trials:
        for session in experiment.sessions(trial):
            status = session.status_on_disk()
            print(f"{session.name}: {words[status]}")
            if status != "finished":
                print(f"  offbeat {shlex.join(session.arguments())}")
    known = len(experiment.trials) * len(experiment.spec.seeds)
    if known < experiment.total:
        print(f"{experiment.total - known} sessions more, of trials that Optuna will choose one after the other")
    print(f"{experiment.total} sessions, {jobs} at a time, in {experiment.directory.path}")


def _report(ended: ExperimentResult, path: Path, again: str) -> None:
    """Say how an experiment ended and what to type next."""
    from offbeat.metrics.text import figure

    for row in ended.rows:
        sessions = f"{row['finished']} of {row['sessions']} sessions finished"
        print(f"{row['trial']}: final return {figure(row['final_return'])}, {sessions}")
    for outcome in ended.failed:
        print(f"failed: {outcome.session.name}: {outcome.reason}\n  its log: {outcome.session.log}")
    state = {0: "finished", 1: "failed", 130: "interrupted"}[ended.exit_code]
    print(f"{state}: {ended.counts}; the table is {path / 'table.md'}")
    if ended.exit_code:
        print(f"  to go on: {again}")
