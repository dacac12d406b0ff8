"""An actor in a process of a Ray cluster. It imports torch only if it computes a network with torch.

It acts its assignments one after the other, in the order in which they were sent, and returns the rows as a message. A
second thread answers whether it makes progress, also while an env call hangs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import wraps
from math import inf
from time import monotonic
from time import perf_counter as clock
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from offbeat.core.argument_notation import keep_flags
from offbeat.core.errors import Closed
from offbeat.core.memory_shape import Slots
from offbeat.core.process.allocator import keep_freed_memory
from offbeat.core.process.threads import set_blas_thread_count
from offbeat.core.types import Tree
from offbeat.envs import sending
from offbeat.memory.arena import private_arena
from offbeat.memory.weights import Weights, weight_slabs
from offbeat.runtime.children.child_main import Failed
from offbeat.runtime.deadline import ROW, Deadline, Span, StallWatch, WorkerDeadline
from offbeat.runtime.make_actor import make_actor, start_actor
from offbeat.runtime.plan import Plan, PolicyPlan
from offbeat.runtime.ray.cluster import own_versions
from offbeat.runtime.ray.messages import (
    ActedTickets,
    Alive,
    Assignment,
    RemoteLaunch,
    RowMessage,
    Started,
    TicketRows,
)
from offbeat.runtime.ray.missing_modules import naming_this_node
from offbeat.runtime.ray.node_end import end_with_node
from offbeat.workers.link import Memory

_SEND_MODULE = """; or let Ray send it: pass --set 'ray_runtime_env={"py_modules": ["/home/me/my_env"]}'"""
"""What else helps if a module is missing on a node, as the end of a message."""


def answering_failures(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method return `Failed` instead of raising an error: not every error can be sent."""

    @wraps(method)
    def answer(*arguments: Any) -> Any:
        try:
            return method(*arguments)
        except Closed:
            return Failed("the run is ending", "", "")
        except BaseException as error:  # noqa: BLE001 - every error is reported
            return Failed.by(error)

    return answer


class MessageSlots:
    """The slots of one policy in this process: new arrays for each ticket, because they are sent away."""

    def __init__(self, rows: RowMessage) -> None:
        self._rows = rows
        self._slot: Tree = {}

    def open(self, ticket: int) -> Tree:  # noqa: ARG002
        """Return the arrays that a ticket writes."""
        self._slot = self._rows.new_slot()
        return self._slot

    def arrays(self, first: int) -> Tree:
        """Return what was written for the last ticket: see `RowMessage.arrays`."""
        return self._rows.arrays(self._slot, first)


class MessageMemory:
    """The slots and one version of the weights of all policies, in this process."""

    def __init__(self, plan: Plan) -> None:
        self._learned: list[MessageSlots] = []
        """The slots of the policies that learn."""
        self._weights = [Weights(private_arena(weight_slabs(policy.layout.size, 1))) for policy in plan.policies]
        slots = [self._slots_of(policy) for policy in plan.policies]
        self.memory = Memory(list(zip(slots, self._weights, strict=True)))

    def _slots_of(self, policy: PolicyPlan) -> Slots:
        if not policy.trained:
            return policy.slots({})
        slots = MessageSlots(RowMessage(policy))
        self._learned.append(slots)
        return slots

    def publish(self, assignment: Assignment, vector: NDArray[np.float32]) -> None:
        """Make a version of the weights the one to act with; `vector`: the weights of all policies."""
        start = 0
        for weights in self._weights:
            own = weights.open(assignment.version)
            own[:] = vector[start : start + len(own)]
            weights.commit(assignment.version, assignment.progress)
            start += len(own)

    def rows(self, ticket: int, first: int) -> TicketRows:
        """Return the rows of the ticket that was acted last."""
        return TicketRows(ticket, first, tuple(slots.arrays(first) for slots in self._learned))


class RemoteActor:
    """See the module's docstring."""

    def __init__(self, launch: RemoteLaunch) -> None:
        """Take the launch spec. `start` does the work, and reports errors."""
        self._launch, self._plan = launch, launch.plan
        self._closed = np.zeros(1, np.int64)
        self._deadline = Deadline(np.zeros(ROW))
        self._watch = WorkerDeadline(self._closed, self._deadline, launch.plan.runtime)
        self._stalls = StallWatch([self._deadline])

    @answering_failures
    def start(self) -> Started:
        """Make the envs, and start episodes."""
        import ray

        keep_flags()
        end_with_node()
        _print_to_stderr()
        launch, plan = self._launch, self._plan
        if launch.folder is not None:
            with suppress(OSError):
                os.chdir(launch.folder)
        sys.path += [folder for folder in launch.path if folder not in sys.path]
        set_blas_thread_count(plan.actor_threads)
        keep_freed_memory()
        self._watch.enter(resets=True)  # making envs may take as long as a reset
        with naming_this_node(_SEND_MODULE):
            sending.unpack(launch.code)
        self._memory = MessageMemory(plan)
        self._actor = make_actor(plan, launch.index, launch.origin, self._watch, launch.attempt)
        self._watch.leave()
        snapshot = deepcopy(launch.snapshot)  # Ray's arrays are read-only, and envs may write into theirs
        start_actor(plan, self._actor, launch.origin, snapshot, launch.progress)
        self._end_deadline()
        node, address_of_node = ray.get_runtime_context().get_node_id(), cast(Any, ray.util.get_node_ip_address)
        return Started(os.getpid(), node, address_of_node(), own_versions())

    @answering_failures
    def act(self, assignments: Sequence[Assignment], *vectors: NDArray[np.float32]) -> ActedTickets:
        """Act tickets, in this order.

        Args:
            assignments: the tickets.
            vectors: the weights of their versions, each version once; none if all have the version of the last ticket.
        """
        started = clock()
        self._watch.renew()
        published = dict(zip(dict.fromkeys(assignment.version for assignment in assignments), vectors, strict=False))
        tickets = tuple(self._act(assignment, published.pop(assignment.version, None)) for assignment in assignments)
        self._end_deadline()
        seconds = dict(self._actor.timings.seconds)
        return ActedTickets(tickets, clock() - started, seconds, self._actor.longest_stall)

    def _act(self, assignment: Assignment, vector: NDArray[np.float32] | None) -> TicketRows:
        if vector is not None:
            self._memory.publish(assignment, vector)
        first = self._actor.act(self._memory.memory.work(assignment.ticket, assignment.version))
        return self._memory.rows(assignment.ticket, first)

    @answering_failures
    def snapshot(self) -> Any:
        """Return the state of the envs and of the unfinished episodes; None if an env does not support snapshots."""
        snapshot = self._actor.snapshot()
        self._end_deadline()
        return snapshot

    @answering_failures
    def close(self) -> None:
        """Close the envs."""
        self._actor.close()

    # --- in the second thread -------------------------------------------------------------------------------

    def alive(self) -> Alive:
        """Return whether this actor makes progress."""
        span, left_s = self._deadline.span, self._deadline.time - monotonic()
        if span == Span.NOTHING or left_s == inf:  # the other thread may have set only one of them
            return Alive(Span.WORK, self._plan.runtime.stall_timeout_s, has_stalled=False, waits=True)
        if not self._stalls.has_stalled(0):
            return Alive(span, left_s, has_stalled=False, waits=False)
        return Alive(span, left_s, has_stalled=True, waits=False)

    def stop(self) -> None:
        """Let the next env call end the work: the run is ending."""
        self._closed[0] = 1

    def _end_deadline(self) -> None:
        """Set no deadline while this actor waits for assignments."""
        self._deadline.set(Span.NOTHING, inf)


def _print_to_stderr() -> None:
    """Send what envs print to stderr: stdout is for the results of a command."""
    sys.stdout.flush()
    os.dup2(2, 1)
