"""What an actor process does. It imports torch only for policies that act in it, and ends when the gate closes."""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.connection import Connection

from offbeat.core.allocator import keep_freed_memory
from offbeat.core.threads import core_of, limit_blas, niceness, set_affinity
from offbeat.envs import sending
from offbeat.memory.arena import attach
from offbeat.runtime.acting import Plan, Snapshot
from offbeat.runtime.child import Report
from offbeat.runtime.gate import ActorGate, Bell, Board

NICER = 10
"""Than the learner, which is nearly always let on a core at once then (docs/concepts/performance.md)."""


@dataclass(frozen=True)
class LaunchSpec:
    """What an actor process is given at its start."""

    index: int
    plan: Plan
    origin: int
    """The ticket at which its episodes begin."""
    attempt: int
    """How often this actor has died of late."""
    snapshot: Snapshot
    progress: float
    """How far the training has come."""
    env: bytes
    """From `sending.package`."""
    parent: int
    cores: set[int]
    """Where it may run, unless `actor_cores` says otherwise: the learner may have been pinned since."""
    arena: int
    """File descriptors, which it has inherited under the same numbers."""
    own_bell: int
    learners_bell: int


def _niceness(launch: LaunchSpec) -> int | None:
    """Return how nice to be, None for as it is.

    Where actors can fill all cores, the learner would wait for a core again and again, and then they for the learner.
    An actor that is started again inherits the learner's niceness, so all of them have it from the start.
    """
    runtime = launch.plan.runtime
    if runtime.actor_nice is not None or runtime.learner_nice is not None:
        return runtime.learner_nice if runtime.actor_nice is None else runtime.actor_nice
    crowded = runtime.actors * launch.plan.actor_threads >= len(launch.cores)
    return min(19, niceness() + NICER) if crowded else None


def main(launch: LaunchSpec, connection: Connection[Report, LaunchSpec]) -> None:
    """Be an actor until the gate closes."""
    plan, runtime = launch.plan, launch.plan.runtime
    set_affinity(core_of(runtime.actor_cores, launch.index) or launch.cores, _niceness(launch))
    limit_blas(plan.actor_threads)
    keep_freed_memory()
    sending.unpack(launch.env)
    arrays = attach(launch.arena, plan.slabs())
    board = Board(arrays, runtime.actors)
    gate = ActorGate(board, plan.pace, runtime, launch.index, Bell(launch.own_bell, -1), Bell(-1, launch.learners_bell))
    gate.enter(resets=True)  # making envs may take as long as beginning episodes
    actor = plan.actor(launch.index, launch.origin, gate, launch.attempt)
    gate.leave()
    actor.timings.merge(board.spent(launch.index))  # the time of a process that died is not forgotten
    try:
        plan.start(actor, launch.origin, launch.snapshot, launch.progress)
        connection.send(Report("ready", None))
        actor.work(
            gate,
            plan.slots(arrays),
            plan.weights(arrays),
            on_pause=lambda: connection.send(Report("paused", (gate.open_ticket, actor.snapshot()))),
        )
    finally:
        actor.close()
