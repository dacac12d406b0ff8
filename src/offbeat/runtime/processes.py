"""The processes runtime: an actor process each, beside the learner, over anonymous shared memory.

A process is a fresh Python, which inherits no thread, no lock and no file but those that it is given. It loads torch
only where a policy acts in torch; with a plain MLP it starts in a fraction of a second.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from offbeat.core.threads import usable_core_numbers
from offbeat.envs import sending
from offbeat.memory.arena import SharedArena
from offbeat.metrics.timings import Timings
from offbeat.runtime.acting import Plan, Snapshot
from offbeat.runtime.actor_process import LaunchSpec
from offbeat.runtime.child import Child, start_child
from offbeat.runtime.gated import GatedActing
from offbeat.runtime.supervisor import Notify, Supervisor


class ProcessActing(GatedActing):
    """One process an actor."""

    def __init__(
        self,
        plan: Plan,
        arena: SharedArena,
        learned: int,
        timings: Timings,
        news: Notify,
        show: Callable[[Sequence[Child]], None],
    ) -> None:
        self._env = sending.package(plan.run.env, plan.run.imports)  # first, as it may refuse
        super().__init__(plan, arena.arrays, learned, timings)
        self._arena, self._cores, self._weights = arena, usable_core_numbers(), plan.weights(arena.arrays)
        self._supervisor = Supervisor(
            self._start, self.board, plan.runtime, news, show, role="actor", work="ticket", exact=True
        )

    @property
    def restarts(self) -> int:
        return self._supervisor.restarts

    def start(self, snapshots: Sequence[Snapshot]) -> None:
        self._supervisor.start(self.origin, snapshots)

    def _start(self, index: int, origin: int, snapshot: Snapshot, attempt: int) -> Child:
        own_bell, learners_bell = self.gate.actors[index].reader, self.gate.own.writer
        inherited = (self._arena.fd, own_bell, learners_bell)
        progress = self._weights.progress(self._weights.newest)
        launch = LaunchSpec(
            index, self.plan, origin, attempt, snapshot, progress, self._env, os.getpid(), self._cores, *inherited
        )
        return start_child(
            "offbeat.runtime.actor_process",
            launch,
            inherited,
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
