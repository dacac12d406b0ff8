"""What the pool of lock-free workers remembers of its workers, without processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from offbeat.config.resolve import resolve
from offbeat.metrics.counters import WorkerCounters
from offbeat.runtime.hogwild import worker_pool
from offbeat.runtime.hogwild.parts import HogwildParts, build_hogwild
from offbeat.runtime.hogwild.worker_pool import WorkerPool
from offbeat.runtime.hogwild.worker_process import WorkerLaunch, WorkerState
from offbeat.runtime.reporting import Reporting

FLAGS = {"runtime": "hogwild", "workers": 2, "hidden_sizes": (3,)}


@pytest.fixture(scope="module")
def parts() -> Iterator[HogwildParts]:
    with closing(build_hogwild(resolve("a2c", "CartPole-v1", flags=FLAGS), print)) as made:
        yield made


@pytest.fixture
def pool(parts) -> Iterator[WorkerPool]:
    ignore = Reporting(lambda *_: None, lambda *_: None)
    with closing(WorkerPool(parts, ignore)) as made:
        yield made


def test_each_worker_is_started_with_its_own_plan_and_seed(pool, parts, monkeypatch):
    launches: list[WorkerLaunch] = []
    monkeypatch.setattr(worker_pool, "start_worker", lambda _module, launch, *_: launches.append(launch))
    pool._states[:] = pool._counters_at_start[:] = None, None
    for index in range(2):
        pool._start(index, 0)
    seeds = [launch.plan.run.seed for launch in launches]
    assert seeds == [parts.config.of_worker(index).run.seed for index in range(2)]
    assert seeds[0] != seeds[1]


def test_a_pause_is_not_taken_for_that_of_a_later_stop(pool):
    workers: Any = [SimpleNamespace(paused=(None, None)) for _ in range(2)]
    pool._supervisor.processes[:] = workers
    for _ in range(3):
        limit = pool.stop_at_once()
        assert limit < 0
        assert not pool.paused
        for worker in workers:
            worker.paused = limit, None
        assert pool.paused
        pool.set_limit(1000)
        assert not pool.paused
    pool._supervisor.processes.clear()


def test_a_restarted_worker_continues_from_its_state_without_its_envs_until_it_has_made_progress(pool, parts):
    state = WorkerState({"learner": 1}, {"env": 2}, {})
    pool._states[:] = state, state
    pool._counters_at_start[:] = WorkerCounters(), WorkerCounters()
    assert pool._state(1, attempt=0) == state
    assert pool._state(1, attempt=1) == state._replace(actor=None)
    parts.board.set_counters(1, WorkerCounters(learning_steps=1))
    assert pool._state(1, attempt=1) is None
    assert pool._state(0, attempt=0) == state
