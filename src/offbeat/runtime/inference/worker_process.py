"""The main function of an inference worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from offbeat.core.process.gpu_numerics import set_gpu_numerics
from offbeat.core.process.threads import set_thread_count
from offbeat.memory.arena import attach
from offbeat.runtime.board import POLL_INTERVAL_S, Bell
from offbeat.runtime.children.child_main import ChildContext
from offbeat.runtime.children.launch import LaunchSpec, prepare_process
from offbeat.runtime.inference.board import InferenceBoard, inference_slabs
from offbeat.runtime.inference.server import InferenceServer
from offbeat.runtime.plan import Plan


@dataclass(frozen=True, kw_only=True)
class InferenceLaunch(LaunchSpec):
    """The launch spec of an inference worker."""

    plan: Plan
    arena: int
    """File descriptor of the run's arena; inherited, with the same number, like the next two."""
    requests: int
    """File descriptor of the arena with the requests."""
    actor_bells: Mapping[int, int]
    """File descriptors of the bells that wake the actors which it serves."""


def main(launch: InferenceLaunch, child: ChildContext) -> None:
    """Answer requests until the board is closed."""
    plan = launch.plan
    prepare_process(launch, nice=plan.runtime.learner_nice)  # from the start: after a restart it would inherit it
    set_thread_count(launch.threads)
    set_gpu_numerics(plan.inference_device(launch.index), exact=plan.runtime.lag == "exact")
    board = InferenceBoard(attach(launch.requests, inference_slabs(plan)), plan)
    arrays = attach(launch.arena, plan.slabs())
    deadline, bell = board.worker_deadline(launch.index, plan.runtime), Bell(launch.own_bell, -1)
    bells = {actor: Bell(-1, writer) for actor, writer in launch.actor_bells.items()}
    server = InferenceServer(plan, launch.index, board, [policy.weights(arrays) for policy in plan.policies], bells)
    child.report("ready", None)
    while True:
        deadline.check()
        if seconds := server.serve():
            bell.sleep(min(seconds, POLL_INTERVAL_S))
