"""Plans: plain data from which an actor is built, in this process or in another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from offbeat.config.env import EnvConfig
from offbeat.config.run_config import RunConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.memory_shape import MemoryShape, Slab, Slots
from offbeat.core.pace import OnPolicyPace, Pace
from offbeat.core.tasks import TaskSample
from offbeat.core.types import EnvSpec, Field, Tree, arrays_of_policy, policy_key
from offbeat.core.visits import Visits
from offbeat.envs import sending
from offbeat.envs.contract import Envs
from offbeat.envs.make import make_envs, task_envs
from offbeat.envs.make_worlds import make_worlds
from offbeat.envs.world import PoliciesOf, WorldSpec
from offbeat.memory.arena import private_arena
from offbeat.memory.league import LeagueMemory, LeagueShape
from offbeat.memory.unrolls import UnrollShape
from offbeat.memory.weights import Weights, weight_slabs
from offbeat.models.acting import ActingPolicy, LivePolicy, Renew, make_policy
from offbeat.models.buffer_layout import BufferLayout
from offbeat.models.spec import PolicySpec
from offbeat.runtime.gate import board_slabs, first_ticket
from offbeat.workers.actor import Actor
from offbeat.workers.columns import PolicyColumns
from offbeat.workers.env_calls import Watch
from offbeat.workers.inference import Inference, InferenceGroups
from offbeat.workers.link import Memory
from offbeat.workers.seated_columns import SeatedColumns
from offbeat.workers.seats import LeaguePlan, Seats
from offbeat.workers.served_columns import ServedColumns
from offbeat.workers.task_columns import TaskColumns

Snapshot = dict[str, Any] | None
"""State of an actor's envs and episodes, see `Actor.snapshot`; None: it starts new episodes."""


@dataclass(frozen=True)
class PolicyPlan:
    """One policy of a run, as plain data."""

    name: str
    env: EnvSpec
    """Spec of the columns that one actor has for this policy."""
    spec: PolicySpec
    layout: BufferLayout
    """The result of `published_layout(spec)`. It is part of the plan because to compute it may need torch."""
    fields: tuple[Field, ...]
    """The fields that are recorded in each row."""
    memory: MemoryShape
    """Shape of the slots, and the pace."""
    visits: Visits | None = None
    """How its tickets are divided into visits to tasks; None: the env has no tasks."""
    trained: bool = True
    """Whether the policy learns. One that does not has no slots in the run's arena: nothing can be learned from it."""

    def slabs(self) -> list[Slab]:
        """Return the names, shapes and dtypes of the slots and weights of this policy in the run's arena."""
        slabs = [
            *(self.memory.slabs(self.fields) if self.trained else ()),
            *weight_slabs(self.layout.size, self.memory.pace.versions),
        ]
        return [(policy_key(self.name, name), shape, dtype) for name, shape, dtype in slabs]

    def slots(self, arrays: Tree) -> Slots:
        """Return the slots of this policy; `arrays`: those of the run's arena.

        A policy that does not learn gets the arrays of one ticket in private memory, which the next ticket overwrites.
        """
        if not self.trained:
            shape = UnrollShape(OnPolicyPace(1, 0), self.memory.length, self.env.columns)
            return shape.slots(self.fields, private_arena(shape.slabs(self.fields)))
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
    world: WorldSpec | None = None
    """Agents and spaces of a world with several agents; None: each env has one agent."""
    league: LeaguePlan | None = None
    """The league of the run, if it has one."""
    tasks: TaskSample | None = None
    """The tasks that the envs are set to; None: they have no tasks."""

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
        policies = [slab for policy in self.policies for slab in policy.slabs()]
        league = [] if self.league is None else self._league_shape.slabs()
        return [*policies, *league, *board_slabs(self.runtime.actors)]

    @property
    def _league_shape(self) -> LeagueShape:
        """The memory of the run's league."""
        assert self.league is not None
        names = dict.fromkeys(self.league.policies)
        longest = max(policy.memory.length for policy in self.policies)
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

    def sent_code(self) -> bytes:
        """Return the data from which another process registers the env and the encoders: see `sending.package`.

        Raises:
            ConfigError: the env or an encoder cannot be sent to another process.
        """
        encoders = (plan.spec.encoder for plan in self.policies)
        return sending.package(self.run.env, self.run.imports, self.env_config.wrappers, encoders)

    def own_inference(self, actor: int) -> Inference | None:
        """Make the inference of an actor that computes its networks itself; None if its policies do that."""
        if not self.runtime.uses_inference:
            return None
        from offbeat.workers.own_inference import OwnInference  # here: actors with inference workers need no torch

        groups = self.inference_groups
        policies = [(plan.spec, plan.env.columns) for plan in self.policies]
        device = self.inference_device(groups.worker_of(actor))
        return OwnInference(policies, actor, groups, self.runtime.env_groups, device)

    def make_actor(
        self,
        index: int,
        origin: int,
        watch: Watch | None = None,
        attempt: int = 0,
        renew: Renew | None = None,
        inference: Inference | None = None,
    ) -> Actor:
        """Make an actor and its envs.

        Args:
            index: index of the actor.
            origin: the ticket at which its episodes start. The random streams of the envs depend on it.
            watch: is notified of each env call.
            attempt: number of recent deaths of this actor. If not 0, the random streams of the envs depend on it.
            renew: writes the newest weights into an array. If given, the actor uses these for each decision instead of
                the weights of its ticket.
            inference: computes the networks of all policies; None: the actor does.

        Raises:
            ConfigError: the env cannot be made.
        """
        role = f"env, attempt {attempt}" if attempt else "env"
        seats = self._seats(index)
        draw = seats.draw_policies if seats is not None and seats.plan.draws_policies else None
        envs = self.envs(self.runtime.envs_per_actor, self.runtime.env_groups, role, index, origin, draw)
        inference = inference or self.own_inference(index)
        columns: list[PolicyColumns] = []
        for number, plan in enumerate(self.policies):
            own, learned = envs[plan.name], self.env_config.learned
            if inference is not None:
                sampler = ActingPolicy(plan.spec, None, plan.layout)
                columns.append(ServedColumns(own, sampler, learned, inference.policies[number]))
                continue
            policy = make_policy(plan.spec)
            acting = LivePolicy(policy, renew) if renew else policy
            if plan.visits is not None and self.tasks is not None:
                columns.append(TaskColumns(task_envs(own), policy, learned, visits=plan.visits, tasks=self.tasks))
            elif seats is None:
                columns.append(PolicyColumns(own, acting, learned))
            else:
                finishes = not columns
                columns.append(SeatedColumns(own, acting, learned, seats, name=plan.name, finishes=finishes))
        return Actor(index, self.run.seed, columns, watch, seats, inference)

    def _seats(self, index: int) -> Seats | None:
        """Make the seats of an actor; None without a league."""
        if self.league is None:
            return None
        specs = {plan.name: plan.spec for plan in self.policies}
        return Seats(self.league, self.pace, specs, seed=self.run.seed, actor=index, worlds=self.runtime.envs_per_actor)

    def envs(
        self,
        count: int,
        groups: int,
        role: str,
        actor: int = 0,
        origin: int = 0,
        policies_of: PoliciesOf | None = None,
    ) -> Mapping[str, Envs]:
        """Make envs, or worlds with several agents; return the columns of each policy, by its name.

        Args:
            count: number of envs or worlds.
            groups: number of groups of equal size that are stepped in turn.
            role: purpose of the envs. The random streams depend on it, and on the next two.
            actor: index of the actor.
            origin: ticket at which the episodes start.
            policies_of: the policies of the agents in each episode, if they are drawn.

        Raises:
            ConfigError: the env cannot be made.
        """
        where: Any = {
            "seed": self.run.seed,
            "actor": actor,
            "origin": origin,
            "groups": groups,
            "role": role,
            "settings": self.env_config,
        }
        if self.world is not None:
            owners = {plan.name: plan.env.agents for plan in self.policies}
            return make_worlds(self.world, count, owners, policies_of=policies_of, **where).envs
        info_mask = self.policy.spec.info_mask
        return {self.policy.name: make_envs(self.run.env, count, info_mask=info_mask, tasks=self.tasks, **where)}

    def start(self, actor: Actor, origin: int, snapshot: Snapshot, progress: float = 0.0) -> None:
        """Continue an actor from a snapshot; without one, start new episodes with this training progress."""
        if snapshot is not None:
            actor.restore(snapshot)
            return
        memory = self.policies[0].memory
        spread = memory.length if self.runtime.decorrelate else 0
        first = first_ticket(actor.index, self.runtime.actors, origin)
        actor.start(origin, spread, cut=memory.is_cut(first), progress=progress)
