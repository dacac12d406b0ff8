"""Independent pieces of work on the nodes of a cluster: each is a task of Ray with its own resources."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from offbeat.core.errors import RunFailed
from offbeat.envs import sending
from offbeat.runtime.ray.cluster import Cluster, resources_text

RETRIES = 3
"""Times that a task is repeated because its node was lost."""
POLL_S = 1.0
"""Seconds between two looks at the nodes."""
NODE_TIMEOUT_S = 60.0
"""Seconds without a node with the resources after which the work fails."""
Result = TypeVar("Result")


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
        cluster.require_resources(resources, user, "pass --cpus, --gpus or --resources with what a node has")
        cluster.require_versions()
        self._cluster, self._resources = cluster, resources

    def put(self, value: object) -> Any:
        """Store an argument of several tasks, which each node gets once; return what stands for it in `results`."""
        import ray

        return ray.put(value)

    def results(
        self, env: bytes, function: Callable[..., Result], calls: Sequence[Sequence[object]]
    ) -> Iterator[tuple[int, Result]]:
        """Call a function on the nodes, once with each of several lists of arguments.

        Args:
            env: the env that it makes, from `sending.package`.
            function: the function. It can be called again, if a node is lost.
            calls: the arguments of each call, which may be from `put`.

        Yields:
            The index of a call and its result, as they come.

        Raises:
            RunFailed: there is no node with the resources any more.
            Exception: what the function has raised.
        """
        import ray

        task = self._task()
        waiting = {task.remote(env, function, *arguments): index for index, arguments in enumerate(calls)}
        try:
            while waiting:
                for done in self._wait(list(waiting)):
                    yield waiting.pop(done), _result(done)
        finally:
            for left in waiting:
                ray.cancel(left, force=True)

    def _task(self) -> Any:
        import ray

        custom = {name: amount for name, amount in self._resources.items() if name not in ("CPU", "GPU")}
        task: Any = ray.remote(_call)
        return task.options(
            num_cpus=self._resources["CPU"], num_gpus=self._resources["GPU"], resources=custom, max_retries=RETRIES
        )

    def _wait(self, waiting: list[Any]) -> list[Any]:
        """Return the tasks that have ended, at least one.

        Raises:
            RunFailed: there was no node with the resources for `NODE_TIMEOUT_S`.
        """
        import ray

        deadline = time.monotonic() + NODE_TIMEOUT_S
        while not (done := ray.wait(waiting, timeout=POLL_S)[0]):
            if any(node.has(self._resources) for node in self._cluster.nodes()):
                deadline = time.monotonic() + NODE_TIMEOUT_S
            elif time.monotonic() > deadline:
                raise RunFailed(
                    f"the cluster has had no node with {resources_text(self._resources)} for {NODE_TIMEOUT_S:g} s: add "
                    "one, and run the command again"
                )
        return done


def _call(env: bytes, function: Callable[..., Result], *arguments: object) -> Result:
    """On a node: register the env, and call the function."""
    sending.unpack(env)
    return function(*arguments)


def _result(done: Any) -> Any:
    """Return the result of a task that has ended; raise what it has raised."""
    import ray

    try:
        return ray.get(done)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise RunFailed(f"a task could not be completed, because nodes were lost: {error}") from error
