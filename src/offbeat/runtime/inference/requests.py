"""The inference of an actor process that an inference worker serves: writes requests and waits for the answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from offbeat.core.types import F32, Array
from offbeat.memory.arena import attach
from offbeat.models.network_arrays import OUTPUTS, STATE, write_inputs
from offbeat.runtime.board import POLL_INTERVAL_S, Bell
from offbeat.runtime.deadline import WorkerDeadline
from offbeat.runtime.inference.board import NUMBER, VERSION, InferenceBoard, inference_slabs
from offbeat.workers.link import Work

if TYPE_CHECKING:
    from offbeat.runtime.plan import Plan


class InferenceAccess(NamedTuple):
    """What an actor process inherits to reach its inference worker: file descriptors with the same numbers."""

    requests: int
    """The arena with the requests."""
    worker_bell: int
    """The bell that wakes the worker."""


class RequestedPolicy:
    """A `PolicyInference` on shared memory."""

    def __init__(self, inputs: Mapping[str, Array], results: Mapping[str, Array], open_groups: set[int]) -> None:
        """Use the arrays of one actor, [env groups, n, *shape], and the open groups of its `RequestedInference`."""
        self._inputs, self._results, self._open_groups = inputs, results, open_groups

    def ask(self, group: int, inputs: F32, observation: Mapping[str, Array], state: F32) -> None:
        write_inputs({name: array[group] for name, array in self._inputs.items()}, inputs, observation, state)
        self._open_groups.add(group)

    def answer(self, group: int, state: F32) -> F32:
        if STATE in self._results:
            state[...] = self._results[STATE][group]
        outputs: F32 = self._results[OUTPUTS][group]
        return outputs


class RequestedInference:
    """An `Inference` on shared memory."""

    def __init__(
        self, plan: Plan, access: InferenceAccess, actor: int, own_bell: Bell, deadline: WorkerDeadline
    ) -> None:
        """Make the inference of an actor.

        Args:
            plan: the plan of the actor.
            access: how to reach the worker.
            actor: index of the actor.
            own_bell: the bell that wakes the actor.
            deadline: the actor's deadline.
        """
        self._board = InferenceBoard(attach(access.requests, inference_slabs(plan)), plan)
        self._worker_bell, self._own_bell, self._deadline = Bell(-1, access.worker_bell), own_bell, deadline
        self._asked, self._answered = self._board.asked[actor], self._board.answered[actor]
        self._starts = self._board.starts[plan.inference_groups.worker_of(actor)]
        self._version = 0
        self._open_groups: set[int] = set()
        """The env groups for which a policy has asked and no answer was received."""
        self.policies = [
            RequestedPolicy(_of_actor(inputs, actor), _of_actor(results, actor), self._open_groups)
            for inputs, results in zip(self._board.inputs, self._board.results, strict=True)
        ]

    def start_ticket(self, work: Work) -> None:
        self._version = work.version

    def submit(self, group: int) -> None:
        if group not in self._open_groups:  # all policies choose uniform actions, without a network
            return
        self._asked[group, VERSION] = self._version
        self._asked[group, NUMBER] += 1
        self._worker_bell.ring()

    def wait(self, group: int) -> None:
        """Wait for the answer. The deadline starts again whenever the worker was started again.

        Raises:
            Closed: the run is ending.
        """
        if group not in self._open_groups:
            return
        starts = -1
        while self._answered[group, NUMBER] != self._asked[group, NUMBER]:
            if self._starts[0] != starts:
                starts = int(self._starts[0])
                self._deadline.wait_for_inference()
            self._deadline.require_open()
            self._own_bell.sleep(POLL_INTERVAL_S)
        self._deadline.renew()
        self._open_groups.remove(group)


def _of_actor(arrays: Mapping[str, Array], actor: int) -> Mapping[str, Array]:
    return {name: array[actor] for name, array in arrays.items()}
