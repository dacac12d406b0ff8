"""The processes runtime: one process per actor, connected to the learner by anonymous shared memory.

Each process is a new Python interpreter. It inherits no threads or locks, and only the files that it needs. It imports
torch only if a policy acts with torch; with a plain MLP it starts in a fraction of a second.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from offbeat.core.threads import usable_core_numbers
from offbeat.envs import sending
from offbeat.runtime.actor_process import ActorLaunch
from offbeat.runtime.child import Child, start_child
from offbeat.runtime.gated import GatedActing
from offbeat.runtime.paced import PacedRuntime
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.plan import Snapshot
from offbeat.runtime.supervisor import Reporting, Supervisor


class ProcessActing(GatedActing):
    """Actors as processes, one each, which a supervisor restarts."""

    def __init__(self, parts: PacedParts, learned: int, reporting: Reporting) -> None:
        assert parts.arena is not None
        self._env = sending.package(parts.plan.run.env, parts.plan.run.imports)  # first, because it may raise
        super().__init__(parts, learned)
        self._arena, self._cores = parts.arena, usable_core_numbers()
        self._supervisor = Supervisor(
            self._start, self.board, parts.plan.runtime, reporting, role="actor", work="ticket", exact=True
        )

    @property
    def restarts(self) -> int:
        return self._supervisor.restarts

    def start(self, snapshots: Sequence[Snapshot]) -> None:
        self._supervisor.start(self.origin, snapshots)

    def _start(self, index: int, origin: int, snapshot: Snapshot, attempt: int) -> Child:
        launch = ActorLaunch(
            index=index,
            attempt=attempt,
            env=self._env,
            parent=os.getpid(),
            cores=self._cores,
            threads=self.plan.actor_threads,
            own_bell=self.gate.actors[index].reader,
            plan=self.plan,
            origin=origin,
            snapshot=snapshot,
            progress=self.memory.progress,
            arena=self._arena.fd,
            learners_bell=self.gate.own.writer,
        )
        return start_child(
            "offbeat.runtime.actor_process",
            launch,
            (launch.arena, launch.own_bell, launch.learners_bell),
            index=index,
            threads=self.plan.actor_threads,
            notify=self.gate.own.ring,
        )

    def watch(self) -> None:
        self._supervisor.watch()

    def snapshots(self) -> list[Snapshot]:
        return self._supervisor.snapshots(int(self.board.pause[0]))

    def close(self) -> None:
        self.gate.close()
        self._supervisor.close()
        self.gate.discard()


RUNTIME = PacedRuntime(ProcessActing)
