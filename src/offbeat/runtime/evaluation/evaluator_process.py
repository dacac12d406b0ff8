"""An evaluator process: it evaluates the weights that it is handed, one version after the other, until it is closed."""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any, NamedTuple

from offbeat.config.tables import RuntimeConfig
from offbeat.core.allocator import keep_freed_memory
from offbeat.core.errors import Closed
from offbeat.core.threads import limit, limit_blas, set_affinity
from offbeat.core.types import Tree
from offbeat.envs import sending
from offbeat.memory.arena import Slab, attach
from offbeat.models.policies import make_policy
from offbeat.models.published import published_layout
from offbeat.models.spec import PolicySpec
from offbeat.runtime.child import Report
from offbeat.runtime.deadline import ROW, Deadline, WorkerDeadline
from offbeat.runtime.evaluation.plan import EvaluationPlan
from offbeat.runtime.gate import NAP_S, Bell
from offbeat.workers.evaluator import Evaluation


class Evaluated(NamedTuple):
    """What an evaluator reports."""

    number: int
    """Of the evaluation, counted from 0."""
    evaluation: Evaluation
    seconds: float


@dataclass(frozen=True)
class LaunchSpec:
    """What an evaluator process is sent at its start."""

    plan: EvaluationPlan
    runtime: RuntimeConfig
    attempt: int
    """How often evaluations have raised of late; 0 where the last process was killed."""
    number: int
    """The evaluation that follows: `attempt` is of that one alone."""
    threads: int
    """That BLAS and torch may use."""
    nice: int | None
    env: bytes
    """From `sending.package`."""
    parent: int
    cores: set[int]
    arena: int
    """File descriptors, which it has inherited under the same numbers."""
    bell: int


def board_slabs(policy: PolicySpec) -> list[Slab]:
    """Return what the arena of an evaluator consists of."""
    return [
        ("vector", (published_layout(policy).size,), "float32"),
        *((name, (1,), "int64") for name in ("wanted", "next", "closed")),
        ("deadline", (ROW,), "float64"),
    ]


class EvaluatorBoard:
    """What an evaluator and its parent share."""

    def __init__(self, arrays: Tree) -> None:
        """Address the arrays of an arena that holds `board_slabs`."""
        self.vector = arrays["vector"]
        """The weights to evaluate, as `published_layout` lays them out; not changed while they are evaluated."""
        self.wanted, self.closed = arrays["wanted"], arrays["closed"]
        """How many evaluations are wanted so far. Written by the parent, like `closed`."""
        self.next = [arrays["next"]]
        """How many have been reported. Written by the evaluator."""
        self.deadlines = [Deadline(arrays["deadline"])]


def main(launch: LaunchSpec, connection: Connection[Report, Any]) -> None:
    """Be an evaluator until it is closed."""
    set_affinity(launch.cores, launch.nice)
    limit_blas(launch.threads)
    keep_freed_memory()
    sending.unpack(launch.env)
    spec = launch.plan.policy
    board = EvaluatorBoard(attach(launch.arena, board_slabs(spec)))
    deadline, bell = WorkerDeadline(board.closed, board.deadlines[0], launch.runtime), Bell(launch.bell, -1)
    policy = make_policy(spec)
    if not spec.plain:
        limit(launch.threads)
    connection.send(Report("ready", None))
    while True:
        number = _wait(board, deadline, bell)
        begun = monotonic()
        policy.load(board.vector.copy())
        attempt = launch.attempt if number == launch.number else 0
        evaluation = launch.plan.evaluate(policy, attempt=attempt, watch=deadline)
        connection.send(Report("evaluated", Evaluated(number, evaluation, monotonic() - begun)))
        board.next[0][0] = number + 1


def _wait(board: EvaluatorBoard, deadline: WorkerDeadline, bell: Bell) -> int:
    """Wait until an evaluation is wanted; return its number.

    Raises:
        Closed: none is wanted any more.
    """
    while board.wanted[0] <= board.next[0][0]:
        if board.closed[0]:
            raise Closed
        deadline.renew()
        bell.sleep(NAP_S)
    deadline.renew()
    return int(board.next[0][0])
