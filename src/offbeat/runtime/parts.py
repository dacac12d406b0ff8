"""The parts of a run in the process that watches over it, from which its training loop is made.

What exists once per policy is in `PolicyParts`; a run has one policy or several. Read `assembly.py` for how they are
made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from offbeat.algorithms.base import Algorithm
from offbeat.config.config import Config
from offbeat.core.memory_shape import Slots
from offbeat.core.pace import Pace
from offbeat.core.types import DEFAULT_POLICY, EnvSpec, Tree, policy_key
from offbeat.memory.arena import SharedArena
from offbeat.memory.weights import Weights
from offbeat.metrics.timings import Timings
from offbeat.models.spec import PolicySpec
from offbeat.runtime.plan import Plan
from offbeat.runtime.saved_state import require_like
from offbeat.workers.learner import Learner
from offbeat.workers.link import Memory

PolicyState = Mapping[str, Any]
"""The state of one policy in a checkpoint, or of all of them: see `joined` and `state_of`."""


@dataclass(frozen=True, kw_only=True)
class PolicyParts:
    """One policy of a run."""

    name: str
    env: EnvSpec
    """What an actor's columns of this policy look like."""
    spec: PolicySpec
    algorithm: Algorithm
    """The one that learns, or one that only reads what others have learned. It has the policy's statistics."""


@dataclass(frozen=True, kw_only=True)
class LearnedPolicy(PolicyParts):
    """One policy of a run with a learner."""

    slots: Slots
    weights: Weights
    """As they are published."""
    learner: Learner
    """It has the policy's optimizers."""

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint has of this policy beside what was learned."""
        versions = self.weights.versions()
        return {
            "learner": self.learner.state(),
            "versions": {str(version): vector for version, vector in versions.items()},
            "progress": {str(version): self.weights.progress(version) for version in versions},
        }

    def restore(self, state: PolicyState) -> None:
        """Take over `state()`."""
        self.learner.restore(state["learner"])
        for version, vector in sorted(state["versions"].items(), key=lambda item: int(item[0])):
            self.weights.open(int(version))[:] = vector
            self.weights.commit(int(version), state["progress"][version])

    def require_like(self, state: PolicyState) -> None:
        """Refuse a state whose arrays have other names or sizes: see `Parts.require_like`."""
        made, where = self.learner.state(), policy_key(self.name, "learner")
        for part in ("algorithm", "adam"):
            require_like(state["learner"][part], made[part], f"{where}, {part}")


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What every run consists of."""

    config: Config
    env: EnvSpec
    policies: tuple[PolicyParts, ...]
    """In the order of their names."""
    timings: Timings
    """Of this process; workers have their own."""

    @property
    def policy(self) -> PolicyParts:
        """The only policy of a run that has one."""
        (only,) = self.policies
        return only

    @property
    def threads(self) -> int:
        """Threads of the learner, or of each worker."""
        return self.policies[0].algorithm.threads or self.config.threads

    def snapshot(self) -> dict[str, Tree]:
        """Return all that each policy has learned, as a checkpoint has it: views; copy what is to last."""
        return {policy.name: policy.algorithm.weights() for policy in self.policies}

    def load_weights(self, weights: Mapping[str, Tree]) -> None:
        """Let each policy go on from what it had learned."""
        for policy in self.policies:
            policy.algorithm.load_weights(weights[policy.name])

    def require_like(self, state: Mapping[str, Any]) -> None:
        """Refuse the state of a checkpoint whose arrays have other names or sizes than those of these parts.

        Raises:
            ConfigError: with what differs.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Give back everything."""
        for policy in self.policies:
            policy.algorithm.close()


@dataclass(frozen=True, kw_only=True)
class PacedParts(Parts):
    """What a run with one learner consists of, but for its actors."""

    policies: tuple[LearnedPolicy, ...]
    plan: Plan
    arrays: Tree
    """What actors and learner share: see `Plan.slabs`."""
    arena: SharedArena | None
    """Where the arrays lie, if other processes are to see them."""
    memory: Memory
    """Slots and weights of all policies on these arrays."""

    @property
    def policy(self) -> LearnedPolicy:
        """The only policy of a run that has one."""
        (only,) = self.policies
        return only

    @property
    def pace(self) -> Pace:
        """The pace of all policies."""
        return self.plan.pace

    def require_like(self, state: Mapping[str, Any]) -> None:
        for policy in self.policies:
            policy.require_like(state_of(policy.name, state))

    def close(self) -> None:
        super().close()
        if self.arena:
            self.arena.close()


# --- the states of policies in a checkpoint -----------------------------------------------------------------


def joined(states: Mapping[str, PolicyState]) -> dict[str, Any]:
    """Return the states of all policies as a checkpoint has them: with one policy its own, else a table of them."""
    return dict(states[DEFAULT_POLICY]) if set(states) == {DEFAULT_POLICY} else {"policies": dict(states)}


def state_of(policy: str, state: Mapping[str, Any]) -> PolicyState:
    """Return the state of one policy, from a checkpoint's."""
    return state if policy == DEFAULT_POLICY else dict(state["policies"][policy])
