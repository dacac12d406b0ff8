"""What messages to actors on a cluster cost, how many actors one learner can feed, and whether one machine would do.

`processes` on one machine needs no messages. A cluster pays if it has more cores than one machine, and if the learner,
the thread that handles the messages, and the network can keep up with the actors on them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from offbeat.config.runtimes import runtime_entry
from offbeat.metrics.speed_model import SpeedModel
from offbeat.runtime.message_traffic import MessageTraffic, Network
from offbeat.tuning.inference_costs import WORTH

MOST_CORES = 1024
"""Cores of the largest machine that is considered."""


@dataclass(frozen=True)
class MessageCosts:
    """Costs of messages, per env step."""

    row_bytes: float
    """Bytes of rows that the learner's process receives."""
    weight_bytes: float
    """Bytes of weights that all nodes together fetch."""
    thread: float
    """CPU time of the thread that hands out tickets and receives their rows, in microseconds."""
    round_trip: float
    """Time that an actor waits for messages, in microseconds."""
    network: Network

    @classmethod
    def from_traffic(cls, traffic: MessageTraffic, network: Network) -> MessageCosts:
        """Return the costs of the messages of a period, in which rows with env steps were received."""
        env_steps = traffic.env_steps
        return cls(
            traffic.row_bytes / env_steps,
            traffic.weight_bytes / env_steps,
            1e6 * traffic.thread_s / env_steps,
            1e6 * traffic.waited_s / env_steps,
            network,
        )

    @property
    def transmission(self) -> float:
        """Time in which the learner's network connection sends or receives, in microseconds; it does both at once."""
        if self.network.bytes_per_s is None:
            return 0.0
        return 1e6 * max(self.row_bytes, self.weight_bytes) / self.network.bytes_per_s

    def on_cluster(self, without: SpeedModel) -> SpeedModel:
        """Return the model of the run on its cluster, from its model without messages."""
        topology = replace(without.topology, cores=max(1, int(self.network.cores)))
        return replace(
            without, topology=topology, messages=self.thread, network=self.transmission, round_trip=self.round_trip
        )


def message_results(costs: MessageCosts, cluster: SpeedModel, without: SpeedModel) -> dict[str, Any]:
    """Return what `offbeat bench --json` prints of messages.

    Args:
        costs: of messages.
        cluster: the model of the run on its cluster.
        without: its model without messages, with the cores of this machine.
    """
    return {
        "row_bytes_per_env_step": costs.row_bytes,
        "weight_bytes_per_env_step": costs.weight_bytes,
        "c_message_us": costs.thread,
        "message_wait_us": costs.round_trip,
        "network_bytes_per_s": costs.network.bytes_per_s,
        "actors_fed": cluster.actors_fed,
        "messages": feeding_text(cluster, costs),
        "one_machine": one_machine_text(cluster, without),
    }


def feeding_text(cluster: SpeedModel, costs: MessageCosts) -> str:
    """Return how many actors one learner can feed, with the arithmetic."""
    actor = cluster.acting + cluster.round_trip
    waits = f"of which it waits {cluster.round_trip:.1f} us for messages"
    times = [
        f"an actor takes {actor:.1f} us per env step, {waits}",
        f"the learner {cluster.learning:.1f}",
        f"messages {cluster.messages:.1f}",
    ]
    if costs.network.bytes_per_s is not None:
        times.append(f"the network {cluster.network:.2f} ({costs.network.bytes_per_s / 1e6:,.0f} MB/s)")
    return (
        f"messages have {costs.row_bytes:,.0f} bytes of rows and {costs.weight_bytes:,.0f} of weights per env step; "
        f"{', '.join(times)}: one learner can feed {actor:.1f} / "
        f"{actor / cluster.actors_fed:.1f} = {cluster.actors_fed:,.1f} actors"
    )


def one_machine_text(cluster: SpeedModel, without: SpeedModel) -> str:
    """Return whether processes on one machine, an actor for each core, would be as fast as the cluster.

    Args:
        cluster: the model of the run on its cluster.
        without: its model without messages, with the cores of this machine.
    """
    processes = runtime_entry("processes")

    def reaches(count: int) -> float:
        topology = replace(without.topology, runtime=processes, actors=count, cores=count)
        return replace(without, topology=topology).attainable_sps

    cores, there = without.topology.cores, cluster.attainable_sps
    enough = next((count for count in range(1, MOST_CORES + 1) if WORTH * reaches(count) >= there), None)
    speeds = (
        f"at most {there:,.0f} env steps/s on this cluster, {reaches(cores):,.0f} with --runtime {processes.name} and "
        f"an actor for each of the {cores} cores of this machine"
    )
    if enough is None:
        return f"{speeds}; no machine with up to {MOST_CORES:,} cores would be as fast as the cluster"
    if enough <= cores:
        return f"{speeds}: take --runtime {processes.name}"
    return f"{speeds}; it would be as fast as the cluster on a machine with {enough:,} cores"
