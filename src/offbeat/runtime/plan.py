"""What an actor is made from, in this process or in another: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from offbeat.config.env import EnvConfig
from offbeat.config.run_config import RunConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.memory_shape import MemoryShape, Slab, Slots
from offbeat.core.pace import Pace
from offbeat.core.types import EnvSpec, Field, Tree, policy_key
from offbeat.envs.make import make_envs
from offbeat.memory.weights import Weights, weight_slabs
from offbeat.models.acting import LivePolicy, Renew, make_policy
from offbeat.models.published import published_layout
from offbeat.models.spec import PolicySpec
from offbeat.runtime.gate import board_slabs, first_ticket
from offbeat.workers.actor import Actor
from offbeat.workers.columns import PolicyColumns, Watch
from offbeat.workers.link import Memory

Snapshot = dict[str, Any] | None
"""The state of an actor's envs and episodes; None where new episodes are to begin."""


@dataclass(frozen=True)
class PolicyPlan:
    """One policy of a run: what it sees and does, and what is remembered of it."""

    name: str
    env: EnvSpec
    """What an actor's columns of this policy look like."""
    policy: PolicySpec
    fields: tuple[Field, ...]
    """What is recorded of each row."""
    memory: MemoryShape
    """Slots, and the pace on them."""

    def slabs(self) -> list[Slab]:
        """Return its slots and weights on the run's arena."""
        own = [
            *self.memory.slabs(self.fields),
            *weight_slabs(published_layout(self.policy).size, self.memory.pace.versions),
        ]
        return [(policy_key(self.name, name), shape, dtype) for name, shape, dtype in own]

    def slots(self, arrays: Tree) -> Slots:
        """Return its slots on the arrays of an arena."""
        return self.memory.slots(self.fields, self._own(arrays))

    def weights(self, arrays: Tree) -> Weights:
        """Return its published weights on the arrays of an arena."""
        return Weights(self._own(arrays))

    def _own(self, arrays: Tree) -> Tree:
        prefix = policy_key(self.name)
        return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


@dataclass(frozen=True)
class Plan:
    """All that an actor is made from."""

    run: RunConfig
    env_config: EnvConfig
    runtime: RuntimeConfig
    policies: tuple[PolicyPlan, ...]
    """In the order of their names. They have one pace."""
    actor_threads: int
    """Threads that BLAS may use in an actor process."""

    @property
    def pace(self) -> Pace:
        """The pace of all policies."""
        return self.policies[0].memory.pace

    @property
    def policy(self) -> PolicyPlan:
        """The only policy of a run that has one."""
        (only,) = self.policies
        return only

    def slabs(self) -> list[Slab]:
        """Return what actors and learner share: slots, weights and the board."""
        return [*(slab for policy in self.policies for slab in policy.slabs()), *board_slabs(self.runtime.actors)]

    def memory(self, arrays: Tree) -> Memory:
        """Return the slots and weights of all policies on the arrays of an arena."""
        return Memory([(policy.slots(arrays), policy.weights(arrays)) for policy in self.policies])

    def actor(
        self, index: int, origin: int, watch: Watch | None = None, attempt: int = 0, renew: Renew | None = None
    ) -> Actor:
        """Make an actor and its envs.

        Args:
            index: which actor it is.
            origin: the ticket at which its episodes begin; it keys them, as `attempt` does.
            watch: over calls of the envs.
            attempt: how often it has died of late.
            renew: writes the newest weights, with which it then acts, and not with those of its ticket.

        Raises:
            ConfigError: the env cannot be made.
        """
        columns = [self._columns(policy, index, origin, attempt, renew) for policy in self.policies]
        return Actor(index, self.run.seed, columns, watch)

    def _columns(self, own: PolicyPlan, index: int, origin: int, attempt: int, renew: Renew | None) -> PolicyColumns:
        """Make the envs of a policy, and what acts in them."""
        run, runtime = self.run, self.runtime
        role = policy_key(own.name, "env")
        envs = make_envs(
            run.env,
            runtime.envs_per_actor,
            seed=run.seed,
            actor=index,
            origin=origin,
            groups=runtime.env_groups,
            role=f"{role}, attempt {attempt}" if attempt else role,
            settings=self.env_config,
            info_mask=own.policy.info_mask,
        )
        policy = make_policy(own.policy)
        return PolicyColumns(envs, LivePolicy(policy, renew) if renew else policy, self.env_config.learned)

    def start(self, actor: Actor, origin: int, snapshot: Snapshot, progress: float = 0.0) -> None:
        """Let an actor go on from a snapshot, or begin new episodes, at this progress of the training."""
        if snapshot is not None:
            actor.restore(snapshot)
            return
        memory = self.policies[0].memory
        spread = memory.length if self.runtime.decorrelate else 0
        first = first_ticket(actor.index, self.runtime.actors, origin)
        actor.start(origin, spread, cut=memory.is_cut(first), progress=progress)
