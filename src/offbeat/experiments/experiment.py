"""An experiment from its spec to its table: begun, or gone on with where it stopped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import cast

from offbeat.core.errors import ConfigError
from offbeat.core.threads import usable_cores
from offbeat.experiments import optuna_search
from offbeat.experiments.directory import ExperimentDirectory
from offbeat.experiments.progress import SessionCounts, View
from offbeat.experiments.report import plot_experiment, row_of, write_table
from offbeat.experiments.results import Row, result_of
from offbeat.experiments.running import Outcome, Pool, Stops, wait_until_free
from offbeat.experiments.search import Search
from offbeat.experiments.sessions import Session, cores_of
from offbeat.experiments.spec import Spec, read_spec
from offbeat.experiments.trials import Trial, require_sound, trial_of, trials_of, whole_keys


@dataclass(frozen=True)
class Ended:
    """How `Experiment.run` has ended."""

    exit_code: int
    """0: every session is finished; 1: some failed; 130: it was stopped."""
    counts: SessionCounts
    failed: tuple[Outcome, ...]
    rows: tuple[Row, ...]
    """Of the table."""


class Experiment:
    """What a spec asks for, and the directory that it is kept in.

    Everything that can be refused is refused here, before anything is begun or written.

    Args:
        spec_file: the spec.
        path: where the experiment is kept, or will be.
        trust_code: import and call whatever code the spec names.

    Raises:
        ConfigError: the spec, one of its trials, or what is in the directory is not accepted.
    """

    def __init__(self, spec_file: Path, path: Path, *, trust_code: bool = False) -> None:
        self.spec = read_spec(spec_file, trust_code=trust_code)
        self._text = spec_file.read_bytes()
        self.directory = ExperimentDirectory(path)
        self.directory.require_for(self.spec)
        self.trials = self._by_optuna() if self.chosen_by_optuna else trials_of(self.spec)
        """All of them; in a search by Optuna those that have been begun."""
        require_sound(self.trials or _examples(self.spec))
        self.directory.require_same_sessions(self.spec, self.trials)

    @property
    def chosen_by_optuna(self) -> bool:
        return self.spec.search is not None and self.spec.search.method == "optuna"

    def _by_optuna(self) -> list[Trial]:
        optuna_search.require_optuna()
        if len(self.spec.envs) > 1:
            raise ConfigError("method is optuna, which cannot weigh returns of different envs: write a spec for each")
        return self.directory.known_trials(self.spec)

    @property
    def jobs(self) -> int:
        """Sessions that the cores here suffice for, side by side."""
        trials = self.trials or _examples(self.spec)
        return max(1, usable_cores() // max(cores_of(trial.config) for trial in trials))

    @property
    def total(self) -> int:
        """Sessions of all trials, those that are not known yet among them."""
        trials = len(self.trials) if self.spec.draws is None else self.spec.draws * len(self.spec.envs)
        return trials * len(self.spec.seeds)

    def sessions(self, trial: Trial) -> list[Session]:
        """Return a trial's sessions, one a seed."""
        return self.directory.sessions(self.spec, trial)

    # --- running --------------------------------------------------------------------------------------------

    def run(self, command: Sequence[str], view: View, jobs: int | None = None) -> Ended:
        """Run what is not finished yet, then draw the graphs and write the table, also when it is stopped.

        Args:
            command: how `offbeat` is typed here.
            view: is shown how things stand.
            jobs: sessions that run side by side; None: as many as the cores suffice for.

        Raises:
            ConfigError: another process works in the directory.
            KeyboardInterrupt: two signals came; what ran has been killed.
        """
        with self.directory.locked(), Stops() as stops:
            self.directory.require_for(self.spec)
            sessions = [session for trial in self.trials for session in self.sessions(trial)]
            wait_until_free(sessions, view)
            self.directory.begin(self.spec, self._text)
            finished = sum(session.standing() == "finished" for session in sessions)
            pool = Pool(command, jobs or self.jobs, view, stops, SessionCounts(self.total, finished))
            view.start()
            try:
                if finished:
                    view.message(f"{finished} sessions are finished already, and are left alone")
                self._run(pool, stops)
                failed = tuple(outcome for outcome in pool.outcomes if outcome.state == "failed")
                rows = self._conclude(failed, view)
            finally:
                view.close()
        exit_code = 130 if stops.asked else 1 if failed else 0
        return Ended(exit_code, pool.counts, failed, rows)

    def _run(self, pool: Pool, stops: Stops) -> None:
        for trials in self._batches():
            for trial in trials:
                self.directory.write_trial(trial)
            sessions = [session for trial in trials for session in self.sessions(trial)]
            pool.run([session for session in sessions if session.standing() != "finished"])
            if stops.asked:
                return

    def _batches(self) -> Iterator[list[Trial]]:
        """Yield trials that can run side by side: all, or one after the other where results decide on the next."""
        if not self.chosen_by_optuna:
            yield self.trials
            return
        for trial in list(self.trials):
            yield [trial]
        search = cast("Search", self.spec.search)
        for number in range(len(self.trials), search.trials or 0):
            self.trials.append(self._next(search, number))
            yield self.trials[-1:]

    def _next(self, search: Search, number: int) -> Trial:
        """Ask Optuna for the trial of this number."""
        scored = [(trial.values, score) for trial in self.trials if (score := self._score(trial)) is not None]
        values = optuna_search.ask(search, whole_keys(self.spec), scored, number)
        return trial_of(self.spec, number, self.spec.envs[0], values)

    def _score(self, trial: Trial) -> float | None:
        """Return the mean final return of a trial; None where a session has not finished."""
        results = [result_of(session, None) for session in self.sessions(trial)]
        finals = [result.final_return for result in results if result is not None and result.finished]
        known = [final for final in finals if final is not None]
        return fmean(known) if len(known) == len(results) else None

    def _conclude(self, failed: Sequence[Outcome], view: View) -> tuple[Row, ...]:
        """Draw the graphs and write the table of what there is."""
        names = {outcome.session.name for outcome in failed}
        rows = tuple(row_of(self.sessions(trial), names, self.spec.target_return) for trial in self.trials)
        if rows:
            write_table(rows, self.directory.csv, self.directory.markdown)
        plot_experiment(self.directory.path, [self.directory.folder(trial) for trial in self.trials], view.message)
        return rows


def _examples(spec: Spec) -> list[Trial]:
    """Return trials that stand for those which Optuna will choose, so that bad values are refused at once."""
    search = cast("Search", spec.search)
    whole = whole_keys(spec)
    return [
        trial_of(spec, 0, spec.envs[0], {key: _whole(value, key in whole) for key, value in values.items()})
        for values in search.examples()
    ]


def _whole(value: object, whole: bool) -> object:
    return int(value) if whole and isinstance(value, float) else value
