"""The connection to a Ray cluster: connect to one or start Ray on this machine, and check that its nodes suit the work.

Ray is imported only here and in the modules that use a `Cluster`, when they need it.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Self

from offbeat.core.errors import ConfigError
from offbeat.core.threads import usable_cores
from offbeat.runtime.ray.watchdog import Watchdog

LOCAL = "local"
"""The address for which Ray is started on this machine, and ended again."""
AUTO = "auto"
"""The address of the cluster that RAY_ADDRESS names, or that was started last on this machine."""
ANSWER_S = 10.0
"""Seconds that a cluster gets to answer."""
VERSIONS_S = 300.0
"""Seconds that each node gets to say its versions. A node first prepares the runtime environment."""
PACKAGES = ("offbeat", "torch", "numpy", "gymnasium")
"""The packages that must have the same version on all nodes. Ray compares its own version and Python's."""
KILL_S = 5.0
"""Seconds to wait at the end until processes are killed on their nodes."""
SAME_VERSIONS = "Install the same versions on all nodes"
LEAST_STORE = 80 << 20
"""Smallest object store that Ray starts, in bytes."""
_PROBE = """
import sys
from ray._private.services import canonicalize_bootstrap_address
from ray._raylet import GcsClient
print("imported", flush=True)
address = canonicalize_bootstrap_address(sys.argv[1])
if address is None:
    sys.exit("none")
GcsClient(address=address)
print(address)
"""
"""Prints the address of a cluster that answers. In a process of its own: Ray may end a process that waits too long."""


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
        """Use the connection of this process; `connect` makes it.

        Args:
            address: host and port of the cluster.
            is_local: whether Ray was started for this connection, on this machine.
            closing: is called at the end, in this order.
        """
        self.address, self.is_local, self._closing = address, is_local, list(closing)
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
        if self._kills:
            import ray

            ray.wait(self._kills, num_returns=len(self._kills), timeout=KILL_S)
            self._kills.clear()
        while self._closing:
            self._closing.pop(0)()

    def nodes(self) -> list[Node]:
        """Return the nodes that are alive."""
        import ray

        nodes: Any = ray.nodes
        return [
            Node(node["NodeID"], node["NodeManagerAddress"], _countable(node["Resources"]))
            for node in nodes()
            if node["Alive"]
        ]

    def require_resources(self, resources: Mapping[str, float], user: str, remedy: str) -> None:
        """Refuse resources that no node has, whatever else uses them.

        Args:
            resources: resource -> amount that one process needs.
            user: the process, for the message: 'an actor'.
            remedy: what to pass instead, as the end of the message.

        Raises:
            ConfigError: with the resources of all nodes.
        """
        nodes = self.nodes()
        if not any(node.has(resources) for node in nodes):
            listed = "; ".join(map(str, nodes)) or "no node"
            raise ConfigError(
                f"{user} needs {resources_text(resources)}, but no node has that. The cluster has {listed}: {remedy}"
            )

    def require_versions(self) -> None:
        """Refuse nodes that have other versions of Python or of `PACKAGES` than this process.

        Raises:
            ConfigError: with the differences, or with the nodes that do not answer, or cannot run a task.
        """
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        ask = _asking_versions()
        asked = {}
        for node in self.nodes():
            there = NodeAffinitySchedulingStrategy(node.id, soft=True)  # elsewhere, if it is lost meanwhile
            task: Any = ray.remote(ask)
            task = task.options(num_cpus=0, max_retries=0, scheduling_strategy=there)
            asked[node.address, node.id] = task.remote(PACKAGES)
        answered, waiting = ray.wait(list(asked.values()), num_returns=len(asked), timeout=VERSIONS_S)
        if waiting:
            silent = ", ".join(address for (address, _), answer in asked.items() if answer in waiting)
            raise ConfigError(
                f"{len(waiting)} of {len(asked)} nodes did not answer within {VERSIONS_S:g} s: {silent}. Look for the "
                "reason in the logs of Ray on these nodes, /tmp/ray/session_latest/logs"
            )
        try:
            theirs = zip(asked, ray.get(answered), strict=True)
        except ray.exceptions.RayError as error:
            raise ConfigError(
                f"the nodes cannot run tasks: {error}. Look at the runtime environment, ray_runtime_env, and at the "
                "logs of Ray on the nodes, /tmp/ray/session_latest/logs"
            ) from error
        differences = (version_differences(versions, address) for (address, _), versions in theirs)
        if found := sorted(set(filter(None, differences))):
            raise ConfigError(f"the nodes have different versions: {'; '.join(found)}. {SAME_VERSIONS}")

    @cached_property
    def own_node(self) -> str:
        """Ray's id of the node of this process."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def kill(self, node: str, pid: int) -> None:
        """Kill a process on a node, with its process group, if the node is there; do not wait for it."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        def kill_group(pid: int) -> None:
            import os
            from contextlib import suppress
            from signal import SIGKILL

            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, SIGKILL)

        there = NodeAffinitySchedulingStrategy(node, soft=False)
        task: Any = ray.remote(kill_group)
        self._kills.append(task.options(num_cpus=0, max_retries=0, scheduling_strategy=there).remote(pid))


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


def resources_text(resources: Mapping[str, float]) -> str:
    """Return resources for a message: '4 CPU, 1 GPU'."""
    return ", ".join(f"{amount:g} {name}" for name, amount in resources.items() if amount) or "no resources"


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


# --- connecting ---------------------------------------------------------------------------------------------


def connect(
    address: str = LOCAL,
    *,
    local_cpus: float = 0,
    local_resources: Mapping[str, float] | None = None,
    object_store_memory: int | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    show_output: bool = True,
) -> Cluster:
    """Connect this process to a cluster; for `LOCAL`, start Ray on this machine.

    A connection that this process already has is used, and stays when the cluster is closed.

    Args:
        address: host:port of a cluster, `AUTO` or `LOCAL`.
        local_cpus: the least number of CPUs of a Ray that is started here, if the machine has fewer cores. Ray counts
            CPUs, it does not reserve them.
        local_resources: custom resources of a Ray that is started here.
        object_store_memory: size of the object store of a Ray that is started here, in bytes; None: Ray's default.
        runtime_env: Ray's runtime environment of all tasks and actors: packages, environment variables, files.
        show_output: whether this process prints what tasks and actors print. Ray's own errors are printed always.

    Raises:
        ConfigError: Ray is not installed, nobody answers, or the versions of Python or Ray differ.
    """
    if find_spec("ray") is None:
        raise ConfigError('Ray is not installed here: run pip install "offbeat[ray]"')
    _require_address(address)
    # Without usage statistics. A call after the end of the connection is an error: it starts no other Ray.
    with _variable("RAY_USAGE_STATS_ENABLED", "0"), _variable("RAY_ENABLE_AUTO_CONNECT", "0"):
        import ray

        if ray.is_initialized():
            return _found(address, runtime_env)
        if address != LOCAL:
            address = _answering(address)
        restore_limit = _open_files_limit()
        if address == LOCAL:
            return _start(local_cpus, local_resources, object_store_memory, runtime_env, show_output, restore_limit)
        _init(address, runtime_env=runtime_env, log_to_driver=show_output)
        return Cluster(address, is_local=False, closing=[ray.shutdown, restore_limit])


def _require_address(address: str) -> None:
    """Refuse an address that is not host:port, `AUTO` or `LOCAL`."""
    if "://" in address:
        raise ConfigError(
            f"{address} is an address of Ray Client, which offbeat does not use, because each message would take a "
            f"detour: start the run on a node of the cluster, and pass {AUTO}"
        )
    host, _, port = address.rpartition(":")
    if address not in (LOCAL, AUTO) and not (host and port.isdecimal()):
        raise ConfigError(
            f"{address!r} is not the address of a Ray cluster: pass HOST:PORT, such as 10.0.0.1:6379, or {AUTO}"
        )


def _found(address: str, runtime_env: Mapping[str, Any] | None) -> Cluster:
    """Return the connection that this process already has."""
    import ray

    own = ray.get_runtime_context().gcs_address
    if address not in (LOCAL, AUTO, own):
        raise ConfigError(
            f"this process is connected to the Ray cluster {own}, not to {address}: call ray.shutdown() first, or pass "
            f"{AUTO}"
        )
    if runtime_env:
        raise ConfigError(
            "ray_runtime_env is given, but this process is already connected to a Ray cluster: pass runtime_env to "
            "your ray.init(), or call ray.shutdown() first"
        )
    return Cluster(own, is_local=False)


def _answering(address: str) -> str:
    """Return the address of a cluster, host:port, which has answered."""
    with subprocess.Popen(  # noqa: S603 - our own code, in the same Python
        [sys.executable, "-c", _PROBE, address], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as probe:
        assert probe.stdout is not None
        probe.stdout.readline()  # Ray is imported: the time of the import does not count
        try:
            printed, errors = probe.communicate(timeout=ANSWER_S)
        except subprocess.TimeoutExpired:
            probe.kill()
            raise _no_answer(address) from None
    if probe.returncode == 0:
        return printed.strip()
    if "none" in errors.split():
        raise ConfigError(
            "there is no Ray cluster on this machine: start one with `ray start --head`, or pass its address, such as "
            "10.0.0.1:6379; or leave the address out to start Ray for this run"
        )
    raise _no_answer(address)


def _no_answer(address: str) -> ConfigError:
    """Return the error for a cluster that does not answer."""
    proxy = ", and that no http_proxy is set for it" if os.environ.get("http_proxy") else ""
    return ConfigError(
        f"no Ray cluster answered at {address} within {ANSWER_S:g} s: check with `ray status --address {address}` that "
        f"the cluster runs, that the port is that of `ray start --head` (6379), that no firewall closes it{proxy}"
    )


def _start(
    cpus: float,
    resources: Mapping[str, float] | None,
    object_store_memory: int | None,
    runtime_env: Mapping[str, Any] | None,
    show_output: bool,
    restore_limit: Callable[[], None],
) -> Cluster:
    """Start Ray on this machine.

    Its files are in a folder of its own, so other programs do not find this Ray, and nothing is left of it. It listens
    only on this machine: Ray runs any code that is sent to it.
    """
    import ray

    folder = tempfile.mkdtemp(prefix="offbeat-", dir="/tmp")  # Ray's sockets need a short path
    watchdog = Watchdog(folder)
    store = None if object_store_memory is None else max(LEAST_STORE, object_store_memory)
    try:
        with _listening_locally():
            _init(
                LOCAL,
                num_cpus=max(usable_cores(), -int(-cpus // 1)),
                resources=dict(resources or {}),
                object_store_memory=store,
                include_dashboard=False,
                runtime_env=runtime_env,
                log_to_driver=show_output,
                _temp_dir=folder,
            )
    except BaseException:
        ray.shutdown()
        watchdog.end()
        raise
    return Cluster(
        ray.get_runtime_context().gcs_address, is_local=True, closing=[ray.shutdown, watchdog.end, restore_limit]
    )


def _init(address: str, *, runtime_env: Mapping[str, Any] | None, **settings: Any) -> None:
    """Call ray.init.

    Raises:
        ConfigError: the versions of Python or Ray differ, or the settings are not valid.
    """
    import ray

    try:
        with _sigterm_handler_kept():
            ray.init(address, logging_level=logging.ERROR, runtime_env=dict(runtime_env or {}) or None, **settings)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"Ray refuses the settings: {error}") from error
    except Exception as error:  # Ray raises this class itself when its processes do not start in time
        raise ConfigError(f"Ray cannot be used at {address}: {error}") from error


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """Set an environment variable, if it is not set, for the duration of this context."""
    if name in os.environ:
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)


@contextmanager
def _listening_locally() -> Iterator[None]:
    """Let a Ray that is started in this context listen only at 127.0.0.1, as it does by default on macOS."""
    from ray._private import ray_constants

    constants: Any = ray_constants
    default = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = default


@contextmanager
def _sigterm_handler_kept() -> Iterator[None]:
    """Restore the handler of SIGTERM, which ray.init replaces in the main thread."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def _open_files_limit() -> Callable[[], None]:
    """Return a function that restores the limit of open files, which ray.init raises."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits)
