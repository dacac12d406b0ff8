"""The parts of a run, in the process of its training loop.

A run has one or several policies; `PolicyParts` has what exists once per policy. `assembly.py` builds the parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from offbeat.algorithms.base import Algorithm
from offbeat.config.config import Config
from offbeat.core.errors import ConfigError
from offbeat.core.memory_shape import Slots
from offbeat.core.pace import Pace
from offbeat.core.policy_names import DEFAULT_POLICY, policy_key
from offbeat.core.types import EnvSpec, Tree
from offbeat.envs.worlds.contract import WorldSpec
from offbeat.league.plan import LeaguePlan
from offbeat.memory.arena import SharedArena
from offbeat.memory.weights import Weights
from offbeat.metrics.timings import Timings
from offbeat.models.spec import PolicySpec
from offbeat.runtime.loop.league import League
from offbeat.runtime.loop.state_checks import require_like
from offbeat.runtime.main_thread import MainThreadWatch
from offbeat.runtime.plan import Plan
from offbeat.workers.learner import Learner
from offbeat.workers.link import Memory

PolicyState = Mapping[str, Any]
"""The state of one policy in a checkpoint: see `join_states` and `state_of_policy`."""


@dataclass(frozen=True, kw_only=True)
class PolicyParts:
    """One policy of a run."""

    name: str
    trained: bool
    """Whether it learns; else it acts with its initial weights."""
    env_spec: EnvSpec
    """Spec of the columns that one actor has for this policy."""
    sides: tuple[tuple[str, ...], ...] = ()
    """The agents of each side of a game that it can play, if policies are drawn for each episode."""
    spec: PolicySpec
    algorithm: Algorithm
    """The algorithm that learns; in a lock-free run, one that only reads the shared parameters. It has the policy's
    running statistics."""


@dataclass(frozen=True, kw_only=True)
class PacedPolicy(PolicyParts):
    """One policy of a run with one learner per policy."""

    slots: Slots
    weights: Weights
    """The published versions of the weights."""
    learner: Learner
    """The learner, which has the optimizers."""

    def state(self) -> dict[str, Any]:
        """Return the state of this policy for a checkpoint, without the learned parameters."""
        versions = self.weights.versions()
        return {
            "learner": self.learner.state(),
            "versions": {str(version): vector for version, vector in versions.items()},
            "progress": {str(version): self.weights.progress(version) for version in versions},
        }

    def restore(self, state: PolicyState) -> None:
        """Restore what `state` returned."""
        self.learner.restore(state["learner"])
        for version, vector in sorted(state["versions"].items(), key=lambda item: int(item[0])):
            self.weights.open(int(version))[:] = vector
            self.weights.commit(int(version), state["progress"][version])

    def require_like(self, state: PolicyState) -> None:
        """Raise ConfigError if the arrays of a state have other names or sizes: see `Parts.require_like`."""
        expected, where = self.learner.state(), policy_key(self.name, "learner")
        for part in ("algorithm", "adam"):
            require_like(state["learner"][part], expected[part], f"{where}, {part}")


def blas_threads(config: Config, policies: Sequence[PolicyParts]) -> int:
    """Return the threads that torch and BLAS may use in the learner of these policies, or in each worker.

    If an algorithm divides its updates among threads of its own, it is one thread.
    """
    divided = any(policy.algorithm.threads for policy in policies)
    return 1 if divided else config.blas_threads


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The parts that every run has."""

    config: Config
    env_spec: EnvSpec
    policies: tuple[PolicyParts, ...]
    """In the order of their names."""
    timings: Timings
    """Timings of this process. Actors and workers have their own."""
    main_thread: MainThreadWatch
    """Watches the thread of the training loop."""
    build_messages: tuple[str, ...] = ()
    """Messages from the time in which the parts were built, for the log: of each, the first line was shown."""

    @property
    def policy(self) -> PolicyParts:
        """The policy of a run with one policy."""
        (only,) = self.policies
        return only

    @property
    def world(self) -> WorldSpec | None:
        """Agents and spaces of a world with several agents; None: each env has one agent."""
        raise NotImplementedError

    @property
    def league_plan(self) -> LeaguePlan | None:
        """The sides and policies of the run's league, if it has one."""
        return None

    @property
    def threads(self) -> int:
        """Number of threads of the learner; in a lock-free run, of each worker."""
        return max(policy.algorithm.threads for policy in self.policies) or self.blas_threads

    @property
    def blas_threads(self) -> int:
        """Threads that torch and BLAS may use in the learner; in a lock-free run, in each worker."""
        return blas_threads(self.config, self.policies)

    def weights(self) -> dict[str, Tree]:
        """Return the learned parameters of each policy, as in a checkpoint. They are views that change later."""
        return {policy.name: policy.algorithm.weights() for policy in self.policies}

    def load_weights(self, weights: Mapping[str, Tree]) -> None:
        """Load the learned parameters of each policy, as `weights` returned them."""
        for policy in self.policies:
            policy.algorithm.load_weights(weights[policy.name])

    def require_like(self, state: Mapping[str, Any]) -> None:
        """Check that a checkpoint's state has as many actors or workers as these parts, and arrays of the same sizes.

        Raises:
            ConfigError: it differs.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Free threads and memory."""
        self.main_thread.close()
        for policy in self.policies:
            policy.algorithm.close()


@dataclass(frozen=True, kw_only=True)
class PacedParts(Parts):
    """The parts of a run with one learner, without its actors."""

    policies: tuple[PacedPolicy, ...]
    plan: Plan
    arrays: Tree
    """The arrays that actors and learner share: see `Plan.slabs`."""
    arena: SharedArena | None
    """The shared memory of these arrays; None if all actors are in this process."""
    memory: Memory
    """Slots and weights of all policies, on these arrays."""
    league: League | None = None
    """The league of the run, if it has one."""

    @property
    def policy(self) -> PacedPolicy:
        """The policy of a run with one policy."""
        (only,) = self.policies
        return only

    @property
    def world(self) -> WorldSpec | None:
        return self.plan.world

    @property
    def league_plan(self) -> LeaguePlan | None:
        return self.plan.league

    @property
    def trained(self) -> tuple[PacedPolicy, ...]:
        """The policies that learn: at least one. All policies of a world have the same env steps."""
        return tuple(policy for policy in self.policies if policy.trained)

    @property
    def pace(self) -> Pace:
        """The pace of all policies."""
        return self.plan.pace

    def require_like(self, state: Mapping[str, Any]) -> None:
        for policy in self.policies:
            policy.require_like(state_of_policy(policy.name, state))
        actors = self.config.runtime.actors
        if len(state["actors"]) != actors:
            raise ConfigError(f"the state has {len(state['actors'])} actors, but the run has {actors}")

    def close(self) -> None:
        super().close()
        if self.arena:
            self.arena.close()


# --- the states of policies in a checkpoint -----------------------------------------------------------------


def join_states(states: Mapping[str, PolicyState]) -> dict[str, Any]:
    """Join the states of all policies for a checkpoint: a single policy's state as it is, several under `policies`."""
    return dict(states[DEFAULT_POLICY]) if set(states) == {DEFAULT_POLICY} else {"policies": dict(states)}


def state_of_policy(policy: str, state: Mapping[str, Any]) -> PolicyState:
    """Return the state of one policy from the state of a checkpoint."""
    return state if policy == DEFAULT_POLICY else dict(state["policies"][policy])
