"""A Ray cluster of two nodes on this machine, for tests. Each node has one CPU; the second has the resource `other`."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

STORE = 80 << 20
"""Size of a node's object store, in bytes: the smallest that Ray starts."""


@contextmanager
def connected(**node: Any) -> Iterator[Any]:
    """Start the cluster and connect this process to it; runs then use this connection.

    Yields:
        As `two_nodes`.
    """
    with two_nodes(**node) as nodes:
        import ray

        ray.init(nodes.address, logging_level=logging.ERROR)
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
    nodes = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        nodes.add_node(**node, resources={"other": 1})
        yield nodes
    finally:
        ray.shutdown()
        nodes.shutdown()
