"""How a lock-free worker starts: with which weights it acts, and from which training progress. Without processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
import pytest

from offbeat.config.config import Config
from offbeat.config.resolve import resolve
from offbeat.metrics.counters import WorkerCounters
from offbeat.runtime import assembly
from offbeat.runtime.hogwild import worker_pool, worker_process
from offbeat.runtime.hogwild.parts import HogwildParts, build_hogwild
from offbeat.runtime.hogwild.worker_pool import WorkerPool
from offbeat.runtime.hogwild.worker_process import Worker, WorkerLaunch, WorkerState
from offbeat.runtime.reporting import Reporting

FLAGS: dict[str, Any] = {"runtime": "hogwild", "workers": 2, "steps": 1000, "hidden_sizes": (3,), "unroll_length": 4}
MakeWorker = Callable[..., tuple[HogwildParts, Worker]]


@pytest.fixture
def make_worker(monkeypatch) -> Iterator[MakeWorker]:
    """Return a function that makes a worker of a run in this process."""
    launches: list[WorkerLaunch] = []
    monkeypatch.setattr(worker_pool, "start_worker", lambda _module, launch, *_: launches.append(launch))
    with ExitStack() as made:

        def make(index: int = 0, **flags: Any) -> tuple[HogwildParts, Worker]:
            config = resolve("a2c", "CartPole-v1", flags=FLAGS | flags)
            parts = made.enter_context(closing(build_hogwild(config, print)))
            pool = made.enter_context(closing(WorkerPool(parts, Reporting(lambda *_: None, lambda *_: None))))
            pool._states[:], pool._counters_at_start[:] = (None, None), (WorkerCounters(), WorkerCounters())
            pool._start(index, 0)
            return parts, made.enter_context(closing(Worker(launches[-1], lambda _kind, _content: None)))

        yield make


def test_the_learner_of_each_worker_has_the_config_of_this_worker(make_worker, monkeypatch):
    learned_with: list[Config] = []

    def learner_of(config: Config, *more: Any) -> Any:
        learned_with.append(config)
        return assembly.learner_of(config, *more)

    monkeypatch.setattr(worker_process, "learner_of", learner_of)
    for index in range(2):
        parts, _ = make_worker(index)
        assert learned_with[-1] == parts.config.of_worker(index)
    assert learned_with[0].run.seed != learned_with[1].run.seed


@pytest.mark.parametrize(("hogwild", "newest"), [("shared", True), ("synced", False)])
def test_a_worker_that_learns_on_the_shared_weights_acts_with_the_newest_ones(make_worker, hogwild, newest):
    parts, worker = make_worker(hogwild=hogwild)
    worker.start(None)
    equal_actions = {name: np.zeros_like(array) for name, array in parts.storage.learned().items()}
    parts.storage.load(equal_actions)  # as another worker does
    work = worker._link.next()
    worker._actor.act(work)
    probabilities = np.exp(work.policies[0].slot["behavior_log_prob"][: FLAGS["unroll_length"]])
    assert np.allclose(probabilities, 0.5, rtol=1e-6) == newest


@pytest.mark.parametrize(("env_steps", "progress"), [(200, 0.5), (900, 1.0)])
def test_a_restarted_worker_continues_with_the_training_progress_of_all_workers(
    make_worker, monkeypatch, env_steps, progress
):
    parts, worker = make_worker()
    began: list[float] = []
    monkeypatch.setattr(worker_process, "start_actor", lambda *arguments: began.append(arguments[-1]))
    parts.board.set_counters(0, WorkerCounters(env_steps=300, learning_steps=3))
    parts.board.set_counters(1, WorkerCounters(env_steps=env_steps, learning_steps=2))
    worker.start(None)
    assert (began, worker._learner.progress) == ([progress], progress)


def test_a_worker_that_continues_from_a_state_has_the_training_progress_of_its_weights(make_worker, monkeypatch):
    parts, worker = make_worker()
    began: list[float] = []
    monkeypatch.setattr(worker_process, "start_actor", lambda *arguments: began.append(arguments[-1]))
    parts.board.set_counters(1, WorkerCounters(env_steps=800, learning_steps=8))
    worker.start(WorkerState(worker._learner.state() | {"progress": 0.25}, None, {}))
    assert (began, worker._learner.progress) == ([0.25], 0.25)
