"""What messages and weights cost with Ray, within a node and between two nodes of a test cluster.

    python -m benchmarks.ray_costs
    python -m benchmarks.ray_costs --rounds 1 --out /tmp/trial

Both nodes are on this machine, as `ray.cluster_utils.Cluster` makes them: messages between them go through both object
stores and a socket, but over no cable. A message is a call of an actor's method that returns an array, which is then
copied, as the rows of a ticket are copied into their slot. `benchmarks/cluster_simulation.py` reads the results.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from statistics import median
from time import perf_counter, process_time, thread_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import by_turns, describe, machine, markdown_table, publish
from benchmarks.options import new_parser, read_options

SIZES = (1_000, 10_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
"""Bytes of a message, or of the weights."""
REPETITIONS = 30
"""Messages of each size in a round, one after the other; the first tenth warms up."""
IN_FLIGHT, BATCHES = 8, 6
"""Messages that are requested together, and how often in a round."""
PUBLISHED = 8
"""Versions of the weights of each size in a round."""
NODES = ("same", "other")
"""The actor is on the driver's node, or on the other one."""
STORE_BYTES = 400 << 20
Record = dict[str, Any]


class Answerer:
    """Answers the driver from its node."""

    def rows(self, size: int) -> NDArray[np.uint8]:
        """Return an array of `size` bytes."""
        return np.zeros(size, np.uint8)

    def fetch(self, references: list[Any]) -> float:
        """Fetch weights; return the seconds that it took."""
        import ray

        began = perf_counter()
        ray.get(references[0]).sum()
        return perf_counter() - began


@contextmanager
def two_nodes() -> Iterator[dict[str, list[Any]]]:
    """Start a cluster of two nodes; yield two actors on each."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from ray.cluster_utils import Cluster

    node: Record = {"num_cpus": 2, "object_store_memory": STORE_BYTES}
    head = {**node, "resources": {"same": 1}, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        cluster.add_node(**node, resources={"other": 1})
        ray.init(address=cluster.address, logging_level=logging.ERROR, log_to_driver=False)
        remote: Any = ray.remote(Answerer)
        actors = {name: [remote.options(resources={name: 0.1}).remote() for _ in range(2)] for name in NODES}
        ray.get([actor.rows.remote(1) for group in actors.values() for actor in group])
        yield actors
    finally:
        ray.shutdown()
        cluster.shutdown()  # type: ignore[no-untyped-call]


# --- messages -----------------------------------------------------------------------------------------------


def alone(actor: Any, size: int) -> list[float]:
    """Send messages one after the other; return the milliseconds of each round trip."""
    import ray

    times = []
    for _ in range(REPETITIONS):
        began = perf_counter()
        ray.get(actor.rows.remote(size)).copy()
        times.append(1e3 * (perf_counter() - began))
    return times[REPETITIONS // 10 :]


def together(actors: list[Any], size: int) -> Record:
    """Send messages with `IN_FLIGHT` under way; return microseconds per message.

    wall_us: wall time; thread_us, process_us: CPU time of the thread that hands out and copies, and of its process.
    """
    import ray

    slot, count = np.empty(size, np.uint8), IN_FLIGHT * BATCHES
    began = perf_counter(), thread_time(), process_time()
    under_way = [actors[index % len(actors)].rows.remote(size) for index in range(IN_FLIGHT)]
    for index in range(count):
        done, under_way = ray.wait(under_way, num_returns=1)
        slot[:] = ray.get(done[0])
        del done
        if index < count - IN_FLIGHT:
            under_way.append(actors[index % len(actors)].rows.remote(size))
    ended = perf_counter(), thread_time(), process_time()
    wall, thread, process = (1e6 * (after - before) / count for before, after in zip(began, ended, strict=True))
    return {"wall_us": wall, "thread_us": thread, "process_us": process}


# --- weights ------------------------------------------------------------------------------------------------


def weights(actors: list[Any], size: int) -> Record:
    """Publish versions; return the milliseconds of putting one, and of the first and the second fetch on a node."""
    import ray

    put, first, second = [], [], []
    for version in range(PUBLISHED):
        vector = np.full(size // 4, version, np.float32)
        began = perf_counter()
        reference = ray.put(vector)
        put.append(1e3 * (perf_counter() - began))
        first.append(1e3 * ray.get(actors[0].fetch.remote([reference])))
        second.append(1e3 * ray.get(actors[1].fetch.remote([reference])))
        del reference
    return {"put_ms": put[1:], "first_fetch_ms": first[1:], "second_fetch_ms": second[1:]}


# --- results ------------------------------------------------------------------------------------------------


def measure(rounds: int, notify: Callable[[str], None]) -> list[Record]:
    """Measure all sizes on both nodes, by turns, and return a record of each round, node and size."""
    records = []
    with two_nodes() as actors:
        for number, (size, name) in by_turns(list(product(SIZES, NODES)), rounds):
            record: Record = {"round": number, "node": name, "bytes": size, "load": os.getloadavg()[0]}
            record["alone_ms"] = alone(actors[name][0], size)
            records.append(record | together(actors[name], size) | weights(actors[name], size))
            notify(f"round {number} of {rounds}, {size} bytes, {name}: load {record['load']:.1f}")
    return records


def costs(records: list[Record], node: str) -> list[Record]:
    """Return the costs for each size, as medians over all rounds.

    On a machine that other programs use, the lower quartile of the wall times is nearer to the cost than the median.
    """
    found = []
    for size in SIZES:
        own = [record for record in records if record["node"] == node and record["bytes"] == size]
        walls = {name: [ms for record in own for ms in record[name]] for name in own[0] if name.endswith("_ms")}
        cpus = {name: median(record[name] for record in own) for name in ("wall_us", "thread_us", "process_us")}
        found.append({"bytes": size, **{name: float(np.quantile(ms, 0.25)) for name, ms in walls.items()}, **cpus})
    return found


def as_markdown(record: Record) -> str:
    """Return the results as a page with tables."""
    method = (
        f"`python -m benchmarks.ray_costs`, {record['rounds']} rounds, Ray {record['ray']}, two nodes on one machine. "
        "*Round trip*: one message at a time. *Thread* and *process*: CPU time for each message of the driver's thread "
        f"and of all threads of its process, with {IN_FLIGHT} messages under way. *Fetch*: the first on the node, and "
        "the next by another process there. Wall times are lower quartiles, CPU times medians."
    )
    header = [
        *("bytes", "round trip, ms", "thread, us", "process, us", "put of weights, ms"),
        *("first fetch, ms", "next fetch, ms"),
    ]
    parts = ["# Messages and weights with Ray", method, f"{describe(record['machine'])}."]
    loads = [one["load"] for one in record["records"]]
    parts.append(f"Load of the machine: {median(loads):.1f} ({min(loads):.1f} to {max(loads):.1f}).")
    for name in NODES:
        rows = [
            [
                f"{one['bytes']:,}",
                *(f"{one['alone_ms']:.2f}", f"{one['thread_us']:,.0f}", f"{one['process_us']:,.0f}"),
                *(f"{one['put_ms']:.2f}", f"{one['first_fetch_ms']:.2f}", f"{one['second_fetch_ms']:.2f}"),
            ]
            for one in record["costs"][name]
        ]
        title = "## An actor on the driver's node" if name == "same" else "## An actor on the other node"
        parts += [title, markdown_table(header, rows).rstrip()]
    return "\n\n".join(parts)


def main() -> None:
    """Measure, and write the results."""
    parser = new_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = read_options(parser)
    records = measure(options.rounds, lambda text: print(text, flush=True))
    import ray

    record: Record = {
        "machine": machine(),
        "ray": ray.__version__,
        "rounds": options.rounds,
        "costs": {name: costs(records, name) for name in NODES},
        "records": records,
    }
    publish(options.out, "ray-costs", record, as_markdown(record))


if __name__ == "__main__":
    main()
