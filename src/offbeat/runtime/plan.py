"""Plans: plain data from which `make_actor` makes an actor, in this process or in another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from offbeat.config.env import EnvConfig
from offbeat.config.run_config import RunConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.memory_shape import MemoryShape, Slab, Slots
from offbeat.core.pace import Pace
from offbeat.core.policy_names import policy_key
from offbeat.core.tasks import TaskSample
from offbeat.core.types import EnvSpec, Field, Tree, arrays_of_policy
from offbeat.core.visits import Visits
from offbeat.envs.worlds.contract import WorldSpec
from offbeat.league.plan import LeaguePlan
from offbeat.memory.arena import private_arena
from offbeat.memory.league import LeagueMemory, LeagueShape
from offbeat.memory.unrolls import UnrollShape
from offbeat.memory.weights import Weights, weight_slabs
from offbeat.models.buffer_layout import BufferLayout
from offbeat.models.spec import PolicySpec
from offbeat.runtime.gate import pace_board_slabs
from offbeat.workers.inference import InferenceGroups
from offbeat.workers.link import Memory

ActorSnapshot = dict[str, Any] | None
"""State of an actor's envs and episodes, see `Actor.snapshot`; None: it starts new episodes."""


@dataclass(frozen=True)
class PolicyPlan:
    """One policy of a run, as plain data."""

    name: str
    env_spec: EnvSpec
    """Spec of the columns that one actor has for this policy."""
    spec: PolicySpec
    layout: BufferLayout
    """The result of `published_layout(spec)`. It is part of the plan because to compute it may need torch."""
    fields: tuple[Field, ...]
    """The fields that are recorded in each row."""
    memory_shape: MemoryShape
    """Shape of the slots, and the pace."""
    visits: Visits | None = None
    """How its tickets are divided into visits to tasks; None: the env has no tasks."""
    trained: bool = True
    """Whether the policy learns. One that does not has no slots in the run's arena: nothing can be learned from it."""

    def slabs(self) -> list[Slab]:
        """Return the names, shapes and dtypes of the slots and weights of this policy in the run's arena."""
        slabs = [
            *(self.memory_shape.slabs(self.fields) if self.trained else ()),
            *weight_slabs(self.layout.size, self.memory_shape.pace.versions),
        ]
        return [(policy_key(self.name, name), shape, dtype) for name, shape, dtype in slabs]

    def slots(self, arrays: Tree) -> Slots:
        """Return the slots of this policy; `arrays`: those of the run's arena.

        A policy that does not learn gets the arrays of one ticket in private memory, which the next ticket overwrites.
        """
        if not self.trained:
            shape = UnrollShape.of_one_ticket(self.memory_shape.length, self.env_spec.columns)
            return shape.slots(self.fields, private_arena(shape.slabs(self.fields)))
        return self.memory_shape.slots(self.fields, arrays_of_policy(self.name, arrays))

    def weights(self, arrays: Tree) -> Weights:
        """Return the published weights of this policy; `arrays`: those of the run's arena."""
        return Weights(arrays_of_policy(self.name, arrays))


@dataclass(frozen=True)
class Plan:
    """All data from which an actor is made."""

    run: RunConfig
    env_config: EnvConfig
    runtime: RuntimeConfig
    policies: tuple[PolicyPlan, ...]
    """In the order of their names. All have the same pace."""
    actor_threads: int
    """Number of BLAS threads in an actor process."""
    world: WorldSpec | None = None
    """Agents and spaces of a world with several agents; None: each env has one agent."""
    league: LeaguePlan | None = None
    """The league of the run, if it has one."""
    tasks: TaskSample | None = None
    """The tasks that the envs are set to; None: they have no tasks."""

    @property
    def pace(self) -> Pace:
        """The pace of all policies."""
        return self.policies[0].memory_shape.pace

    @property
    def policy(self) -> PolicyPlan:
        """The policy of a run with one policy."""
        (only,) = self.policies
        return only

    def slabs(self) -> list[Slab]:
        """Return the arrays that actors and learner share: slots, weights and the board."""
        policies = [slab for policy in self.policies for slab in policy.slabs()]
        league = [] if self.league is None else self._league_shape.slabs()
        return [*policies, *league, *pace_board_slabs(self.runtime.actors)]

    @property
    def _league_shape(self) -> LeagueShape:
        """The memory of the run's league."""
        assert self.league is not None
        names = dict.fromkeys(self.league.policies)
        longest = max(policy.memory_shape.length for policy in self.policies)
        return LeagueShape(
            sides=len(self.league.sides),
            weights={plan.name: plan.layout.size for plan in self.policies if plan.name in names},
            window=self.league.config.window,
            snapshot_every=self.league.config.snapshot_every,
            versions=self.pace.versions,
            tickets=self.pace.in_flight,
            games=longest * self.runtime.envs_per_actor,
        )

    def memory(self, arrays: Tree) -> Memory:
        """Return the slots and weights of all policies; `arrays`: those of the run's arena."""
        league = None if self.league is None else LeagueMemory(self._league_shape, arrays)
        return Memory([(policy.slots(arrays), policy.weights(arrays)) for policy in self.policies], league)

    @property
    def inference_groups(self) -> InferenceGroups:
        """Which inference worker serves which actors."""
        return InferenceGroups(self.runtime.actors, self.runtime.inference_workers or 1)

    def inference_device(self, worker: int) -> str:
        """Return the device of an inference worker."""
        devices = self.runtime.inference_device or ("cpu",)
        return devices[worker % len(devices)]
