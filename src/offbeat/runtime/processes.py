"""The processes runtime: an actor process each, beside the learner, over anonymous shared memory.

A process is a fresh Python that never loads torch, so it starts in a fraction of a second and inherits no thread,
no lock and no file but those that it is given.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

from offbeat.envs import sending
from offbeat.memory.arena import SharedArena
from offbeat.metrics.timings import Timings
from offbeat.runtime.acting import Plan, Snapshot
from offbeat.runtime.actor_process import Orders, Report
from offbeat.runtime.gated import GatedActing
from offbeat.runtime.supervisor import ActorProcess, Supervisor
from offbeat.threads import usable_core_numbers

CLOSE_S = 2.0
"""Seconds that actors get to end by themselves."""
REST_S = 5.0
"""Seconds that an actor gets to hand over the state of its envs."""
CODE = "from offbeat.runtime.actor_process import main; main()"
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class ProcessActing(GatedActing):
    """One process an actor."""

    def __init__(
        self,
        plan: Plan,
        arena: SharedArena,
        learned: int,
        timings: Timings,
        tell: Callable[[str], None],
        show: Callable[[Sequence[ActorProcess]], None],
    ) -> None:
        self._env = sending.package(plan.run.env, plan.run.imports)  # first, as it may refuse
        super().__init__(plan, arena.arrays, learned, timings)
        self._arena, self._cores = arena, usable_core_numbers()
        self._supervisor = Supervisor(self._start, self.board, plan.runtime, tell, show)

    @property
    def restarts(self) -> int:
        return self._supervisor.restarts

    def begin(self, snapshots: Sequence[Snapshot]) -> None:
        self._supervisor.begin(self.origin, snapshots)

    def _start(self, index: int, origin: int, snapshot: Snapshot, attempt: int) -> ActorProcess:
        ours, theirs = Pipe()
        own_bell, learners_bell = self.gate.actors[index].reader, self.gate.own.writer
        inherited = (theirs.fileno(), self._arena.fd, own_bell, learners_bell)
        process = subprocess.Popen(  # noqa: S603 - our own code, in the same Python
            [sys.executable, "-P", "-c", CODE, str(theirs.fileno())],
            pass_fds=inherited,
            stdin=subprocess.DEVNULL,
            env=_environment(self.plan.actor_threads),
            process_group=0,  # a ^C in the terminal reaches the learner alone
        )
        theirs.close()
        orders = Orders(
            index, self.plan, origin, attempt, snapshot, self._env, os.getpid(), self._cores, *inherited[1:]
        )
        _send(ours, orders)
        return ActorProcess(index, process, ours)

    def watch(self) -> None:
        self._supervisor.watch()

    def snapshots(self) -> list[Snapshot]:
        return self._supervisor.snapshots(REST_S)

    def close(self) -> None:
        self.gate.close()
        self._supervisor.close(CLOSE_S)
        self.gate.discard()


def _send(connection: Connection[Orders, Report], orders: Orders) -> None:
    with contextlib.suppress(OSError):  # it has died already, which the supervisor will see
        connection.send(orders)


def _environment(threads: int) -> dict[str, str]:
    """Return the environment of an actor process: it finds the modules that this process finds."""
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    return os.environ | {"PYTHONPATH": path} | dict.fromkeys(THREAD_VARIABLES, str(threads))
