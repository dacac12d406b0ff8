"""The inference workers of a run, as the process of the training loop sees them: started, supervised and closed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from offbeat.core.closing import close_all, closed_on_error
from offbeat.core.process.threads import usable_core_numbers
from offbeat.memory.arena import SharedArena
from offbeat.runtime.board import Bell
from offbeat.runtime.children.child import Child
from offbeat.runtime.children.launch import start_worker
from offbeat.runtime.children.supervisor import Supervisor
from offbeat.runtime.inference.board import InferenceBoard, inference_slabs
from offbeat.runtime.inference.requests import InferenceAccess
from offbeat.runtime.inference.worker_process import InferenceLaunch
from offbeat.runtime.reporting import Reporting

if TYPE_CHECKING:
    from offbeat.runtime.plan import Plan


class InferencePool:
    """Starts, supervises and closes the inference workers."""

    def __init__(
        self,
        plan: Plan,
        code: bytes,
        arena: SharedArena,
        actor_bells: Sequence[Bell],
        own_bell: Bell,
        reporting: Reporting,
    ) -> None:
        """Make the pool; `start` starts the processes.

        Args:
            plan: the plan of the actors.
            code: the env and the encoders, as returned by `sent_code`: the networks may be of the same modules.
            arena: the run's arena, with the published weights.
            actor_bells: the bell of each actor.
            own_bell: the bell that wakes this process.
            reporting: is notified of restarts, and of the processes.
        """
        self._plan, self._code, self._weights = plan, code, arena
        self._actor_bells, self._own_bell, self._cores = actor_bells, own_bell, usable_core_numbers()
        self._arena = SharedArena(inference_slabs(plan))
        with closed_on_error([self._arena]):
            self.board = InferenceBoard(self._arena.arrays, plan)
            self._bells = Bell.make_several(self.board.workers)
        self._counted = (0, 0)
        """Batches and requests at the last call of `metrics`."""
        self._supervisor = Supervisor(
            self._start,
            self.board,
            plan.runtime,
            reporting,
            role="inference worker",
            work="batch",
            changes_result=False,
        )

    @property
    def restarts(self) -> int:
        """Number of restarts of inference workers."""
        return self._supervisor.restarts

    def spent(self) -> list[Mapping[str, float]]:
        """Return the seconds of each worker, by activity."""
        return [{"infer": float(busy[0])} for busy in self.board.busy]

    def metrics(self) -> Mapping[str, float]:
        """Return the requests per batch since the last call."""
        batches, requests = (int(sum(line[0] for line in lines)) for lines in (self.board.next, self.board.served))
        before, self._counted = self._counted, (batches, requests)
        if batches == before[0]:
            return {}
        return {"inference_batch_requests": (requests - before[1]) / (batches - before[0])}

    def access(self, actor: int) -> InferenceAccess:
        """Return what an actor process inherits."""
        worker = self._plan.inference_groups.worker_of(actor)
        return InferenceAccess(self._arena.fd, self._bells[worker].writer)

    def start(self) -> None:
        """Start the workers, and wait until they are ready: actors that wait for them would count the time."""
        self._supervisor.start(self.board.workers)

    def _start(self, index: int, attempt: int) -> Child:
        self.board.starts[index][0] += 1
        bells = {actor: self._actor_bells[actor].writer for actor in self._plan.inference_groups.members(index)}
        launch = InferenceLaunch(
            index=index,
            attempt=attempt,
            code=self._code,
            cores=self._cores,
            threads=self._plan.actor_threads,
            own_bell=self._bells[index].reader,
            plan=self._plan,
            arena=self._weights.fd,
            requests=self._arena.fd,
            actor_bells=bells,
        )
        inherited = (launch.arena, launch.requests, *bells.values())
        return start_worker("offbeat.runtime.inference.worker_process", launch, inherited, self._own_bell.ring)

    def watch(self) -> None:
        """Restart workers that have died or hang.

        Raises:
            RunFailed: a worker has used up its restart budget.
        """
        self._supervisor.watch()

    def close(self) -> None:
        """End the workers. Actors must have ended, or be ending."""
        self.board.close(self._bells)
        close_all((self._arena, *self._bells, self._supervisor))
