"""The main function of an actor process. It imports torch only if it computes a network with torch."""

from __future__ import annotations

from dataclasses import dataclass

from offbeat.core.process.threads import core_of, higher_niceness
from offbeat.memory.arena import attach
from offbeat.runtime.board import Bell
from offbeat.runtime.children.child_main import ChildContext
from offbeat.runtime.children.launch import LaunchSpec, prepare_process
from offbeat.runtime.gate import ActorGate, PaceBoard
from offbeat.runtime.inference.requests import InferenceAccess, RequestedInference
from offbeat.runtime.links import GateLink
from offbeat.runtime.make_actor import make_actor, start_actor
from offbeat.runtime.plan import ActorSnapshot, Plan


@dataclass(frozen=True, kw_only=True)
class ActorLaunch(LaunchSpec):
    """The launch spec of an actor process."""

    plan: Plan
    origin: int
    """The ticket at which its episodes start."""
    snapshot: ActorSnapshot
    progress: float
    """Training progress, from 0 to 1."""
    arena: int
    """File descriptor of the run's arena; inherited, with the same number."""
    learner_bell: int
    """File descriptor of the bell that wakes the learner; inherited, with the same number."""
    inference: InferenceAccess | None
    """How to reach its inference worker; None: there are none."""


def _niceness(launch: ActorLaunch) -> int | None:
    """Return the niceness of the actor process; None: unchanged.

    If actors can occupy all cores, a learner of the same niceness often waits for a core, and then actors wait for the
    learner. A restarted actor inherits the learner's niceness, so all actors get a given `learner_nice` from
    the start.
    """
    runtime = launch.plan.runtime
    if runtime.actor_nice is not None or runtime.learner_nice is not None:
        return runtime.learner_nice if runtime.actor_nice is None else runtime.actor_nice
    crowded = runtime.actors * launch.plan.actor_threads >= len(launch.cores)
    return higher_niceness() if crowded else None


def main(launch: ActorLaunch, child: ChildContext) -> None:
    """Run an actor until the gate closes."""
    plan, runtime = launch.plan, launch.plan.runtime
    prepare_process(launch, core_of(runtime.actor_cores, launch.index), _niceness(launch))
    arrays = attach(launch.arena, plan.slabs())
    board = PaceBoard(arrays, runtime.actors)
    own_bell = Bell(launch.own_bell, -1)
    gate = ActorGate(board, plan.pace, runtime, launch.index, own_bell, Bell(-1, launch.learner_bell))
    inference = launch.inference and RequestedInference(plan, launch.inference, launch.index, own_bell, gate.deadline)
    gate.deadline.enter(resets=True)  # making envs may take as long as a reset
    actor = make_actor(plan, launch.index, launch.origin, gate.deadline, launch.attempt, inference=inference)
    child.closing.callback(actor.close)
    gate.deadline.leave()
    actor.timings.merge(board.spent(launch.index))  # includes the time of a process that died

    def report_pause() -> None:
        child.report("paused", (gate.open_ticket, actor.snapshot()))

    start_actor(plan, actor, launch.origin, launch.snapshot, launch.progress)
    child.report("ready", None)
    actor.work(GateLink(gate, plan.memory(arrays), report_pause))
