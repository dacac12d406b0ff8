"""Plans: plain data from which an actor is built, in this process or in another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from offbeat.config.env import EnvConfig
from offbeat.config.run_config import RunConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.memory_shape import MemoryShape, Slab, Slots
from offbeat.core.pace import Pace
from offbeat.core.types import EnvSpec, Field, Tree, arrays_of_policy, policy_key
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
"""State of an actor's envs and episodes; None: it starts new episodes."""


@dataclass(frozen=True)
class PolicyPlan:
    """One policy of a run, as plain data."""

    name: str
    env: EnvSpec
    """Spec of the columns that one actor has for this policy."""
    policy: PolicySpec
    fields: tuple[Field, ...]
    """The fields that are recorded in each row."""
    memory: MemoryShape
    """Shape of the slots, and the pace."""

    def slabs(self) -> list[Slab]:
        """Return the names, shapes and dtypes of the slots and weights of this policy in the run's arena."""
        slabs = [
            *self.memory.slabs(self.fields),
            *weight_slabs(published_layout(self.policy).size, self.memory.pace.versions),
        ]
        return [(policy_key(self.name, name), shape, dtype) for name, shape, dtype in slabs]

    def slots(self, arrays: Tree) -> Slots:
        """Return the slots of this policy; `arrays`: those of the run's arena."""
        return self.memory.slots(self.fields, arrays_of_policy(self.name, arrays))

    def weights(self, arrays: Tree) -> Weights:
        """Return the published weights of this policy; `arrays`: those of the run's arena."""
        return Weights(arrays_of_policy(self.name, arrays))


@dataclass(frozen=True)
class Plan:
    """All data from which an actor is built."""

    run: RunConfig
    env_config: EnvConfig
    runtime: RuntimeConfig
    policies: tuple[PolicyPlan, ...]
    """In the order of their names. All have the same pace."""
    actor_threads: int
    """Number of BLAS threads in an actor process."""

    @property
    def pace(self) -> Pace:
        """The pace of all policies."""
        return self.policies[0].memory.pace

    @property
    def policy(self) -> PolicyPlan:
        """The policy of a run with one policy."""
        (only,) = self.policies
        return only

    def slabs(self) -> list[Slab]:
        """Return the arrays that actors and learner share: slots, weights and the board."""
        return [*(slab for policy in self.policies for slab in policy.slabs()), *board_slabs(self.runtime.actors)]

    def memory(self, arrays: Tree) -> Memory:
        """Return the slots and weights of all policies; `arrays`: those of the run's arena."""
        return Memory([(policy.slots(arrays), policy.weights(arrays)) for policy in self.policies])

    def actor(
        self, index: int, origin: int, watch: Watch | None = None, attempt: int = 0, renew: Renew | None = None
    ) -> Actor:
        """Make an actor and its envs.

        Args:
            index: index of the actor.
            origin: the ticket at which its episodes start. The random streams of the envs depend on it.
            watch: is notified of each env call.
            attempt: number of recent deaths of this actor. If not 0, the random streams of the envs depend on it.
            renew: writes the newest weights into an array. If given, the actor uses these for each decision instead of
                the weights of its ticket.

        Raises:
            ConfigError: the env cannot be made.
        """
        columns = [self._columns(policy, index, origin, attempt, renew) for policy in self.policies]
        return Actor(index, self.run.seed, columns, watch)

    def _columns(self, plan: PolicyPlan, index: int, origin: int, attempt: int, renew: Renew | None) -> PolicyColumns:
        """Make the envs of a policy, and the policy that acts in them."""
        run, runtime = self.run, self.runtime
        role = policy_key(plan.name, "env")
        envs = make_envs(
            run.env,
            runtime.envs_per_actor,
            seed=run.seed,
            actor=index,
            origin=origin,
            groups=runtime.env_groups,
            role=f"{role}, attempt {attempt}" if attempt else role,
            settings=self.env_config,
            info_mask=plan.policy.info_mask,
        )
        policy = make_policy(plan.policy)
        return PolicyColumns(envs, LivePolicy(policy, renew) if renew else policy, self.env_config.learned)

    def start(self, actor: Actor, origin: int, snapshot: Snapshot, progress: float = 0.0) -> None:
        """Continue an actor from a snapshot; without one, start new episodes with this training progress."""
        if snapshot is not None:
            actor.restore(snapshot)
            return
        memory = self.policies[0].memory
        spread = memory.length if self.runtime.decorrelate else 0
        first = first_ticket(actor.index, self.runtime.actors, origin)
        actor.start(origin, spread, cut=memory.is_cut(first), progress=progress)
