"""What an inference worker does: takes requests, computes the networks of all policies for them, and answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from offbeat.memory.weights import Weights
from offbeat.models.group_network import GroupNetwork
from offbeat.runtime.board import POLL_INTERVAL_S, Bell
from offbeat.runtime.inference.batching import ArrivalBatching, Batching, FixedBatching, Request, RequestBatch
from offbeat.runtime.inference.board import NUMBER, VERSION, InferenceBoard
from offbeat.runtime.plan import Plan, PolicyPlan
from offbeat.workers.inference import rows_of

TIMEOUT_MS = 2.0
"""The default of `inference_timeout_ms`."""
VERSIONS = 2
"""Versions of the weights that a worker keeps loaded: actors at two neighbouring learning steps ask in turn."""


class ServedPolicy:
    """The network of one policy, with the last versions of its weights."""

    def __init__(self, policy: PolicyPlan, weights: Weights, rows: int, positions: int, device: str) -> None:
        """Make the networks.

        Args:
            policy: the plan of the policy.
            weights: its published weights.
            rows: its rows in a request.
            positions: largest number of requests in a batch.
            device: torch device of the networks.
        """
        self.rows, self._weights = rows, weights
        versions = min(VERSIONS, policy.memory_shape.pace.versions)
        self._networks = [GroupNetwork(policy.spec, positions * rows, device) for _ in range(versions)]
        self._loaded = [-1] * versions

    def network(self, version: int) -> GroupNetwork:
        """Return the network with a version of the weights."""
        index = version % len(self._networks)
        if self._loaded[index] != version:
            self._networks[index].load(self._weights.read(version))
            self._loaded[index] = version
        return self._networks[index]


class InferenceServer:
    """Serves the requests of one inference worker. It keeps nothing that a new worker would not have."""

    def __init__(
        self,
        plan: Plan,
        worker: int,
        board: InferenceBoard,
        weights: Sequence[Weights],
        bells: Mapping[int, Bell],
    ) -> None:
        """Make the server of a worker.

        Args:
            plan: the plan of the actors.
            worker: index of the worker.
            board: the board, with the requests.
            weights: the published weights of each policy.
            bells: the bell of each actor that it serves.
        """
        self._board, self._worker, self._bells = board, worker, bells
        self._members = list(plan.inference_groups.members(worker))
        self._own: NDArray[np.intp] = np.array(self._members)
        self._batching = batching_of(plan, worker)
        self._policies = [
            ServedPolicy(
                policy,
                own,
                rows_of(policy.env_spec.columns, plan.runtime.env_groups),
                self._batching.positions,
                plan.inference_device(worker),
            )
            for policy, own in zip(plan.policies, weights, strict=True)
        ]

    def serve(self) -> float:
        """Compute the next batch, if it is due; return the seconds until `serve` should be called again."""
        requests = self._requests()
        if not requests:
            return POLL_INTERVAL_S
        started = monotonic()
        batch = self._batching.next(requests, started)
        if not isinstance(batch, RequestBatch):
            return batch
        self._compute(batch)
        seconds = monotonic() - started
        self._batching.computed(seconds)
        self._board.served[self._worker][0] += len(batch.requests)
        self._board.busy[self._worker][0] += seconds
        self._board.next[self._worker][0] += 1
        return 0.0

    def _requests(self) -> list[Request]:
        """Return the requests that are not answered."""
        asked, answered = self._board.asked, self._board.answered
        is_open = asked[self._own, :, NUMBER] != answered[self._own, :, NUMBER]
        found = []
        for member, group in np.argwhere(is_open).tolist():
            actor = self._members[member]
            number = int(asked[actor, group, NUMBER])  # first: the actor writes it last
            found.append(Request(actor, group, number, int(asked[actor, group, VERSION])))
        return found

    def _compute(self, batch: RequestBatch) -> None:
        """Compute the networks of all policies, and answer."""
        for policy, inputs, results in zip(self._policies, self._board.inputs, self._board.results, strict=True):
            network, rows = policy.network(batch.version), policy.rows
            for request, position in batch.requests:
                for name, array in inputs.items():
                    network.inputs[name][position * rows : (position + 1) * rows] = array[request.actor, request.group]
            for name, values in network.forward(batch.size * rows).items():
                for request, position in batch.requests:
                    results[name][request.actor, request.group] = values[position * rows : (position + 1) * rows]
        for request, _ in batch.requests:
            self._board.answered[request.actor, request.group, NUMBER] = request.number
            self._bells[request.actor].ring()


def batching_of(plan: Plan, worker: int) -> Batching:
    """Return how a worker chooses its batches."""
    runtime, groups = plan.runtime, plan.inference_groups
    if runtime.inference_batching != "arrival":
        return FixedBatching(groups, worker)
    possible = len(groups.members(worker)) * min(2, runtime.env_groups)  # an actor asks for one group ahead
    timeout = TIMEOUT_MS if runtime.inference_timeout_ms is None else runtime.inference_timeout_ms
    return ArrivalBatching(min(possible, runtime.inference_max_requests or possible), possible, timeout / 1000)
