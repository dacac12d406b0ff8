"""What an actor process does. It imports torch only for policies that act in it, and ends when the gate closes."""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.connection import Connection

from offbeat.core.threads import core_of, niceness
from offbeat.memory.arena import attach
from offbeat.runtime.board import Bell
from offbeat.runtime.child import Report
from offbeat.runtime.gate import ActorGate, PaceBoard
from offbeat.runtime.launch import LaunchSpec, prepare_process
from offbeat.runtime.links import GateLink
from offbeat.runtime.plan import Plan, Snapshot

NICENESS_INCREASE = 10
"""Than the learner, which is nearly always let on a core at once then (docs/concepts/performance.md)."""


@dataclass(frozen=True, kw_only=True)
class ActorLaunch(LaunchSpec):
    """What an actor process is given at its start."""

    plan: Plan
    origin: int
    """The ticket at which its episodes begin."""
    snapshot: Snapshot
    progress: float
    """Of the training, 0 to 1."""
    arena: int
    """File descriptors, which it has inherited under the same numbers."""
    learners_bell: int


def _niceness(launch: ActorLaunch) -> int | None:
    """Return how nice to be, None for as it is.

    Where actors can fill all cores, the learner would wait for a core again and again, and then they for the learner.
    An actor that is started again inherits the learner's niceness, so all of them have it from the start.
    """
    runtime = launch.plan.runtime
    if runtime.actor_nice is not None or runtime.learner_nice is not None:
        return runtime.learner_nice if runtime.actor_nice is None else runtime.actor_nice
    crowded = runtime.actors * launch.plan.actor_threads >= len(launch.cores)
    return min(19, niceness() + NICENESS_INCREASE) if crowded else None


def main(launch: ActorLaunch, connection: Connection[Report, ActorLaunch]) -> None:
    """Be an actor until the gate closes."""
    plan, runtime = launch.plan, launch.plan.runtime
    prepare_process(launch, core_of(runtime.actor_cores, launch.index), _niceness(launch))
    arrays = attach(launch.arena, plan.slabs())
    board = PaceBoard(arrays, runtime.actors)
    gate = ActorGate(board, plan.pace, runtime, launch.index, Bell(launch.own_bell, -1), Bell(-1, launch.learners_bell))
    gate.enter(resets=True)  # making envs may take as long as beginning episodes
    actor = plan.actor(launch.index, launch.origin, gate, launch.attempt)
    gate.leave()
    actor.timings.merge(board.spent(launch.index))  # the time of a process that died is not forgotten

    def report_pause() -> None:
        connection.send(Report("paused", (gate.open_ticket, actor.snapshot())))

    try:
        plan.start(actor, launch.origin, launch.snapshot, launch.progress)
        connection.send(Report("ready", None))
        actor.work(GateLink(gate, plan.memory(arrays), report_pause))
    finally:
        actor.close()
