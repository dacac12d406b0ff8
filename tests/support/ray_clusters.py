"""A Ray cluster of two nodes on this machine, for tests. Each node has one CPU; the second has the resource `other`.

Tests with the marker `ray` share one, the fixture `nodes` of conftest.py: a start takes seven seconds of CPU time.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support import ray_worker, thorough
from tests.support.warm import REPOSITORY, warm_python

from offbeat.runtime.ray.cluster import Cluster
from offbeat.runtime.ray.connecting import connect, sigterm_handler_kept

STORE = 80 << 20
"""Size of a node's object store, in bytes: the smallest that Ray starts."""
NODES_S = 120
"""Seconds until Ray lists the nodes that there are: it lists one that was lost for some seconds more."""
LOST_NODES = {"RAY_health_check_initial_delay_ms": "1000", "RAY_health_check_period_ms": "300"}
"""Let Ray notice a killed node after two seconds instead of fifteen. A node that answers late, because the machine is
busy, is not lost: each of its answers may still take ten seconds."""
WORKERS_USE = (
    *("asyncio", "filelock", "google.protobuf.descriptor_pool", "google.protobuf.timestamp_pb2", "jsonschema"),
    *("requests", "tqdm", "wcwidth", "yaml", "offbeat.runtime.ray.remote_actor", "offbeat.experiments.node_job"),
)
"""What a worker finds loaded. Ray itself is loaded then: it reads the id of the job from the environment at once."""
LESS_WORK = {
    "RAY_idle_worker_killing_time_threshold_ms": "600000",
    "RAY_task_events_report_interval_ms": "0",
    "RAY_enable_metrics_collection": "0",
}
"""Let a node keep a worker for the next tasks of its driver, which else would end after a second; and let Ray collect
nothing for its dashboard."""
_SHARED = ExitStack()
"""Ends the cluster that tests share."""
_STARTED: list[Any] = []
"""This cluster, while there is one."""
_CONNECTION = ExitStack()
"""Ends the connection of this process to it."""
_CONNECTED: list[Cluster] = []
"""This connection, while there is one."""


def shared_nodes() -> Any:
    """Return the cluster that tests share, without nodes that were lost; a new one if there is none that works."""
    pytest.importorskip("ray", reason="Ray is not installed")
    if _STARTED:
        try:
            _STARTED[0].wait_for_nodes(timeout=NODES_S)
        except (TimeoutError, RuntimeError):
            end_shared_nodes()
    if not _STARTED:
        more: dict[str, Any] = {} if thorough.THOROUGH else _SHARED.enter_context(forked_workers())
        _STARTED.append(_SHARED.enter_context(two_nodes(**more)))
        _SHARED.callback(_STARTED.clear)
    return _STARTED[0]


def end_shared_nodes() -> None:
    """End the cluster that tests share, if it was started."""
    disconnect()
    _SHARED.close()


def shared_connection() -> Cluster:
    """Return the only connection of this process to the cluster that tests share: each starts workers of its own."""
    if not _CONNECTED:
        _CONNECTED.append(_CONNECTION.enter_context(connect(shared_nodes().address)))
        _CONNECTION.callback(_CONNECTED.clear)
    return _CONNECTED[0]


def disconnect() -> None:
    """End the connection of this process, if there is one."""
    _CONNECTION.close()


@contextmanager
def forked_workers() -> Iterator[dict[str, str]]:
    """Yield an argument of nodes whose workers are forked: their start takes half of the CPU time.

    The nodes must be started and ended while this is entered.
    """
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = f"{folder}/workers"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as requests:
            requests.bind(path)
            warm_python().start_another(WORKERS_USE, requests)
            patch.setenv(ray_worker.VARIABLE, path)
            try:
                yield {"setup_worker_path": ray_worker.__file__}
            finally:
                requests.sendto(b"", path)  # which ends the Python that forks


@contextmanager
def two_nodes(cpus: int = 1, **more: Any) -> Iterator[Any]:
    """Start the cluster, with `cpus` CPUs a node, and end it afterwards.

    Args:
        cpus: CPUs of each node.
        more: more arguments of all nodes.

    Yields:
        A `ray.cluster_utils.Cluster`; its `address` is host:port, and its `add_node` has the arguments of these nodes.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from ray.cluster_utils import Cluster as Nodes

    nodes: Any = Nodes()
    node = {"num_cpus": cpus, "object_store_memory": STORE, "include_log_monitor": False, **more}
    nodes.add_node = _with_tests(partial(nodes.add_node, **node))
    try:
        with _one_start_at_a_time(), sigterm_handler_kept():
            nodes.add_node(include_dashboard=False, no_monitor=True)  # no autoscaler
            nodes.add_node(resources={"other": 1})
        yield nodes
    finally:
        ray.shutdown()
        nodes.shutdown()


def _with_tests(add_node: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that adds a node whose workers can import the modules of tests."""

    def add(**more: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(REPOSITORY), prepend=os.pathsep)
            for name, milliseconds in (LOST_NODES | LESS_WORK).items():
                patch.setenv(name, milliseconds)
            return add_node(**more)

    return add


def processes_of_ray(folder: Path) -> list[str]:
    """Return the command lines of the processes with an open file in the folder of a Ray."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if any(str(file.readlink()).startswith(f"{folder}/") for file in (path / "fd").iterdir()):
                found.append((path / "cmdline").read_bytes().decode())
    return found


@contextmanager
def _one_start_at_a_time() -> Iterator[None]:
    """Wait until no other process of the tests starts a cluster: Ray gives a node 30 seconds, whatever else runs."""
    with (Path(tempfile.gettempdir()) / f"offbeat-tests-ray-{os.getuid()}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
