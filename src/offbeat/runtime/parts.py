"""The parts of a run in the process that watches over it, from which its training loop is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from offbeat.algorithms.base import Algorithm
from offbeat.config.config import Config
from offbeat.core.memory_shape import Slots
from offbeat.core.pace import Pace
from offbeat.core.types import EnvSpec, Tree
from offbeat.memory.arena import SharedArena
from offbeat.memory.weights import Weights
from offbeat.metrics.timings import Timings
from offbeat.models.spec import PolicySpec
from offbeat.runtime.plan import Plan
from offbeat.runtime.saved_state import require_like
from offbeat.workers.learner import Learner
from offbeat.workers.link import Memory


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What every run consists of."""

    config: Config
    env: EnvSpec
    policy: PolicySpec
    algorithm: Algorithm
    """The one that learns, or one that only reads what others have learned."""
    timings: Timings
    """Of this process; workers have their own."""

    @property
    def threads(self) -> int:
        """Threads of the learner, or of each worker."""
        return self.algorithm.threads or self.config.threads

    def snapshot(self) -> Tree:
        """Return all that has been learned so far, as a checkpoint has it: views; copy what is to last."""
        return self.algorithm.weights()

    def require_like(self, state: Mapping[str, Any]) -> None:
        """Refuse the state of a checkpoint whose arrays have other names or sizes than those of these parts.

        Raises:
            ConfigError: with what differs.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Give back everything."""
        self.algorithm.close()


@dataclass(frozen=True, kw_only=True)
class PacedParts(Parts):
    """What a run with one learner consists of, but for its actors."""

    plan: Plan
    arrays: Tree
    """What actors and learner share: see `Plan.slabs`."""
    arena: SharedArena | None
    """Where the arrays lie, if other processes are to see them."""
    memory: Memory
    """Slots and weights on these arrays."""
    learner: Learner

    @property
    def pace(self) -> Pace:
        """The pace of all policies."""
        return self.plan.pace

    @property
    def slots(self) -> Slots:
        """Slots of the only policy."""
        return self.memory.policies[0][0]

    @property
    def weights(self) -> Weights:
        """Published weights of the only policy."""
        return self.memory.policies[0][1]

    def require_like(self, state: Mapping[str, Any]) -> None:
        made = self.learner.state()
        for part in ("algorithm", "adam"):
            require_like(state["learner"][part], made[part], f"learner, {part}")

    def close(self) -> None:
        super().close()
        if self.arena:
            self.arena.close()
