"""The processes runtime: one process per actor, connected to the learner by anonymous shared memory.

Each process is a new Python interpreter. It inherits no threads or locks, and only the files that it needs. It imports
torch only if a policy acts with torch; with a plain MLP it starts in a fraction of a second. With inference workers no
actor imports torch, unless its envs do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from offbeat.core.closing import closed_on_error
from offbeat.core.process.threads import usable_core_numbers
from offbeat.runtime.actor_process import ActorLaunch
from offbeat.runtime.children.child import Child
from offbeat.runtime.children.launch import sent_code, start_worker
from offbeat.runtime.children.supervisor import Supervisor
from offbeat.runtime.gated import GatedActing
from offbeat.runtime.inference.worker_pool import InferencePool
from offbeat.runtime.loop.paced import PacedRuntime
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.plan import ActorSnapshot
from offbeat.runtime.reporting import Reporting


class ProcessActing(GatedActing):
    """Actors as processes, one each, which a supervisor restarts; and inference workers, if the config has them."""

    def __init__(self, parts: PacedParts, learned: int, reporting: Reporting) -> None:
        assert parts.arena is not None
        plan = parts.plan
        self._code = sent_code(plan)  # first: it may raise
        super().__init__(parts, learned)
        self._arena, self._cores = parts.arena, usable_core_numbers()
        with closed_on_error(self.gate.bells):
            self._inference = None
            if plan.runtime.uses_inference:
                self._inference = InferencePool(
                    plan=plan,
                    code=self._code,
                    arena=parts.arena,
                    actor_bells=self.gate.acting_bells,
                    own_bell=self.gate.own_bell,
                    reporting=reporting,
                )
        self._supervisor = Supervisor(
            self._start, self.board, plan.runtime, reporting, role="actor", work="ticket", changes_result=True
        )

    @property
    def restarts(self) -> int:
        return self._supervisor.restarts + (0 if self._inference is None else self._inference.restarts)

    def start(self, snapshots: Sequence[ActorSnapshot]) -> None:
        if self._inference is not None:
            self._inference.start()
        self._first_snapshots = dict(enumerate(snapshots))
        self._supervisor.start(len(snapshots), self.watch)

    def _start(self, index: int, attempt: int) -> Child:
        inference = None if self._inference is None else self._inference.access(index)
        origin, snapshot = self._episodes(index, attempt)
        launch = ActorLaunch(
            index=index,
            attempt=attempt,
            code=self._code,
            cores=self._cores,
            threads=self.plan.actor_threads,
            own_bell=self.gate.acting_bells[index].reader,
            plan=self.plan,
            origin=origin,
            snapshot=snapshot,
            progress=self.memory.progress,
            arena=self._arena.fd,
            learner_bell=self.gate.own_bell.writer,
            inference=inference,
        )
        inherited = (launch.arena, launch.learner_bell, *(inference or ()))
        return start_worker("offbeat.runtime.actor_process", launch, inherited, self.gate.own_bell.ring)

    def watch(self) -> None:
        if self._inference is not None:
            self._inference.watch()
        self._supervisor.watch()

    def spent(self) -> list[Mapping[str, float]]:
        return [*super().spent(), *([] if self._inference is None else self._inference.spent())]

    def metrics(self) -> Mapping[str, float]:
        return {} if self._inference is None else self._inference.metrics()

    def snapshots(self) -> list[ActorSnapshot]:
        return self._supervisor.snapshots(int(self.board.pause[0]), self.watch)

    def close(self) -> None:
        with ExitStack() as closing:
            closing.callback(self.gate.discard)
            if self._inference is not None:
                closing.callback(self._inference.close)
            closing.callback(self._supervisor.close)
            self.gate.close()


RUNTIME = PacedRuntime(ProcessActing)
