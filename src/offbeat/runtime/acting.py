"""The acting half of a run, as the learner sees it: what differs between the runtimes, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from offbeat.config.env import EnvConfig
from offbeat.config.tables import RunConfig, RuntimeConfig
from offbeat.core.pace import Pace
from offbeat.core.types import EnvSpec, Field, Tree
from offbeat.envs.make import make_envs
from offbeat.memory.arena import Slab
from offbeat.memory.weights import Weights, weight_slabs
from offbeat.models.acting import LivePolicy, Renew, make_policy
from offbeat.models.published import published_layout
from offbeat.models.spec import PolicySpec
from offbeat.runtime.gate import board_slabs, first_ticket
from offbeat.workers.actor import Actor, Slots, Watch

Snapshot = dict[str, Any] | None
"""The state of an actor's envs and episodes; None where new episodes are to begin."""


class Acting(Protocol):
    """Actors, wherever they are: they act tickets as the pace allows, in every runtime the same ones."""

    @property
    def restarts(self) -> int:
        """Actors started again after a death."""
        ...

    def start(self, snapshots: Sequence[Snapshot]) -> None:
        """Start acting, each actor from its snapshot. Weights have been published."""
        ...

    def wait(self, tickets: int) -> None:
        """Return once tickets 0 .. tickets-1 are committed.

        Raises:
            RunFailed: an actor failed for good.
        """
        ...

    def pause_at(self, ticket: int | None) -> None:
        """Let no ticket from `ticket` on begin, or (None) end the pause."""
        ...

    def finish(self, learned: int) -> None:
        """Let `learned` learning steps count as finished."""
        ...

    @property
    def acted(self) -> int:
        """Tickets 0 .. acted-1 are committed."""
        ...

    def slots_filled(self, step: int) -> float:
        """Return the share of the slots that hold a committed ticket not yet learned from, before `step`."""
        ...

    def snapshots(self) -> list[Snapshot]:
        """Return the state of each actor's envs; a pause has stopped them all."""
        ...

    def spent(self) -> list[Mapping[str, float]]:
        """Return the seconds of each actor, by what they went into."""
        ...

    @property
    def longest_stall(self) -> float:
        """Seconds of the longest call of an env."""
        ...

    def close(self) -> None:
        """End all actors, and everything that was started for them."""
        ...


class MemoryShape(Protocol):
    """What a run remembers, as plain data: unrolls, or a replay."""

    @property
    def pace(self) -> Pace: ...

    @property
    def length(self) -> int:
        """Env steps of one column in a ticket, T."""
        ...

    def slabs(self, fields: Sequence[Field]) -> list[Slab]:
        """Return what its arena consists of."""
        ...

    def slots(self, fields: Sequence[Field], arrays: Tree) -> Slots:
        """Return what actors write to, on such an arena."""
        ...

    def is_cut(self, ticket: int) -> bool:
        """Whether new episodes that begin at `ticket` follow rows of others, which must not run on into them."""
        ...

    @property
    def purpose(self) -> str:
        """What needs its memory, with the arithmetic: a phrase that goes on with how much."""
        ...

    @property
    def remedy(self) -> str:
        """What to pass to need less."""
        ...

    def describe(self, fields: Sequence[Field]) -> str:
        """Say how much memory it takes, if that is worth a word."""
        ...


@dataclass(frozen=True)
class Plan:
    """All that an actor is made from, in this process or in another: plain data."""

    run: RunConfig
    env_config: EnvConfig
    runtime: RuntimeConfig
    env: EnvSpec
    policy: PolicySpec
    fields: tuple[Field, ...]
    memory: MemoryShape
    actor_threads: int
    """Threads that BLAS may use in an actor process."""

    @property
    def pace(self) -> Pace:
        return self.memory.pace

    def slabs(self) -> list[Slab]:
        """Return what actors and learner share: what is remembered, weights and the board."""
        return [
            *self.memory.slabs(self.fields),
            *weight_slabs(published_layout(self.policy).size, self.pace.versions),
            *board_slabs(self.runtime.actors),
        ]

    def slots(self, arrays: Tree) -> Slots:
        return self.memory.slots(self.fields, arrays)

    def weights(self, arrays: Tree) -> Weights:
        return Weights(arrays)

    def actor(
        self, index: int, origin: int, watch: Watch | None = None, attempt: int = 0, renew: Renew | None = None
    ) -> Actor:
        """Make an actor and its envs; `origin` and `attempt` key the episodes that begin there.

        With `renew`, which writes the newest weights, it acts with these and not with those of its ticket.
        """
        run, runtime = self.run, self.runtime
        envs = make_envs(
            run.env,
            runtime.envs_per_actor,
            seed=run.seed,
            actor=index,
            origin=origin,
            groups=runtime.env_groups,
            role=f"env, attempt {attempt}" if attempt else "env",
            settings=self.env_config,
            info_mask=self.policy.info_mask,
        )
        policy = make_policy(self.policy)
        return Actor(
            index, run.seed, envs, LivePolicy(policy, renew) if renew else policy, watch, self.env_config.learned
        )

    def start(self, actor: Actor, origin: int, snapshot: Snapshot, progress: float = 0.0) -> None:
        """Let an actor go on from a snapshot, or begin new episodes, at this progress of the training."""
        if snapshot is not None:
            actor.restore(snapshot)
        else:
            spread = self.memory.length if self.runtime.decorrelate else 0
            first = first_ticket(actor.index, self.runtime.actors, origin)
            actor.start(origin, spread, cut=self.memory.is_cut(first), progress=progress)
