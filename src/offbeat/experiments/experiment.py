"""An experiment, from its spec to its report. A stopped experiment is continued."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean

from offbeat.config.config import Config
from offbeat.config.importing import defer_signals
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import ConfigError, RunFailed
from offbeat.core.field_definitions import hints_of
from offbeat.experiments import optuna_search
from offbeat.experiments.directory import ExperimentDirectory
from offbeat.experiments.launching import Launcher
from offbeat.experiments.progress import JobCounts, JobsView
from offbeat.experiments.pruning import PruningQueue, require_prunable
from offbeat.experiments.pruning_rule import Pruned
from offbeat.experiments.report import plot_experiment, row_of, write_table
from offbeat.experiments.results import ReturnKind, TableRow, result_of, return_kind
from offbeat.experiments.running import JobOutcome, Pool, StopSignals, wait_until_free
from offbeat.experiments.search import Search, Values
from offbeat.experiments.sessions import Session
from offbeat.experiments.spec import Spec, read_spec
from offbeat.experiments.trials import (
    Trial,
    different_settings,
    trial_of,
    trials_of,
    try_envs,
)
from offbeat.metrics.text import counted

_MOST_DRAWS = 100
"""Draws by Optuna for one trial, until its settings fit together and are those of no earlier trial."""


@dataclass(frozen=True)
class ExperimentResult:
    """The result of `Experiment.run`."""

    exit_code: int
    """0: all sessions are finished or pruned; 1: a session failed; 130: stopped by a signal."""
    counts: JobCounts
    failed: tuple[JobOutcome, ...]
    rows: tuple[TableRow, ...]
    """Rows of the table."""


class Experiment:
    """The trials of a spec, and their directory. All errors of the spec are found here, before anything is written.

    Args:
        spec_file: Path of the spec.
        path: Path of the experiment's directory.
        imports: Modules to import first, here and in the processes of the sessions.
        trust_code: Whether to import and call all code that the spec names, and to write through links that lead out
            of the directory.
        elsewhere: Whether the sessions run on other machines.

    Raises:
        ConfigError: the spec or a trial is invalid, or the directory contains something else.
    """

    def __init__(
        self,
        spec_file: Path,
        path: Path,
        *,
        imports: tuple[str, ...] = (),
        trust_code: bool = False,
        elsewhere: bool = False,
    ) -> None:
        self.spec = read_spec(spec_file, imports=imports, trust_code=trust_code)
        self._text = spec_file.read_bytes()
        self.directory = ExperimentDirectory(path, trust_code=trust_code)
        self.directory.require_for(self.spec)
        search = self.spec.search
        self._optuna = search if search is not None and search.method == "optuna" else None
        """The search, if Optuna chooses the settings of the trials, one trial after the other."""
        trials = trials_of(self.spec) if self._optuna is None else self._optuna_trials()
        self.trials = self.directory.started(self.spec, trials)
        """All trials; in a search by Optuna those that have been started."""
        examples = [] if self._optuna is None else _examples(self.spec, self._optuna)
        self._checked = [*self.trials, *examples]
        require_prunable(self.spec, [trial.config for trial in self._checked])
        try_envs(self._checked, self.spec, elsewhere=elsewhere)
        self.directory.require_same_sessions(self.spec, self.trials)

    def _optuna_trials(self) -> list[Trial]:
        """Return the trials of a search by Optuna that have been started."""
        optuna_search.require_optuna()
        if len(self.spec.envs) > 1:
            raise ConfigError(
                f"{self.spec.where}: method is optuna, which cannot compare the returns of different envs: write one "
                "spec per env"
            )
        different_settings(self.spec)
        return self.directory.known_trials(self.spec)

    @property
    def configs(self) -> list[Config]:
        """The configs of all trials; in a search by Optuna of those that have been started, and of examples, of which
        one needs as many cores and GPUs as any trial that may follow.
        """
        layouts = () if self._optuna is None else _layouts(self.spec, self._optuna)
        return [*(trial.config for trial in self._checked), *layouts]

    @property
    def total(self) -> int:
        """Number of sessions of all trials, including trials that Optuna has not chosen yet."""
        trials = (
            len(self.trials) if self.spec.trials_per_env is None else self.spec.trials_per_env * len(self.spec.envs)
        )
        return trials * len(self.spec.seeds)

    def sessions(self, trial: Trial) -> list[Session]:
        """Return a trial's sessions, one per seed."""
        return self.directory.sessions(self.spec, trial)

    # --- running --------------------------------------------------------------------------------------------

    def run(self, launcher: Launcher, view: JobsView) -> ExperimentResult:
        """Run the sessions that are not finished. Write the report, also after a stop.

        Args:
            launcher: Starts the sessions.
            view: The progress view.

        Raises:
            ConfigError: another process uses the directory, the sessions cannot run in it, or Optuna finds no settings
                that fit together.
            RunFailed: the system starts no process, or Ray is lost.
            KeyboardInterrupt: a second signal was received; the running sessions were killed.
        """
        launcher.prepare(self.directory.path, view.message)
        with self.directory.locked(), StopSignals() as stops:
            self.directory.require_for(self.spec)
            sessions = [session for trial in self.trials for session in self.sessions(trial)]
            wait_until_free(sessions, view, stops)
            self.directory.write_record(self.spec, self._text)
            finished = sum(session.status() == "finished" for session in sessions)
            pruned = sum(len(self._left(trial)) for trial in self.trials if self.directory.pruned(trial))
            pool = Pool(launcher, view, stops, JobCounts(self.total, finished, pruned=pruned))
            view.start()
            try:
                if finished:
                    view.message(f"already finished: {counted(finished, 'session')}")
                try:
                    self._run(pool, stops, view)
                except (ConfigError, RunFailed):
                    self._write_report(pool.failed, view)
                    raise
                rows = self._write_report(pool.failed, view)
            finally:
                view.close()
        exit_code = 130 if stops.requested else 1 if pool.failed else 0
        return ExperimentResult(exit_code, pool.counts, pool.failed, rows)

    def _run(self, pool: Pool, stops: StopSignals, view: JobsView) -> None:
        prunes = self.spec.search is not None and self.spec.search.prune_after is not None
        queue = PruningQueue(self.spec, self.directory, pool.count, view.message) if prunes else None
        for trials in self._batches():
            for trial in trials:
                self.directory.write_trial(trial)
            left = [trial for trial in trials if self.pruned(trial) is None]
            sessions = [session for trial in left for session in self._left(trial)]
            if queue is None:
                pool.run(sessions)
            else:
                queue.add(trials, sessions)
                pool.run_from(queue)
            if stops.requested:
                return

    def pruned(self, trial: Trial) -> Pruned | None:
        """Return why a trial was pruned: its sessions that are not finished do not go on. None if it was not."""
        pruned = self.directory.pruned(trial)
        return pruned if pruned and self._left(trial) else None

    def _left(self, trial: Trial) -> list[Session]:
        """Return the sessions of a trial that are not finished."""
        return [session for session in self.sessions(trial) if session.status() != "finished"]

    def _batches(self) -> Iterator[list[Trial]]:
        """Yield trials that can run at the same time: all, or single ones if Optuna chooses the next trial."""
        if self._optuna is None:
            yield self.trials
            return
        for trial in list(self.trials):
            yield [trial]
        known = {trial.number for trial in self.trials}
        for number in range(self._optuna.combinations):
            if number not in known:  # not started yet, or its folder was deleted
                trial = self._next_trial(self._optuna, number)
                self.trials = sorted([*self.trials, trial], key=lambda trial: trial.number)
                yield [trial]

    def _next_trial(self, search: Search, number: int) -> Trial:
        """Return the trial with this number: of the settings that Optuna draws, the first new ones that fit together.

        If it draws only those of earlier trials, they are repeated.

        Raises:
            ConfigError: Optuna finds none.
        """
        kind = self._return_kind()
        scored = [(trial.values, self._score(trial, kind)) for trial in self.trials]
        drawn = optuna_search.draws(search, scored, number)
        known = [trial.values for trial in self.trials]
        repeated: Trial | None = None
        for trial in self._fitting(number, islice(drawn, _MOST_DRAWS)):
            if trial.values not in known:
                return trial
            repeated = trial
        return repeated or trial_of(self.spec, number, self.spec.envs[0], next(drawn))  # raises: no draw fits together

    def _fitting(self, number: int, drawn: Iterable[Values]) -> Iterator[Trial]:
        """Yield the trials with this number of those values that fit together."""
        for values in drawn:
            with suppress(ConfigError):
                yield trial_of(self.spec, number, self.spec.envs[0], values)

    def _return_kind(self) -> ReturnKind:
        """Return of which kind the returns of all trials are, so that they can be compared."""
        return return_kind(session for trial in self.trials for session in self.sessions(trial))

    def _score(self, trial: Trial, kind: ReturnKind) -> float | Pruned | None:
        """Return the mean final return of a trial, or why it was pruned; None if a session has failed, or has no return
        of this kind.
        """
        if (pruned := self.pruned(trial)) is not None:
            return pruned
        sessions = self.sessions(trial)
        results = [result_of(session, None, kind, finished=session.status() == "finished") for session in sessions]
        finals = [result.final_return for result in results if result is not None and result.finished]
        known = [final for final in finals if final is not None]
        return fmean(known) if len(known) == len(results) else None

    def _write_report(self, failed: Sequence[JobOutcome], view: JobsView) -> tuple[TableRow, ...]:
        """Write the table and plot the graphs of all results so far."""
        names = {outcome.job.name for outcome in failed}
        kind, target = self._return_kind(), self.spec.target_return
        with defer_signals():  # a second signal ends the command after the report
            pruned = [self.pruned(trial) for trial in self.trials]
            rows = tuple(
                row_of(self.sessions(trial), names, target, kind, why, with_pruning=any(pruned))
                for trial, why in zip(self.trials, pruned, strict=True)
            )
            if rows:
                write_table(rows, self.directory.csv, self.directory.markdown)
            plot_experiment(self.directory.path, [self.directory.folder(trial) for trial in self.trials], view.message)
        return rows


def _examples(spec: Spec, search: Search) -> list[Trial]:
    """Return examples of the trials that Optuna may choose, so that invalid values are found at once."""
    return [trial_of(spec, 0, spec.envs[0], values) for values in search.examples()]


def _layouts(spec: Spec, search: Search) -> Iterator[Config]:
    """Yield the configs of all combinations of examples of the settings of [runtime] that fit together."""
    for values in search.combined_examples(hints_of(RuntimeConfig)):
        with suppress(ConfigError):
            yield trial_of(spec, 0, spec.envs[0], values).config
