"""The connection to a Ray cluster, and what its nodes have: resources, and versions of packages.

`connecting.connect` makes it. Ray is imported only in the modules that use a `Cluster`, when they need it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any, Self

from offbeat.core.errors import ConfigError, without_full_stop
from offbeat.runtime.ray.cluster_watch import ClusterWatch

VERSIONS_S = 300.0
"""Seconds that each node gets to say its versions. A node first prepares the runtime environment."""
PACKAGES = ("offbeat", "torch", "numpy", "gymnasium")
"""The packages that must have the same version on all nodes. Ray compares its own version and Python's."""
KILL_S = 5.0
"""Seconds to wait at the end until processes are killed on their nodes."""
SAME_VERSIONS = "Install the same versions on all nodes"
ASK_LESS = "pass --cpus, --gpus or --resources with what a node has, or start a larger node"
"""What to do if no node has the resources, as the end of a message: for commands that run on a cluster."""


@dataclass(frozen=True)
class Node:
    """A node of a cluster."""

    id: str
    """Ray's id of the node, in hexadecimal digits."""
    address: str
    """Its IP address, for messages."""
    resources: Mapping[str, float]
    """Resource -> amount: CPU, GPU and custom resources. What is in use is included."""

    def has(self, resources: Mapping[str, float]) -> bool:
        """Whether the node has these resources, if nothing else uses them."""
        return all(self.resources.get(name, 0.0) >= amount for name, amount in resources.items())

    def __str__(self) -> str:
        return f"{self.address} with {resources_text(self.resources)}"


class Cluster:
    """A connection to a Ray cluster. Close it, or use it in a `with` statement: what was started then ends."""

    def __init__(self, address: str, *, is_local: bool, closing: Sequence[Callable[[], None]] = ()) -> None:
        """Use the connection of this process; `connecting.connect` makes it.

        Args:
            address: host and port of the cluster.
            is_local: whether Ray was started for this connection, on this machine.
            closing: is called at the end, in this order.
        """
        self.address, self.is_local, self._closing = address, is_local, list(closing)
        self.logs = (
            "" if is_local else ". Look at the logs of Ray on its nodes, by default in /tmp/ray/session_latest/logs"
        )
        """The end of a message about a failure of Ray. A Ray that was started here deletes its logs when it ends."""
        self._kills: list[Any] = []
        """References of the tasks that kill processes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection, and Ray if it was started for it. A connection that was found stays."""
        with ExitStack() as closing:  # also if a step fails
            while self._closing:
                closing.callback(self._closing.pop())
            if self._kills and not self.watch.lost:
                import ray

                ray.wait(self._kills, num_returns=len(self._kills), timeout=KILL_S)
                self._kills.clear()

    def nodes(self) -> list[Node]:
        """Return the nodes that are alive."""
        import ray

        nodes: Any = ray.nodes
        return [
            Node(node["NodeID"], node["NodeManagerAddress"], _countable(node["Resources"]))
            for node in nodes()
            if node["Alive"]
        ]

    def require(self, resources: Mapping[str, float], user: str, remedy: str = ASK_LESS) -> None:
        """Refuse resources that no node has, whatever else uses them, and nodes with other versions than here.

        Args:
            resources: resource -> amount that one process needs.
            user: the process, for the message: 'an actor'.
            remedy: what to pass instead, as the end of the message.

        Raises:
            ConfigError: with the resources of all nodes, the differences, or the nodes that cannot run a task.
        """
        nodes = self.nodes()
        if not any(node.has(resources) for node in nodes):
            listed = "; ".join(map(str, nodes)) or "no node"
            raise ConfigError(
                f"{user} needs {resources_text(resources)}, but no node has that. The cluster has {listed}: {remedy}"
            )
        self._require_versions()

    def _require_versions(self) -> None:
        """Refuse nodes that have other versions of Python or of `PACKAGES`, do not answer, or cannot run a task."""
        import ray

        ask = _asking_versions()
        asked = {
            (node.address, node.id): task_on(node.id, ask, or_elsewhere=True).remote(PACKAGES) for node in self.nodes()
        }
        answered, waiting = ray.wait(list(asked.values()), num_returns=len(asked), timeout=VERSIONS_S)
        if waiting:
            silent = ", ".join(address for (address, _), answer in asked.items() if answer in waiting)
            raise ConfigError(
                f"{len(waiting)} of {len(asked)} nodes did not answer within {VERSIONS_S:g} s: {silent}{self.logs}"
            )
        try:
            theirs = zip(asked, ray.get(answered), strict=True)
        except ray.exceptions.RayError as error:
            raise ConfigError(
                f"the nodes cannot run tasks, perhaps because of ray_runtime_env: {without_full_stop(error)}{self.logs}"
            ) from error
        differences = (version_differences(versions, address) for (address, _), versions in theirs)
        if found := sorted(set(filter(None, differences))):
            raise ConfigError(f"the nodes have different versions: {'; '.join(found)}. {SAME_VERSIONS}")

    @cached_property
    def own_node(self) -> str:
        """Ray's id of the node of this process."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    @property
    def raylet(self) -> str:
        """The path of the socket of Ray's process on the node of this process.

        Raises:
            ConfigError: Ray does not list this node.
        """
        import ray

        nodes: Any = ray.nodes
        for node in nodes():
            if node["NodeID"] == self.own_node:
                return str(node["RayletSocketName"])
        raise ConfigError(f"Ray does not list the node of this process, {self.own_node}: look at `ray list nodes`")

    @cached_property
    def watch(self) -> ClusterWatch:
        """Notices the loss of Ray on this machine, or of the head. Without it, Ray ends this process without a word.

        Raises:
            ConfigError: Ray on this machine accepts no connection.
        """
        watch = ClusterWatch(self.raylet, self.address, self.logs)
        self._closing.insert(0, watch.close)
        return watch

    def kill(self, node: str, pid: int) -> None:
        """Kill a process on a node, with its process group, if the node is there; do not wait for it."""
        if self.watch.lost:  # Ray would not answer
            return

        def kill_group(pid: int) -> None:
            from contextlib import suppress
            from signal import SIGKILL

            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, SIGKILL)

        self._kills.append(task_on(node, kill_group).remote(pid))


def task_on(node: str, function: Callable[..., Any], *, or_elsewhere: bool = False) -> Any:
    """Return a task of Ray that calls a function once, on one node, and needs no CPU.

    Args:
        node: Ray's id of the node.
        function: the function.
        or_elsewhere: whether another node may call it, if this one is lost meanwhile.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node, soft=or_elsewhere)
    task: Any = ray.remote(function)
    return task.options(num_cpus=0, max_retries=0, scheduling_strategy=there)


def own_versions() -> dict[str, str | None]:
    """Return the versions of Python and of `PACKAGES` here."""
    return _asking_versions()(PACKAGES)


def version_differences(theirs: Mapping[str, str | None], where: str) -> str:
    """Return in which versions another node differs from this process; '' if in none.

    Args:
        theirs: the versions on that node.
        where: its address.
    """
    return "; ".join(
        f"{name} is {theirs.get(name) or 'missing'} on {where} and {version or 'missing'} here"
        for name, version in own_versions().items()
        if theirs.get(name) != version
    )


def cause_of(error: BaseException) -> str:
    """Return the cause of an error of Ray: the line that has it, because others have names and ids."""
    if "actor is temporarily unavailable" in str(error):  # Ray does not know yet what has happened
        return "it does not answer: its process or its node is lost"
    lines = str(error).splitlines() or ["no reason"]
    causes = (line for line in lines if line.startswith(("The actor is dead", "The actor died because")))
    return next(causes, lines[0])


def resources_text(resources: Mapping[str, float]) -> str:
    """Return resources for a message: '4 CPU, 1 GPU'."""
    return ", ".join(f"{amount:g} {name}" for name, amount in resources.items() if amount) or "no resources"


def ray_options(resources: Mapping[str, float]) -> dict[str, Any]:
    """Return resource -> amount as Ray's options of a task or an actor."""
    custom = {name: amount for name, amount in resources.items() if name not in ("CPU", "GPU")}
    return {"num_cpus": resources.get("CPU", 0.0), "num_gpus": resources.get("GPU", 0.0), "resources": custom}


def _countable(resources: Mapping[str, float]) -> dict[str, float]:
    """Return CPU, GPU and custom resources: without memory, and without the names of nodes."""
    return {
        name: amount
        for name, amount in sorted(resources.items())
        if name not in ("memory", "object_store_memory") and not name.startswith(("node:", "accelerator_type:"))
    }


def _asking_versions() -> Callable[[Sequence[str]], dict[str, str | None]]:
    """Return a function that returns versions. Ray sends nested functions by value: offbeat may be missing there."""

    def versions(packages: Sequence[str]) -> dict[str, str | None]:
        from importlib.metadata import PackageNotFoundError, version
        from platform import python_version

        found: dict[str, str | None] = {"Python": python_version()}
        for name in packages:
            try:
                found[name] = version(name)
            except PackageNotFoundError:
                found[name] = None
        return found

    return versions
