"""Prunes the trials of a search while they run: their sessions save and end, and those that wait do not start."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from offbeat.config.config import Config
from offbeat.core.errors import ConfigError
from offbeat.experiments.directory import ExperimentDirectory
from offbeat.experiments.jobs import Job
from offbeat.experiments.pruning_rule import FIRST_TRIALS, Evaluated, Pruned, verdict
from offbeat.experiments.results import evaluations_of
from offbeat.experiments.running import JobOutcome
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
        if not run.evaluation_interval:
            raise ConfigError(
                f"{spec.where}: prune_after compares evaluations, and eval_every is 0, so there are none: leave one of "
                "them out"
            )
        if after >= (steps := min(run.steps, run.stop_at or run.steps)):
            raise ConfigError(
                f"{spec.where}: prune_after is {after:,}, and a session ends after {steps:,} env steps: lower it, or "
                "leave it out"
            )


class PruningQueue:
    """Sessions that start one after the other, until their trial is pruned. A schedule for `Pool.run_from`.

    Args:
        sessions: the sessions that start, in this order.
        trials: all trials so far, with which each one is compared.
        spec: the spec, which has `prune_after`.
        directory: the directory of the experiment.
        count: is called with the outcome of a session that does not start.
        notify: shows a message.
    """

    def __init__(
        self,
        sessions: Sequence[Session],
        trials: Sequence[Trial],
        spec: Spec,
        directory: ExperimentDirectory,
        count: Callable[[JobOutcome], None],
        notify: Callable[[str], None],
    ) -> None:
        assert spec.search is not None
        assert spec.search.prune_after is not None
        self._after = spec.search.prune_after
        self._waiting, self._trials, self._spec, self._directory = deque(sessions), trials, spec, directory
        self._count, self._notify = count, notify
        self._next_check_s = 0.0
        self._checked: dict[str, int] = {}
        """Name of a session -> evaluations that it had when its trial was last checked."""

    def prepare_next(self) -> Job | None:
        while self._waiting:
            session = self._waiting.popleft()
            if self._directory.pruned(session.trial) is None:
                return session
            self._count(JobOutcome(session, "pruned", "it does not start"))
        return None

    def ended(self, outcome: JobOutcome) -> None:
        pass

    def restart(self, outcome: JobOutcome) -> bool:  # noqa: ARG002 - no session is
        return False

    def prune(self, running: Sequence[Job]) -> list[Job]:
        """Prune the trials whose newest evaluations are too low; return their running sessions."""
        if time.monotonic() < self._next_check_s:
            return []
        self._next_check_s = time.monotonic() + _CHECK_S
        sessions = [job for job in running if isinstance(job, Session)]
        evaluations = {session.name: session.last_line().get("evaluations", 0) for session in sessions}
        changed = {s.trial.number: s.trial for s in sessions if evaluations[s.name] != self._checked.get(s.name, 0)}
        self._checked |= evaluations
        pruned = {number for number, trial in changed.items() if self._prune(trial)}
        return [session for session in sessions if session.trial.number in pruned]

    def _prune(self, trial: Trial) -> bool:
        """Prune a trial if its return is too low; return whether it is."""
        if self._directory.pruned(trial) is not None:
            return False  # its sessions are ending
        others = [other for other in self._trials if other.env == trial.env and other.number != trial.number]
        found = verdict(self._evaluated(trial), [self._evaluated(other) for other in others], self._after)
        if found is None:
            return False
        self._directory.write_pruned(trial, found)
        self._notify(f"{trial.name} is pruned: {reason_of(found)}")
        return True

    def _evaluated(self, trial: Trial) -> list[Evaluated]:
        pruned = self._directory.pruned(trial) is not None
        sessions = self._directory.sessions(self._spec, trial)
        return [Evaluated(evaluations_of(session), pruned or session.status() == "finished") for session in sessions]


def reason_of(pruned: Pruned) -> str:
    """Return why a trial was pruned, as a message says it."""
    return (
        f"its best return after {compact(pruned.env_steps)} env steps is {rounded(pruned.best_return)}, and the median "
        f"of {pruned.others} others is {rounded(pruned.median)}"
    )
