"""Prunes the trials of a search while they run: their sessions save and end, and those that wait do not start."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from offbeat.config.config import Config
from offbeat.core.errors import ConfigError
from offbeat.experiments.directory import ExperimentDirectory
from offbeat.experiments.jobs import Job
from offbeat.experiments.pruning_rule import FIRST_TRIALS, Evaluated, Pruned, compare
from offbeat.experiments.results import evaluations_of
from offbeat.experiments.running import JobOutcome, JobSchedule
from offbeat.experiments.sessions import Session
from offbeat.experiments.spec import Spec
from offbeat.experiments.trials import Trial
from offbeat.metrics.text import compact, counted, rounded

_CHECK_S = 1.0
"""Seconds between two looks at the evaluations of the running sessions."""


def require_prunable(spec: Spec, configs: Sequence[Config]) -> None:
    """Raise ConfigError if a spec has `prune_after` and no trial could be pruned."""
    if spec.search is None or (after := spec.search.prune_after) is None:
        return
    if spec.search.combinations <= FIRST_TRIALS:
        raise ConfigError(
            f"{spec.where}: prune_after compares a trial with at least {FIRST_TRIALS} others, and there are "
            f"{counted(spec.search.combinations, 'trial')} on each env: leave it out, or search more"
        )
    for run in (config.run for config in configs):
        if not (every := run.evaluation_interval):
            raise ConfigError(
                f"{spec.where}: prune_after compares evaluations, and eval_every is 0, so there are none: leave one of "
                "them out"
            )
        if after > (last := (run.last_step - 1) // every * every):
            evaluated = f"last evaluated after {last:,}" if last else "not evaluated"
            raise ConfigError(
                f"{spec.where}: prune_after is {after:,}, but before its end, after {run.last_step:,} env steps, a "
                f"session is {evaluated}: lower prune_after or eval_every"
            )


class PruningQueue(JobSchedule):
    """Sessions that start one after the other, until their trial is pruned. A schedule for `Pool.run_from`.

    Args:
        spec: the spec, which has `prune_after`.
        directory: the directory of the experiment.
        count: is called with the outcome of a session that does not start.
        notify: shows a message.
    """

    def __init__(
        self,
        spec: Spec,
        directory: ExperimentDirectory,
        count: Callable[[JobOutcome], None],
        notify: Callable[[str], None],
    ) -> None:
        assert spec.search is not None
        assert spec.search.prune_after is not None
        self._after = spec.search.prune_after
        self._spec, self._directory, self._count, self._notify = spec, directory, count, notify
        self._waiting = deque[Session]()
        self._begun: dict[int, Trial] = {}
        """Trials with which others are compared: those that have started."""
        self._final: dict[int, list[Evaluated]] = {}
        """Number of a trial -> its sessions, if no evaluation will follow."""
        self._seen: dict[str, int] = {}
        """Name of a session -> env steps of its newest evaluation at the last look, or when it started."""
        self._damaged = set[str]()
        self._next_check_s = 0.0

    def add(self, trials: Sequence[Trial], sessions: Sequence[Session]) -> None:
        """Add trials, and those of their sessions that shall run."""
        waiting = {session.name for session in sessions}
        for trial in trials:
            if any(session.name not in waiting or session.run.path.exists() for session in self._sessions(trial)):
                self._begun[trial.number] = trial
                self._evaluated(trial)  # before anything runs: the files of many trials take a while
        self._waiting += sessions

    def prepare_next(self) -> Job | None:
        while self._waiting:
            session = self._waiting.popleft()
            if self._directory.pruned(session.trial) is None:
                self._begun[session.trial.number] = session.trial
                self._seen[session.name] = _evaluated_at(session)
                return session
            self._count(JobOutcome(session, "pruned", "it does not start"))
        return None

    def prune(self, running: Sequence[Job]) -> list[Job]:
        """Prune the trials whose newest evaluations are too low; return the running sessions of all pruned trials."""
        if time.monotonic() < self._next_check_s:
            return []
        self._next_check_s = time.monotonic() + _CHECK_S
        sessions = [job for job in running if isinstance(job, Session)]
        for session in sessions:
            env_steps = _evaluated_at(session)
            if env_steps != self._seen.get(session.name):
                self._seen[session.name] = env_steps
                self._compare(session.trial, env_steps)
        return [session for session in sessions if self._directory.pruned(session.trial) is not None]

    def _compare(self, trial: Trial, env_steps: int) -> None:
        """Prune a trial if its return at an evaluation, of the weights after `env_steps`, is too low."""
        if env_steps < self._after or self._directory.pruned(trial) is not None:
            return
        others = [other for other in self._begun.values() if other.env == trial.env and other.number != trial.number]
        found = compare(self._evaluated(trial), [self._evaluated(other) for other in others], env_steps)
        if found is not None:
            self._directory.write_pruned(trial, found)
            self._notify(f"{trial.name} is pruned: {reason_of(found)}")

    def _sessions(self, trial: Trial) -> list[Session]:
        return self._directory.sessions(self._spec, trial)

    def _evaluated(self, trial: Trial) -> list[Evaluated]:
        """Return the evaluations of all sessions of a trial."""
        if trial.number in self._final:
            return self._final[trial.number]
        pruned = self._directory.pruned(trial) is not None
        ended = [(session, pruned or session.status() == "finished") for session in self._sessions(trial)]
        evaluated = [self._evaluated_session(session, ended=has_ended) for session, has_ended in ended]
        if all(has_ended for _, has_ended in ended) and not pruned:  # the sessions of a pruned one may still save
            self._final[trial.number] = evaluated
        return evaluated

    def _evaluated_session(self, session: Session, *, ended: bool) -> Evaluated:
        try:
            return Evaluated(evaluations_of(session), ended)
        except ConfigError as error:
            if session.name not in self._damaged:
                self._damaged.add(session.name)
                self._notify(f"{session.name} is not compared with others: {error}")
            return Evaluated((), ended)


def _evaluated_at(session: Session) -> int:
    """Return the env steps of the newest evaluation of a session; 0 before the first."""
    return int(session.last_line().get("eval_env_steps") or 0)


def reason_of(pruned: Pruned) -> str:
    """Return why a trial was pruned, as a message says it."""
    return (
        f"its best return up to {compact(pruned.env_steps)} env steps is {rounded(pruned.best_return)}, and the median "
        f"of {pruned.others} others is {rounded(pruned.median)}"
    )
