"""The counters of a run: how far it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from offbeat.core.fields import Counter, NonNegative, build


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
    acted_beyond: Counter = 0
    """Env steps acted but not learned from when the run ended."""
    env_stall_max_s: NonNegative = 0.0
    """Seconds of the longest single call of an env so far."""
    evaluator_restarts: Counter = 0
    evaluation_s: NonNegative = 0.0
    """Seconds that evaluations have taken."""

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Counters:
        """Return the counters of a checkpoint."""
        return build(cls, state, "the counters of a checkpoint")
