"""A Ray cluster of two nodes on this machine, for tests. Each node has one CPU; the second has the resource `other`."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from offbeat.runtime.ray.connecting import connect, sigterm_handler_kept

STORE = 80 << 20
"""Size of a node's object store, in bytes: the smallest that Ray starts."""


@contextmanager
def connected(**node: Any) -> Iterator[Any]:
    """Start the cluster and connect this process to it; runs then use this connection.

    Yields:
        As `two_nodes`.
    """
    with two_nodes(**node) as nodes, connect(nodes.address):
        yield nodes


@contextmanager
def two_nodes(cpus: int = 1) -> Iterator[Any]:
    """Start the cluster, with `cpus` CPUs a node, and end it afterwards; skip the test where Ray is missing.

    Yields:
        A `ray.cluster_utils.Cluster`; its `address` is host:port.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    from ray.cluster_utils import Cluster

    node: dict[str, Any] = {"num_cpus": cpus, "object_store_memory": STORE}
    nodes = Cluster()
    try:
        with _one_start_at_a_time(), sigterm_handler_kept():
            nodes.add_node(**node, include_dashboard=False, no_monitor=True)  # no autoscaler
            nodes.add_node(**node, resources={"other": 1})
        yield nodes
    finally:
        ray.shutdown()
        nodes.shutdown()


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
