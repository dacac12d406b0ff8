"""The life of an actor process, which never imports torch.

It is told all it needs on one socket, on which it later reports; everything else goes over shared memory. It ends
when the gate closes, or when the process that started it does.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from offbeat.envs import sending
from offbeat.errors import Closed
from offbeat.memory.arena import attach
from offbeat.runtime.acting import Plan, Snapshot
from offbeat.runtime.gate import ActorGate, Bell, Board
from offbeat.threads import limit_blas, place, turn

PR_SET_PDEATHSIG = 1
"""Of prctl(2): have a signal sent to this process when its parent dies."""


@dataclass(frozen=True)
class Orders:
    """What an actor process is told at its start."""

    index: int
    plan: Plan
    origin: int
    """The ticket at which its episodes begin."""
    attempt: int
    """How often this actor has died of late."""
    snapshot: Snapshot
    env: bytes
    """From `sending.package`."""
    parent: int
    cores: set[int]
    """Where it may run, unless `actor_cores` says otherwise: the learner may have been pinned since."""
    arena: int
    """File descriptors, which it has inherited under the same numbers."""
    own_bell: int
    learners_bell: int


class Report(NamedTuple):
    """What an actor process says. Everything but a failure is said once each time it becomes true."""

    kind: str
    """ready: the envs have begun; rest: a hold stands before the next ticket; failed."""
    content: Any
    """rest: its next ticket, and the snapshot of its envs; failed: the traceback."""


def main() -> None:
    """Be an actor until the gate closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C is for the learner, which closes the gate
    connection: Connection[Report, Orders] = Connection(int(sys.argv[1]))
    try:
        orders = connection.recv()
    except EOFError:
        return  # whoever started this process has died
    _die_with_the_parent(orders.parent, connection)
    learners_bell = Bell(-1, orders.learners_bell)
    try:
        _act(orders, connection, learners_bell)
    except Closed:
        return
    except BaseException:  # noqa: BLE001 - the learner is told, whatever it was
        connection.send(Report("failed", traceback.format_exc()))
        learners_bell.ring()
        raise SystemExit(1) from None


def _act(orders: Orders, connection: Connection[Report, Orders], learners_bell: Bell) -> None:
    plan, runtime = orders.plan, orders.plan.runtime
    place(turn(runtime.actor_cores, orders.index) or orders.cores, runtime.actor_nice)
    limit_blas(plan.actor_threads)
    sending.unpack(orders.env)
    arrays = attach(orders.arena, plan.slabs())
    board = Board(arrays, runtime.actors)
    gate = ActorGate(board, plan.pace, runtime, orders.index, Bell(orders.own_bell, -1), learners_bell)
    actor = plan.actor(orders.index, orders.origin, gate, orders.attempt)
    actor.timings.merge(board.spent(orders.index))  # the time of a process that died is not forgotten
    try:
        plan.begin(actor, orders.origin, orders.snapshot)
        connection.send(Report("ready", None))
        actor.work(
            gate,
            plan.slots(arrays),
            plan.weights(arrays),
            at_rest=lambda: connection.send(Report("rest", (gate.open_ticket, actor.snapshot()))),
        )
    finally:
        actor.close()


def _die_with_the_parent(parent: int, connection: Connection[Report, Orders]) -> None:
    """See to it that this process does not outlive the one that started it, however that ends."""
    threading.Thread(target=_exit_at_end_of_file, args=(connection,), daemon=True).start()
    if sys.platform == "linux":  # also while an env holds on to the interpreter
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _exit_at_end_of_file(connection: Connection[Report, Orders]) -> None:
    with contextlib.suppress(EOFError, OSError):  # nothing more is ever sent: this returns when the other end is gone
        connection.recv_bytes()
    os._exit(1)
