"""An evaluator process: it evaluates the weights that it is handed, one version after the other, until it is closed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import Closed
from offbeat.core.memory_shape import Slab
from offbeat.core.threads import limit
from offbeat.core.types import Tree
from offbeat.memory.arena import attach
from offbeat.models.acting import make_policy
from offbeat.models.published import published_layout
from offbeat.models.spec import PolicySpec
from offbeat.runtime import board
from offbeat.runtime.board import POLL_INTERVAL_S, Bell
from offbeat.runtime.child import Report
from offbeat.runtime.deadline import WorkerDeadline
from offbeat.runtime.evaluation.plan import EvaluationPlan
from offbeat.runtime.launch import LaunchSpec, prepare_process
from offbeat.workers.evaluator import Evaluation


class Evaluated(NamedTuple):
    """What an evaluator reports."""

    number: int
    """Of the evaluation, counted from 0."""
    evaluation: Evaluation
    seconds: float


@dataclass(frozen=True, kw_only=True)
class EvaluatorLaunch(LaunchSpec):
    """What an evaluator process is given at its start; `attempt` is 0 where the last process was killed."""

    plan: EvaluationPlan
    runtime: RuntimeConfig
    number: int
    """The evaluation that follows: `attempt` is of that one alone."""
    nice: int | None
    arena: int
    """File descriptor, which it has inherited under the same number."""


def board_slabs(policy: PolicySpec) -> list[Slab]:
    """Return what the arena of an evaluator consists of."""
    return [
        ("vector", (published_layout(policy).size,), "float32"),
        *board.board_slabs(1),
        *((f"board/{name}", (board.LINE,), "int64") for name in ("wanted", "next")),
    ]


class EvaluatorBoard(board.Board):
    """What an evaluator and its parent share."""

    def __init__(self, arrays: Tree) -> None:
        """Address the arrays of an arena that holds `board_slabs`."""
        super().__init__(arrays, 1)
        self.vector = arrays["vector"]
        """The weights to evaluate, as `published_layout` lays them out; not changed while they are evaluated."""
        self.wanted = arrays["board/wanted"]
        """How many evaluations are wanted so far. Written by the parent, like `closed`."""
        self._next = [arrays["board/next"]]

    @property
    def next(self) -> Sequence[NDArray[np.int64]]:
        """How many have been reported, [[1]]. Written by the evaluator."""
        return self._next


def main(launch: EvaluatorLaunch, connection: Connection[Report, Any]) -> None:
    """Be an evaluator until it is closed."""
    prepare_process(launch, nice=launch.nice)
    spec = launch.plan.policy
    shared = EvaluatorBoard(attach(launch.arena, board_slabs(spec)))
    deadline, bell = WorkerDeadline(shared.closed, shared.deadlines[0], launch.runtime), Bell(launch.own_bell, -1)
    policy = make_policy(spec)
    if not spec.plain:
        limit(launch.threads)
    connection.send(Report("ready", None))
    while True:
        number = _wait(shared, deadline, bell)
        begun = monotonic()
        policy.load(shared.vector.copy())
        attempt = launch.attempt if number == launch.number else 0
        evaluation = launch.plan.evaluate(policy, attempt=attempt, watch=deadline)
        connection.send(Report("evaluated", Evaluated(number, evaluation, monotonic() - begun)))
        shared.next[0][0] = number + 1


def _wait(shared: EvaluatorBoard, deadline: WorkerDeadline, bell: Bell) -> int:
    """Wait until an evaluation is wanted; return its number.

    Raises:
        Closed: none is wanted any more.
    """
    while shared.wanted[0] <= shared.next[0][0]:
        if shared.closed[0]:
            raise Closed
        deadline.renew()
        bell.sleep(POLL_INTERVAL_S)
    deadline.renew()
    return int(shared.next[0][0])
