"""The main function of an evaluator process: evaluates one version of the weights after another until the run ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.memory_shape import Slab
from offbeat.core.policy_names import policy_key
from offbeat.core.process.threads import set_thread_count, waited_for_core_s
from offbeat.core.types import Tree
from offbeat.memory.arena import attach
from offbeat.models.published import published_layout
from offbeat.runtime.board import LINE, POLL_INTERVAL_S, Bell, Board, board_slabs
from offbeat.runtime.children.child_main import ChildContext
from offbeat.runtime.children.launch import LaunchSpec, prepare_process
from offbeat.runtime.deadline import WorkerDeadline
from offbeat.runtime.evaluation.plan import EvaluatedPolicy, EvaluationPlan
from offbeat.runtime.loop.time_limit_warning import EndlessEpisodes
from offbeat.workers.episodes import Evaluation


class EvaluatorReport(NamedTuple):
    """The report of an evaluator."""

    number: int
    """Number of the evaluation, from 0."""
    evaluation: Evaluation
    seconds: float
    """Seconds that it took, and those in which the envs of the one before were closed."""
    waited_s: float
    """Seconds of these in which the process waited for a core."""


@dataclass(frozen=True, kw_only=True)
class EvaluatorLaunch(LaunchSpec):
    """The launch spec of an evaluator process. `attempt` is 0 if the last process did not end by an exception."""

    plan: EvaluationPlan
    runtime: RuntimeConfig
    number: int
    """Number of the next evaluation. `attempt` is only for that evaluation."""
    nice: int | None
    """Niceness of the process; None: unchanged."""
    arena: int
    """File descriptor of the evaluator's arena; inherited, with the same number."""


def evaluator_board_slabs(policies: Sequence[EvaluatedPolicy]) -> list[Slab]:
    """Return the arrays in the arena of an evaluator of these policies."""
    return [
        *((_vector_of(policy), (published_layout(policy.spec).size,), "float32") for policy in policies),
        *board_slabs(1),
        ("board/requested", (LINE,), "int64"),
    ]


def _vector_of(policy: EvaluatedPolicy) -> str:
    """Return the name of the array with the weights of a policy."""
    return policy_key(policy.name, "vector")


class EvaluatorBoard(Board):
    """The board of an evaluator and its parent."""

    def __init__(self, arrays: Tree, policies: Sequence[EvaluatedPolicy]) -> None:
        """Make a board on the arrays of an arena with `evaluator_board_slabs` of these policies."""
        super().__init__(arrays, 1)
        self.vectors: Mapping[str, NDArray[np.float32]] = {
            policy.name: arrays[_vector_of(policy)] for policy in policies
        }
        """The weights of each policy to evaluate, in the layout of `published_layout`. They do not change during an
        evaluation."""
        self.requested = arrays["board/requested"]
        """Number of requested evaluations so far. Written by the parent, like `closed`."""


def main(launch: EvaluatorLaunch, child: ChildContext) -> None:
    """Run an evaluator until the board is closed."""
    prepare_process(launch, nice=launch.nice)
    plan = launch.plan
    shared = EvaluatorBoard(attach(launch.arena, evaluator_board_slabs(plan.policies)), plan.policies)
    deadline, bell = shared.worker_deadline(0, launch.runtime), Bell(launch.own_bell, -1)
    policies = plan.make_policies()
    if not all(policy.spec.plain for policy in plan.policies):
        set_thread_count(launch.threads)
    child.report("ready", None)
    closing_s = 0.0
    while True:
        number = _wait(shared, deadline, bell)
        started, waited = monotonic(), waited_for_core_s()
        for name, policy in policies.items():
            policy.load(shared.vectors[name].copy())
        attempt = launch.attempt if number == launch.number else 0
        find_endless = EndlessEpisodes(plan.trials, partial(child.report, "endless"))
        evaluation = plan.evaluate(policies, child.closing, attempt=attempt, watch=deadline, on_step=find_endless)
        seconds, waited_s = monotonic() - started + closing_s, waited_for_core_s() - waited
        child.report("evaluated", EvaluatorReport(number, evaluation, seconds, waited_s))
        shared.next[0][0] = number + 1
        closing = monotonic()  # after the report: an env that hangs while it is closed costs only a restart
        deadline.renew()
        child.closing.close()
        closing_s = monotonic() - closing


def _wait(shared: EvaluatorBoard, deadline: WorkerDeadline, bell: Bell) -> int:
    """Wait until an evaluation is requested; return its number.

    Raises:
        Closed: the run is ending.
    """
    while shared.requested[0] <= shared.next[0][0]:
        deadline.check()
        bell.sleep(POLL_INTERVAL_S)
    deadline.renew()
    return int(shared.next[0][0])
