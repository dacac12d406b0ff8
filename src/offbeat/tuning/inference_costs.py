"""What the networks cost in actors and in inference workers, and which of the two lets a run be faster.

An inference worker computes larger batches, and an actor can step one env group while it waits for another. But each
request costs time in the actor and in the worker, and a worker needs a core, or a GPU, of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from offbeat.config.inference import KEYS
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.seeding import stream
from offbeat.core.types import F32
from offbeat.memory.arena import SharedArena, private_arena
from offbeat.memory.weights import Weights, weight_slabs
from offbeat.metrics.speed_model import SpeedModel
from offbeat.models.acting import make_policy
from offbeat.runtime.board import Bell
from offbeat.runtime.deadline import ROW, Deadline, WorkerDeadline
from offbeat.runtime.inference.board import InferenceBoard, inference_slabs
from offbeat.runtime.inference.requests import InferenceAccess, RequestedInference
from offbeat.runtime.inference.server import InferenceServer
from offbeat.runtime.plan import Plan, PolicyPlan
from offbeat.tuning.costs import Cost, Meter, counted_for
from offbeat.workers.inference import rows_of
from offbeat.workers.link import PolicyWork, Work

REPETITIONS = 8
"""Number of forward passes between two readings of the clocks."""
WORTH = 1.05
"""Smallest ratio of two speeds that counts as a difference."""


@dataclass(frozen=True)
class InferenceCosts:
    """Costs of the networks of all policies, in microseconds per env step."""

    in_actor: Cost
    """Computed in an actor, for one env group at a time."""
    request: Cost
    """In the actor: writing requests, ringing, and taking answers. The wait is not included."""
    batch: Cost
    """In an inference worker: reading requests, computing full batches, and answering."""
    rows: int
    """Rows of such a batch, of all policies together."""
    env_groups: int
    """Env groups of an actor with an inference worker."""
    workers: int

    def in_worker(self, model: SpeedModel) -> SpeedModel:
        """Return the model of a run with inference workers, from that of the run whose actors compute the networks."""
        topology = replace(model.topology, inference_workers=self.workers, env_groups=self.env_groups)
        return replace(
            model,
            topology=topology,
            acting=max(0.0, model.acting - self.in_actor.time) + self.request.time,
            acting_cpu=max(0.0, model.acting_cpu - self.in_actor.cpu) + self.request.cpu + self.batch.cpu,
            inference=self.batch.time,
        )

    def compare(self, model: SpeedModel) -> InferenceComparison:
        """Return the expected speeds; `model`: that of the run whose actors compute the networks."""
        return InferenceComparison(self, model, self.in_worker(model))


class InferenceComparison(NamedTuple):
    """Inference in actors and in inference workers, expected from the costs."""

    costs: InferenceCosts
    actor: SpeedModel
    worker: SpeedModel

    @property
    def gain(self) -> float:
        """How many times faster the run may be with inference workers; below 1 they cost speed."""
        return self.worker.attainable_sps / self.actor.attainable_sps

    @property
    def why(self) -> str:
        """The costs and the limits that follow from them."""
        costs = self.costs
        return (
            f"the network takes {costs.in_actor.time:.1f} us per env step in an actor, and {costs.batch.time:.1f} us "
            f"in a worker, in batches of {costs.rows} rows, where requests cost the actor {costs.request.time:.1f} "
            f"us; at most {self.actor.attainable_sps:,.0f} env steps/s in actors (bound by the {self.actor.bound_by}), "
            f"{self.worker.attainable_sps:,.0f} in workers (bound by the {self.worker.bound_by})"
        )


def gain_text(gain: float) -> str:
    """Return whether inference workers pay. `gain`: how many times faster the run is with them."""
    if gain > WORTH:
        return f"inference workers pay, {gain:.2f}x"
    if gain < 1 / WORTH:
        return f"inference workers do not pay, {gain:.2f}x"
    return "inference workers make no difference"


def with_workers(runtime: RuntimeConfig) -> RuntimeConfig:
    """Return the settings with inference workers; if they have none, in two env groups, unless there are more."""
    if runtime.uses_inference:
        return runtime
    groups = 2 if runtime.env_groups == 1 and runtime.envs_per_actor % 2 == 0 else runtime.env_groups
    return replace(runtime, inference="worker", env_groups=groups)


def without_workers(runtime: RuntimeConfig) -> RuntimeConfig:
    """Return the settings without inference workers."""
    changes: dict[str, Any] = {"inference": "actor", **dict.fromkeys(KEYS)}
    return replace(runtime, **changes)


def inference_costs(plan: Plan, weights: Sequence[F32], seconds: float) -> InferenceCosts:
    """Measure the networks in an actor, and in an inference worker that gets the requests of all its actors.

    Args:
        plan: the plan of the actors.
        weights: the published weights of each policy.
        seconds: duration of each of the two measurements.
    """
    served = replace(plan, runtime=replace(with_workers(plan.runtime), inference_batching=None))
    request, batch = _served_costs(served, weights, seconds)
    groups, members = served.runtime.env_groups, len(served.inference_groups.members(0))
    return InferenceCosts(
        in_actor=_actor_cost(plan, weights, seconds),
        request=request,
        batch=batch,
        rows=members * sum(rows_of(policy.env_spec.columns, groups) for policy in served.policies),
        env_groups=groups,
        workers=served.inference_groups.workers,
    )


class _Inputs(NamedTuple):
    """Random inputs of a network, for the columns of one env group. Whole numbers are 0, which each choice can be."""

    inputs: F32
    observation: dict[str, Any]
    state: F32


def _inputs(policy: PolicyPlan, env_groups: int) -> _Inputs:
    rows, random, spec = rows_of(policy.env_spec.columns, env_groups), stream(0, "measure"), policy.spec
    observation = {leaf.name: random.random((rows, *leaf.stacked_shape)).astype(leaf.dtype) for leaf in spec.encoded}
    inputs = random.random((rows, spec.inputs), np.float32)
    return _Inputs(inputs, observation, np.zeros((rows, spec.state_size), np.float32))


def _actor_cost(plan: Plan, weights: Sequence[F32], seconds: float) -> Cost:
    """Measure the networks of one env group in an actor, one policy after the other."""
    networks = []
    for policy, vector in zip(plan.policies, weights, strict=True):
        acting = make_policy(policy.spec)
        acting.load(vector)
        assert acting.network is not None
        networks.append((acting.network, _inputs(policy, plan.runtime.env_groups)))
    meter, repeated = Meter(), 0
    for network, inputs in networks:
        network.forward(*inputs)  # the first call is slower
    for _ in counted_for(seconds):
        with meter:  # several at once: the clocks take as long as a small network
            for _ in range(REPETITIONS):
                for network, inputs in networks:
                    network.forward(*inputs)
        repeated += REPETITIONS
    return meter.cost(repeated * rows_of(plan.runtime.envs_per_actor, plan.runtime.env_groups))


def _served_costs(plan: Plan, weights: Sequence[F32], seconds: float) -> tuple[Cost, Cost]:
    """Measure requests of all actors of an inference worker, in the actors and in the worker."""
    with _Served(plan, weights) as served:
        _measure_round(served, Meter(), Meter())  # the first one is slower
        request, batch, rounds = Meter(), Meter(), 0
        for _ in counted_for(seconds):
            _measure_round(served, request, batch)
            rounds += 1
    env_steps = rounds * len(served.members) * rows_of(plan.runtime.envs_per_actor, plan.runtime.env_groups)
    return request.cost(env_steps), batch.cost(env_steps)


def _measure_round(served: _Served, request: Meter, batch: Meter) -> None:
    """Measure one request of each actor, and the batch."""
    with request:
        served.ask()
    with batch:
        served.answer()
    with request:
        served.take_answers()


class _Served:
    """The actors of the first inference worker, with random inputs, and the worker. All are in this process."""

    def __init__(self, plan: Plan, weights: Sequence[F32]) -> None:
        self.members = list(plan.inference_groups.members(0))
        """Indices of the actors."""
        self._inputs = [_inputs(policy, plan.runtime.env_groups) for policy in plan.policies]
        with ExitStack() as made:
            arena = SharedArena(inference_slabs(plan))
            made.callback(arena.close)
            self._bells = {actor: Bell.make() for actor in self.members}
            self._worker_bell = Bell.make()
            for bell in (*self._bells.values(), self._worker_bell):
                made.callback(bell.close)
            deadline = WorkerDeadline(np.zeros(1, np.int64), Deadline(np.zeros(ROW)), plan.runtime)
            access = InferenceAccess(arena.fd, self._worker_bell.writer)
            self._actors = [
                RequestedInference(plan, access, actor, bell, deadline) for actor, bell in self._bells.items()
            ]
            board, published = InferenceBoard(arena.arrays, plan), [_published(vector) for vector in weights]
            self._server = InferenceServer(plan, 0, board, published, self._bells)
            work = Work(0, 0, 0.0, tuple(PolicyWork(vector, {}) for vector in weights))
            for actor in self._actors:
                actor.start_ticket(work)
            self._closing = made.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def ask(self) -> None:
        """Write the requests of all actors, and ring."""
        for actor in self._actors:
            for policy, own in zip(actor.policies, self._inputs, strict=True):
                policy.ask(0, *own)
            actor.submit(0)

    def answer(self) -> None:
        """Compute the batch in the worker."""
        self._worker_bell.sleep(0.0)
        self._server.serve()

    def take_answers(self) -> None:
        """Read the answers in all actors."""
        for actor, bell in zip(self._actors, self._bells.values(), strict=True):
            bell.sleep(0.0)
            actor.wait(0)
            for policy, own in zip(actor.policies, self._inputs, strict=True):
                policy.answer(0, own.state)


def _published(vector: F32) -> Weights:
    """Return published weights, as version 0."""
    weights = Weights(private_arena(weight_slabs(len(vector), 1)))
    weights.open(0)[:] = vector
    weights.commit(0)
    return weights
