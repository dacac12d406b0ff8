"""Actors and inference workers: what they share, in which order actors ask, and how long they wait."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.support.runs import SMALL

from offbeat.config.resolve import resolve
from offbeat.core.errors import Closed
from offbeat.core.types import Array
from offbeat.memory.arena import SharedArena
from offbeat.models.network_arrays import OUTPUTS
from offbeat.runtime.board import Bell
from offbeat.runtime.deadline import Deadline, Span, WorkerDeadline
from offbeat.runtime.inference.batching import ArrivalBatching
from offbeat.runtime.inference.board import NUMBER, InferenceBoard, inference_slabs
from offbeat.runtime.inference.requests import InferenceAccess, RequestedInference
from offbeat.runtime.inference.server import InferenceServer, batching_of
from offbeat.runtime.make_actor import own_inference
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.runtimes import build
from offbeat.workers.link import PolicyWork, Work
from offbeat.workers.own_inference import OwnInference

SERVED: dict[str, Any] = {"runtime": "processes", "inference": "worker", "actors": 2, "unrolls_per_batch": 2}


class Scene(NamedTuple):
    """Both sides of the requests of two actors, in this process."""

    parts: PacedParts
    board: InferenceBoard
    server: InferenceServer
    actors: list[RequestedInference]
    deadlines: list[Deadline]
    closed: Any


@contextmanager
def scene(**settings: Any) -> Iterator[Scene]:
    parts: PacedParts = build(resolve("ppo", "CartPole-v1", flags={**SMALL, **SERVED, **settings}))
    parts.policy.learner.publish(0)
    plan, arena = parts.plan, SharedArena(inference_slabs(parts.plan))
    board, bells, worker_bell = InferenceBoard(arena.arrays, plan), [Bell.make(), Bell.make()], Bell.make()
    closed, deadlines = np.zeros(1, np.int64), [Deadline(np.zeros(2)), Deadline(np.zeros(2))]
    access = InferenceAccess(arena.fd, worker_bell.writer)
    actors = [
        RequestedInference(plan, access, actor, bells[actor], WorkerDeadline(closed, deadlines[actor], plan.runtime))
        for actor in (0, 1)
    ]
    server = InferenceServer(plan, 0, board, [parts.policy.weights], dict(enumerate(bells)))
    try:
        yield Scene(parts, board, server, actors, deadlines, closed)
    finally:
        for bell in (*bells, worker_bell):
            bell.close()
        arena.close()
        parts.close()


def work_of(parts: PacedParts) -> Work:
    return Work(0, 0, 0.0, (PolicyWork(parts.policy.weights.read(0), {}),))


OBSERVATION = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
NO_STATE = np.zeros((4, 0), np.float32)


def ask(inference: Any, seed: int) -> None:
    vector = OBSERVATION * np.float32(seed)
    inference.policies[0].ask(0, vector, {"observation": vector}, NO_STATE)
    inference.submit(0)


def test_a_worker_answers_with_the_bits_of_an_actor_that_computes_its_networks_itself():
    with scene() as made:
        plan = made.parts.plan
        for actor, requested in enumerate(made.actors):
            requested.start_ticket(work_of(made.parts))
            ask(requested, actor + 1)
        while made.server.serve():
            pass
        for actor, requested in enumerate(made.actors):
            requested.wait(0)
            own = own_inference(plan, actor)
            assert own is not None
            own.start_ticket(work_of(made.parts))
            ask(own, actor + 1)
            expected = own.policies[0].answer(0, NO_STATE)
            np.testing.assert_array_equal(requested.policies[0].answer(0, NO_STATE), expected)
            assert np.abs(expected).max() > 0
        assert made.board.served[0][0] == 2


def answer(made: Scene, version: int) -> Array:
    """Return the worker's answer to an actor that acts with a version of the weights."""
    actor = made.actors[0]
    actor.start_ticket(Work(0, version, 0.0, ()))
    ask(actor, 1)
    while made.server.serve():
        pass
    actor.wait(0)
    return actor.policies[0].answer(0, NO_STATE).copy()


def test_a_worker_computes_with_the_version_of_the_weights_that_is_asked_for():
    with scene() as made:
        answers = set()
        for version in range(1, 5):
            made.parts.policy.learner.publish(version)
            vector = made.parts.policy.weights.read(version)
            vector[:] = np.random.default_rng(version).standard_normal(len(vector))
            answers.add(answer(made, version).tobytes())
        assert len(answers) == 4


def test_a_worker_that_is_started_again_answers_the_open_requests_alike():
    with scene() as made:
        made.actors[1].start_ticket(work_of(made.parts))
        ask(made.actors[1], 3)
        made.server.serve()
        answer = made.board.results[0][OUTPUTS][1, 0].copy()
        made.board.answered[1, 0, NUMBER] -= 1  # it died before it had written this
        made.board.results[0][OUTPUTS][:] = np.nan
        again = InferenceServer(made.parts.plan, 0, made.board, [made.parts.policy.weights], {1: Bell(-1, 2)})
        again._bells = made.server._bells
        again.serve()
        np.testing.assert_array_equal(made.board.results[0][OUTPUTS][1, 0], answer)


def test_an_actor_that_waits_for_inference_has_a_deadline_beyond_that_of_the_worker_and_ends_with_the_run():
    with scene(stall_timeout_s=40) as made:
        actor = made.actors[0]
        actor.start_ticket(work_of(made.parts))
        ask(actor, 1)
        ended: list[BaseException] = []

        def wait() -> None:
            try:
                actor.wait(0)
            except Closed as error:
                ended.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        deadline = made.deadlines[0]
        while not deadline.time:
            thread.join(0.01)
        assert "waited for an inference worker" in deadline.reason
        first = deadline.time
        made.board.starts[0][0] += 1  # the worker was started again
        while deadline.time == first:
            thread.join(0.01)
        made.closed[0] = 1
        thread.join(30)
        assert ended
        # a worker that hangs is killed after 40 s, has 100 s to start, and 40 s for the answer
        limits = WorkerDeadline(made.closed, deadline, made.parts.plan.runtime)
        assert limits._inference_s == 180
        assert Span.INFERENCE.name == "INFERENCE"


def test_an_actor_that_has_an_answer_has_the_deadline_for_work_again():
    with scene(stall_timeout_s=40) as made:
        actor, deadline = made.actors[0], made.deadlines[0]
        actor.start_ticket(work_of(made.parts))
        ask(actor, 1)
        deadline.set(Span.INFERENCE, 180.0)
        while made.server.serve():
            pass
        actor.wait(0)
        assert deadline.span == Span.WORK


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_an_actor_asks_for_one_env_group_before_it_takes_the_answer_of_the_group_before(begun, monkeypatch, groups):
    said: list[str] = []
    monkeypatch.setattr(OwnInference, "submit", lambda _self, group: said.append(f"ask {group}"))
    monkeypatch.setattr(OwnInference, "wait", lambda _self, group: said.append(f"answer {group}"))
    settings: dict[str, Any] = {"inference": "worker", "env_groups": groups, "unroll_length": 2, "minibatch_size": 8}
    _, acting = begun("CartPole-v1", **settings)
    acting.wait(1)
    asked = [f"{word} {group}" for _ in range(2) for group in range(groups) for word in ("ask", "answer")]
    if groups > 1:  # each answer changes places with the question after it
        for index in range(1, len(asked) - 1, 2):
            asked[index], asked[index + 1] = asked[index + 1], asked[index]
    assert said == asked


def test_an_arrival_batch_expects_requests_of_at_most_two_env_groups_of_an_actor():
    with scene(inference_batching="arrival", env_groups=4, max_lag=1) as made:
        batching = batching_of(made.parts.plan, 0)
        assert isinstance(batching, ArrivalBatching)
        assert batching.possible == 2 * 2


WITHOUT_TORCH = """
import pickle, sys
plan = pickle.load(sys.stdin.buffer)
import offbeat.runtime.actor_process
from offbeat.runtime.make_actor import make_actor
from offbeat.runtime.inference.board import inference_slabs
class Requests:
    policies = [None]
plan.slabs(), inference_slabs(plan)
make_actor(plan, 0, 0, inference=Requests()).close()
assert "torch" not in sys.modules
"""


def test_an_actor_with_an_inference_worker_does_not_import_torch():
    parts: PacedParts = build(resolve("ppo", "offbeat/Pixels-v0", flags={**SMALL, **SERVED}))
    assert not parts.policy.spec.plain
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH], input=pickle.dumps(parts.plan), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
