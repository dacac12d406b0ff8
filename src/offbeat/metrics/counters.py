"""The counters of a run, and those of a lock-free worker: how far they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from offbeat.core.fields import Counter, NonNegative, build
from offbeat.core.pace import RatioCounts


@dataclass(frozen=True)
class Counters:
    """The progress of a run. All counters start at the start of the run and continue through every resume."""

    env_steps: Counter = 0
    agent_steps: Counter = 0
    """Decisions of agents in these env steps; with one agent per env, the env steps."""
    frames: Counter = 0
    learning_step: Counter = 0
    updates: Counter = 0
    updates_refused: Counter = 0
    actor_restarts: Counter = 0
    wall_time_s: NonNegative = 0.0
    env_stall_max_s: NonNegative = 0.0
    """Seconds of the longest single call of an env so far."""
    evaluator_restarts: Counter = 0
    evaluation_s: NonNegative = 0.0
    """Seconds that evaluations have taken."""

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Counters:
        """Return the counters of a checkpoint."""
        return build(cls, state, "the counters of a checkpoint")


class WorkerCounters(NamedTuple):
    """Counters of a lock-free worker at the end of its last learning step. They continue through resumes."""

    learning_steps: int = 0
    env_steps: int = 0
    origin: int = 0
    """The first ticket of its replay; with a new replay, utd_ratio is counted from there."""
    valid: int = 0
    """Transitions since `origin`: they count for utd_ratio."""
    updates_before: int = 0
    """Updates before `origin`: they do not count for utd_ratio."""
    agent_steps: int = 0

    @property
    def ratio(self) -> RatioCounts:
        """The counts from which the update ratio of its replay is computed."""
        return RatioCounts(self.origin, self.valid, self.updates_before)

    def with_ratio(self, ratio: RatioCounts) -> WorkerCounters:
        """Return the same counters with other counts for the ratio."""
        return self._replace(**ratio._asdict())
