"""Independent pieces of work on the nodes of a cluster: each is a task of Ray with its own resources."""

from __future__ import annotations

import faulthandler
import pickle
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import RunFailed
from offbeat.envs import sending
from offbeat.runtime.children.child import search_path
from offbeat.runtime.ray.cluster import Cluster, ray_options, resources_text
from offbeat.runtime.ray.missing_modules import naming_this_node
from offbeat.runtime.ray.node_end import end_with_node

RETRIES = 3
"""Times that a task is repeated because its node was lost."""
POLL_S = 1.0
"""Seconds between two looks at the nodes."""
NODE_TIMEOUT_S = 60.0
"""Seconds without a node with the resources after which the work fails."""
STALL_S = 3600.0
"""Seconds without a step of all envs, after which a task hangs: all its envs may be reset in them, one by one. A run
whose envs may take longer has a longer limit: see `stall_limit`."""
LONGEST_S = 1e9
"""The longest limit, 30 years: the system refuses times that are too far away."""
RENEW_EVERY_S = 1.0
"""Minimum seconds between two renewals of a task's time limit: each of them starts a thread."""
Result = TypeVar("Result")


def stall_limit(runs: Iterable[RuntimeConfig]) -> float:
    """Return the seconds after which a task with the envs of these runs hangs: no less than a call of them may take."""
    limits = [limit for run in runs for limit in (run.step_timeout_s, run.reset_timeout_s)]
    return min(LONGEST_S, max(STALL_S, *limits))


class TaskPool:
    """Runs functions on the nodes of a cluster, as many at a time as there are resources for.

    Args:
        cluster: the cluster.
        resources: resource -> amount that each task needs.
        user: a task, for messages: 'an evaluation'.

    Raises:
        ConfigError: no node has the resources, or the nodes have other versions.
    """

    def __init__(self, cluster: Cluster, resources: Mapping[str, float], user: str) -> None:
        cluster.require(resources, user)
        self._cluster, self._resources = cluster, resources

    def put(self, value: object) -> Any:
        """Store an argument of several tasks, which each node gets once; return what stands for it in `results`."""
        import ray

        return ray.put(_pickled(value))

    def results(
        self,
        env: bytes,
        function: Callable[..., Result],
        calls: Sequence[Sequence[object]],
        stall_s: float = STALL_S,
    ) -> Iterator[tuple[int, Result]]:
        """Call a function on the nodes, once with each of several lists of arguments.

        Args:
            env: the env that it makes, from `sending.package`.
            function: the function. It calls `note_progress` often. It can be called again, if a node is lost.
            calls: the arguments of each call, which may be from `put`.
            stall_s: seconds without a call of `note_progress` after which the process of a task is killed. It first
                prints where it hangs.

        Yields:
            The index of a call and its result, as they come.

        Raises:
            RunFailed: there is no node with the resources any more, or a task hangs, or its process dies, each time; or
                Ray is lost.
            Exception: what the function has raised.
        """
        import ray

        task, first = self._task(), (search_path(), env, stall_s)
        sent = [[each if isinstance(each, ray.ObjectRef) else _pickled(each) for each in (function, *a)] for a in calls]
        waiting = {task.remote(*first, *pickled): index for index, pickled in enumerate(sent)}
        try:
            while waiting:
                for done in self._wait(list(waiting)):
                    yield waiting.pop(done), self._result(done, stall_s)
        finally:
            for left in () if self._cluster.watch.lost else waiting:
                ray.cancel(left, force=True)

    def _task(self) -> Any:
        import ray

        task: Any = ray.remote(_call)
        return task.options(**ray_options(self._resources), max_retries=RETRIES)

    def _wait(self, waiting: list[Any]) -> list[Any]:
        """Return the tasks that have ended, at least one.

        Raises:
            RunFailed: there was no node with the resources for `NODE_TIMEOUT_S`, or Ray is lost.
        """
        import ray

        watch, deadline = self._cluster.watch, time.monotonic() + NODE_TIMEOUT_S
        while not (done := ray.wait(waiting, timeout=POLL_S)[0]):
            watch.require()
            if not watch.head_answers():
                continue
            if any(node.has(self._resources) for node in self._cluster.nodes()):
                deadline = time.monotonic() + NODE_TIMEOUT_S
            elif time.monotonic() > deadline:
                raise RunFailed(
                    f"the cluster has had no node with {resources_text(self._resources)} for {NODE_TIMEOUT_S:g} s: add "
                    "one, and run the command again"
                )
        return done

    def _result(self, done: Any, stall_s: float) -> Any:
        """Return the result of a task that has ended; raise what it has raised."""
        import ray

        try:
            return ray.get(done)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayError as error:
            raise RunFailed(
                f"a task was not completed in {RETRIES + 1} attempts: its node was lost, or its process died, or it "
                f"made no progress within {stall_s:g} s and was killed: {error}"
            ) from error


class _StallLimit:
    """On a node: the time limit of the task that runs in this process.

    `faulthandler` ends the process from a thread that needs no lock of Python, which an env may hold. The time in which
    the process is stopped counts too. If it was stopped for longer, it is killed when it continues, and the task is
    repeated with the same result: no code of Python could renew the limit before.
    """

    def __init__(self) -> None:
        self._seconds, self._renewed_at = 0.0, 0.0

    def start(self, seconds: float) -> None:
        """Kill this process after a time, unless `renew` is called."""
        self._seconds, self._renewed_at = seconds, time.monotonic()
        # Ray may have replaced sys.stderr; the descriptor is that of this process's log, which the user sees.
        faulthandler.dump_traceback_later(seconds, exit=True, file=2)

    def renew(self) -> None:
        """Start the time again, if a task runs."""
        if self._seconds and time.monotonic() - self._renewed_at >= RENEW_EVERY_S:
            self.start(self._seconds)

    def end(self) -> None:
        """The task has ended: there is no limit."""
        self._seconds = 0.0
        faulthandler.cancel_dump_traceback_later()


_LIMIT = _StallLimit()
"""That of the task in this process: Ray gives a process one task at a time."""


def note_progress(*_numbers: int) -> None:
    """Note that the task in this process makes progress; can be the `on_step` of an evaluation."""
    _LIMIT.renew()


def _pickled(value: object) -> bytes:
    """Return what `_call` unpickles. Ray would unpickle it before, when a node does not find the user's modules yet."""
    from ray import cloudpickle

    pickler: Any = cloudpickle
    pickled: bytes = pickler.dumps(value)
    return pickled


def _call(path: Sequence[str], env: bytes, stall_s: float, *pickled: bytes) -> Any:
    """On a node: register the env, and call a function.

    Args:
        path: folders in which modules are searched too.
        env: the env, from `sending.package`.
        stall_s: as for `TaskPool.results`.
        *pickled: the function and its arguments, which may be of modules in these folders.
    """
    end_with_node()
    sys.path += [folder for folder in path if folder not in sys.path]
    _LIMIT.start(stall_s)
    try:
        with naming_this_node():
            sending.unpack(env)
            function, *arguments = map(pickle.loads, pickled)
        return function(*arguments)
    finally:
        _LIMIT.end()
