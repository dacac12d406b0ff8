"""What parts, acting, learners and evaluators have opened is closed if one of their later steps fails."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from tests.support.process_state import open_descriptors
from tests.support.runs import SMALL, small_run

from offbeat.algorithms.sac import SAC
from offbeat.config.resolve import resolve
from offbeat.core.errors import ConfigError, RunFailed
from offbeat.core.types import Field
from offbeat.memory.arena import SharedArena
from offbeat.runtime import assembly
from offbeat.runtime.board import Bell
from offbeat.runtime.evaluation.evaluators import ProcessEvaluator
from offbeat.runtime.evaluation.plan import EvaluatedPolicy, EvaluationPlan
from offbeat.runtime.hogwild import parts as parts_of_workers
from offbeat.runtime.learners import processes
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.reporting import Reporting
from offbeat.runtime.runtimes import acting_of, build

REPORTING = Reporting(lambda _text, _details="": None, lambda _role, _children: None)


@pytest.fixture(autouse=True, scope="module")
def _what_was_there_before_is_no_garbage() -> None:
    """Exempt it from garbage collection: each look at the open files would traverse it."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def parts(request) -> Iterator[PacedParts]:
    made: PacedParts = build(resolve("ppo", "CartPole-v1", flags={**SMALL, "runtime": "processes", **request.param}))
    yield made
    made.close()


def fail(*_arguments: Any, **_named: Any) -> Any:
    raise OSError("Too many open files")


class Failing:
    """Makes bells, but fails to make the last one."""

    def __init__(self, bells: int) -> None:
        self.left = bells
        self._make = Bell.make

    def __call__(self) -> Bell:
        self.left -= 1
        if not self.left:
            fail()
        return self._make()


@pytest.mark.parametrize("parts", [{"actors": 3, "inference": "worker"}], indirect=True)
def test_acting_that_cannot_be_made_leaves_nothing_open(parts, monkeypatch):
    before = open_descriptors()
    for bells in count(1):
        failing = Failing(bells)
        with monkeypatch.context() as patched:
            patched.setattr(Bell, "make", failing)
            if _is_made(parts):
                break
        assert open_descriptors() == before
    assert bells > 5, "a learner, three actors, an inference worker"


def _is_made(parts: PacedParts) -> bool:
    try:
        acting = acting_of(parts, 0, REPORTING)
    except OSError:
        return False
    acting.close()
    return True


def test_a_run_without_enough_files_for_its_actors_is_refused_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(Bell, "make", fail)
    with pytest.raises(RunFailed, match=r"the run could not be started \(Too many open files\): raise the limits"):
        small_run(tmp_path / "run", runtime="threads")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("parts", [{"devices": ("cpu", "cpu"), "shards": 2}], indirect=True)
def test_learner_processes_that_cannot_be_made_leave_nothing_open(parts, monkeypatch):
    acting = acting_of(parts, 0, REPORTING)
    before = open_descriptors()

    monkeypatch.setattr(processes, "make_collective", fail)
    with pytest.raises(OSError, match="Too many open files"):
        processes.learners_of(parts, acting, REPORTING)
    assert open_descriptors() == before
    acting.close()


@pytest.mark.parametrize("parts", [{"devices": ("cpu", "cpu"), "shards": 2}], indirect=True)
def test_a_learner_process_that_cannot_be_started_ends_the_run_with_the_reason(parts, monkeypatch):
    acting = acting_of(parts, 0, REPORTING)
    learners = processes.learners_of(parts, acting, REPORTING)
    monkeypatch.setattr(processes, "start_worker", fail)
    with pytest.raises(RunFailed, match=r"learner 1 could not be started \(Too many open files\): raise the limits"):
        learners.start(0)
    learners.close()
    acting.close()


@pytest.mark.parametrize("parts", [{}], indirect=True)
def test_an_evaluator_that_cannot_be_made_leaves_nothing_open(parts, monkeypatch):
    config, policy = parts.config, parts.policy
    plan = EvaluationPlan(config.run, config.env, (EvaluatedPolicy(policy.name, policy.spec),))
    monkeypatch.setattr(Bell, "make_several", fail)
    before = open_descriptors()
    with pytest.raises(OSError, match="Too many open files"):
        ProcessEvaluator(plan, config, REPORTING, lambda _: None, cores={0}, threads=1, concurrent=False)
    assert open_descriptors() == before


def test_lock_free_workers_whose_memory_cannot_be_made_leave_nothing_open(monkeypatch):
    made: list[SharedArena] = []

    def make(slabs: Any) -> SharedArena:
        made.append(SharedArena(slabs) if len(made) < 2 else fail())
        return made[-1]

    monkeypatch.setattr(parts_of_workers, "SharedArena", make)
    before = open_descriptors()
    with pytest.raises(OSError, match="Too many open files"):
        build(resolve("ppo", "CartPole-v1", flags={**SMALL, "runtime": "hogwild", "workers": 3}))
    made.clear()
    assert open_descriptors() == before


@pytest.mark.parametrize(
    ("module", "last_step", "flags"),
    [
        (assembly, "learner_of", {"runtime": "processes", "actors": 1}),
        (parts_of_workers, "WorkersBoard", {"runtime": "hogwild", "workers": 2}),
    ],
)
def test_parts_that_cannot_be_built_leave_no_shared_memory_open(module, last_step, flags, monkeypatch):
    config = resolve("ppo", "CartPole-v1", flags={**SMALL, **flags})
    monkeypatch.setattr(module, last_step, fail)
    before = open_descriptors()
    with pytest.raises(OSError, match="Too many open files"):
        build(config)
    assert open_descriptors() == before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"capacity": 10**12}, "of memory are free"),
        ({"capacity": 10**12, "runtime": "hogwild", "workers": 1}, "of memory are free"),
        ({"learner_threads": 3}, "among at most 2 threads"),
    ],
    ids=["serial", "hogwild", "too many threads"],
)
def test_parts_that_are_refused_leave_no_thread(settings, message):
    before = set(threading.enumerate())
    with pytest.raises(ConfigError, match=message) as refused:  # it refers to the parts, which are not collected
        build(resolve("sac", "Pendulum-v1", flags={"learner_threads": 2, **settings}))
    assert set(threading.enumerate()) <= before, refused


def test_an_algorithm_with_a_field_that_no_actor_records_leaves_no_thread(monkeypatch):
    monkeypatch.setattr(SAC, "fields", lambda _algorithm: [Field("gaze", (), "float32")])
    before = set(threading.enumerate())
    with pytest.raises(ConfigError, match="fields has 'gaze'") as refused:
        build(resolve("sac", "Pendulum-v1", flags={"learner_threads": 2}))
    assert set(threading.enumerate()) <= before, refused
