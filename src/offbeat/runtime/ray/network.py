"""How fast the network of a cluster is, and how many cores it has; for `offbeat bench`."""

from __future__ import annotations

from contextlib import suppress
from statistics import median
from time import perf_counter
from typing import Any

from offbeat.core.process.threads import usable_cores
from offbeat.runtime.message_traffic import Network
from offbeat.runtime.ray.cluster import Cluster, task_on

PROBE_BYTES, PROBES = 16 << 20, 3
"""Bytes of a message that measures the network, and how many are sent."""
MESSAGE_ANSWER_S = 120.0
"""Seconds that such a message may take; the first one waits for a process that Ray starts on the node."""


def network_of(cluster: Cluster) -> Network:
    """Measure how fast bytes of another node arrive, and count cores: on this machine those that can be used."""
    others = [node for node in cluster.nodes() if node.id != cluster.own_node]
    cores = usable_cores() + sum(node.resources.get("CPU", 0.0) for node in others)
    return Network(cores, bytes_per_s(others[0].id) if others else None)


def bytes_per_s(node: str) -> float | None:
    """Measure how fast bytes of another node arrive, in bytes per second; None if the node does not answer."""
    import ray
    from ray.exceptions import RayError

    task, times = task_on(node, _put_bytes), []
    with suppress(RayError):
        for _ in range(PROBES):
            (stored,) = ray.get(task.remote(PROBE_BYTES), timeout=MESSAGE_ANSWER_S)
            began = perf_counter()
            ray.get(stored, timeout=MESSAGE_ANSWER_S)
            times.append(perf_counter() - began)
    return PROBE_BYTES / median(times) if times else None


def _put_bytes(size: int) -> list[Any]:
    """Put an array of `size` bytes into the object store of this node, and return its reference."""
    import numpy as np
    import ray

    return [ray.put(np.zeros(size, np.uint8))]
