"""The process of a job on a node of a Ray cluster, as the machine of `offbeat run` sees it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from offbeat.experiments.file_digests import NETWORK_DISK_TIMEOUT_S, FileDigests
from offbeat.experiments.jobs import Job
from offbeat.experiments.launching import KILL_S, End
from offbeat.experiments.node_job import Launch, NodeEnd, NodeJob
from offbeat.experiments.ray_nodes import JobNodes
from offbeat.runtime.children.child import THREAD_VARIABLES
from offbeat.runtime.ray.cluster import cause_of, ray_options

CARRIED = ("PYTHONPATH", *THREAD_VARIABLES)
"""Environment variables that jobs get from this process. All others are those of the node."""
INTERRUPTED = 130
"""Exit code of a process that was stopped before it started."""
SAVE_S = 20.0
"""Seconds to wait for the end of a process that saves, if Ray is lost: Ray ends this process soon."""
UNAVAILABLE_S = 30.0
"""Seconds without a connection to a node after which its job counts as lost."""
Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Placement:
    """Where a job may start, and what it needs there."""

    job: Job
    arguments: Sequence[str]
    usable: JobNodes
    resources: Mapping[str, float]

    @property
    def nodes(self) -> Sequence[str]:
        """Ids of the nodes that it may start on now: others may be lost, and join, while it waits for resources."""
        return self.usable.ids

    def actor(self) -> Any:
        """Return a new actor, a `NodeJob`, which Ray creates when one of these nodes has the resources."""
        import ray
        from ray.util.scheduling_strategies import In, NodeLabelSchedulingStrategy

        one_of: Any = In
        actor: Any = ray.remote(NodeJob)
        there = NodeLabelSchedulingStrategy({"ray.io/node-id": one_of(*self.nodes)})
        options = ray_options(self.resources)
        return actor.options(**options, max_concurrency=4, max_restarts=0, scheduling_strategy=there).remote()

    def launch(self) -> Launch:
        """Return what the actor needs to start the process."""
        output = self.job.output
        return Launch(
            list(self.arguments),
            str(Path.cwd()),
            str(self.job.log.absolute()),
            None if output is None else str(output.absolute()),
            {name: os.environ.get(name) for name in CARRIED},
            FileDigests.of(path.absolute() for path in self.job.files),
        )


class RayProcess:
    """A process of a job on one of several nodes."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._actor: Any = None
        """None while there is no node."""
        self._nodes: Sequence[str] = ()
        self._placed: _Call[str] | None = None
        self._host = ""
        """Name of its node; empty while it waits for resources."""
        self._start: _Call[str] | None = None
        self._wait: _Call[NodeEnd] | None = None
        """Its end; None until it has started."""
        self._save: _Call[None] | None = None
        """The signal to save a checkpoint and end."""
        self._kill: _Call[bool] | None = None
        self._stopping, self._give_up_at = False, float("inf")
        self._ended: NodeEnd | None = None
        self._deadline = 0.0
        """Time until which this machine must see the files that the process has left."""

    @property
    def is_waiting(self) -> bool:
        return not self._host

    def poll(self) -> End | None:
        from ray.exceptions import RayError, RayTaskError

        if self._stopping and self._wait is None:
            return End(INTERRUPTED)
        if self._stopping and self._placement.usable.is_lost:
            self._give_up_at = min(self._give_up_at, time.monotonic() + SAVE_S)
        if time.monotonic() > self._give_up_at:
            return End(1, "Ray was lost while it saved", node_lost=True)
        try:
            if self._wait is None:
                return self._poll_start()
            return self._poll_end(self._wait)
        except RayTaskError as error:
            return End(1, f"it could not be started on the node {self._host}: {error.cause}")
        except RayError as error:
            where = f"the node {self._host}" if self._host else "its node"
            return End(1, f"{where}, or Ray's worker there, was lost ({cause_of(error)})", node_lost=True)

    def _poll_start(self) -> End | None:
        """Start the process when there are resources for it."""
        if not self._host:
            self._place()
            self._host = (self._placed and self._placed.poll()) or ""
            return None
        if self._start is None:
            self._start = _Call(self._actor.start, self._placement.launch())
        refusal = self._start.poll()
        if refusal is None:
            return None
        if refusal:
            return End(1, refusal, node_lost=True)  # another node, or this one later, may see the files
        self._wait = _Call(self._actor.wait)
        return None

    def _place(self) -> None:
        """Wait for resources on the nodes as they are now: others may be lost since, or have joined."""
        if self._nodes == self._placement.nodes:
            return
        self._end_actor()
        self._nodes = self._placement.nodes
        if self._nodes:
            self._actor = self._placement.actor()
            self._placed = _Call(self._actor.host)

    def _poll_end(self, wait: _Call[NodeEnd]) -> End | None:
        if self._stopping:
            self._save = self._save or _Call(self._actor.signal, signal.SIGTERM)
            self._save.poll()
        if self._ended is None:
            self._ended = wait.poll()
            self._deadline = time.monotonic() + NETWORK_DISK_TIMEOUT_S
        if self._ended is None:
            return None
        if self._ended.lost:
            return End(
                1,
                f"the node {self._host}, or Ray's worker there, was lost (it has killed its children)",
                node_lost=True,
            )
        differing = self._ended.files.differing()
        if not differing:
            return End(self._ended.code)
        if time.monotonic() < self._deadline:
            return None
        return End(1, f"this machine does not see {differing[0]} as {self._host} has written it", node_lost=True)

    def terminate(self) -> None:
        self._stopping = True

    def kill(self) -> None:
        if self._start is not None and not self._placement.usable.is_lost:  # else it saves when this process has ended
            self._kill = _Call(self._actor.kill)

    def close(self, timeout_s: float = KILL_S) -> str:
        has_ended = self._has_ended(timeout_s)
        self._end_actor()
        return "" if has_ended else f"its process on the node {self._host}"

    def _has_ended(self, timeout_s: float) -> bool:
        """Whether a process that was killed ends within `timeout_s`, as its node says, or is lost with the node."""
        from ray.exceptions import RayError

        if self._kill is None:
            return True
        try:
            return self._kill.wait(timeout_s) and self._kill.poll() is not False
        except RayError:
            return True

    def _end_actor(self) -> None:
        import ray

        if self._actor is not None:
            if not self._placement.usable.is_lost:  # else nobody answers
                ray.kill(self._actor)
            self._actor = self._placed = None


class _Call(Generic[Result]):
    """A call of an actor, which is made again while there is no connection to the actor."""

    def __init__(self, method: Any, *arguments: object) -> None:
        self._method, self._arguments = method, arguments
        self._reference = method.remote(*arguments)
        self._unavailable_since = float("inf")

    def poll(self) -> Result | None:
        """Return the result; None if it has not come yet.

        Raises:
            RayError: the actor has ended, or there was no connection for `UNAVAILABLE_S`.
        """
        import ray
        from ray.exceptions import ActorUnavailableError

        if not ray.wait([self._reference], timeout=0)[0]:
            return None
        try:
            result: Result = ray.get(self._reference)
        except ActorUnavailableError:
            now = time.monotonic()
            self._unavailable_since = min(now, self._unavailable_since)
            if now - self._unavailable_since > UNAVAILABLE_S:
                raise
            self._reference = self._method.remote(*self._arguments)
            return None
        return result

    def wait(self, timeout_s: float) -> bool:
        """Wait for the result, or for its failure; return whether it has come."""
        import ray

        return bool(ray.wait([self._reference], timeout=timeout_s)[0])
