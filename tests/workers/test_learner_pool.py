"""The learners of several policies in threads: one that hangs ends the run, and does not keep it from ending."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from offbeat.core.errors import RunFailed
from offbeat.core.process import threads
from offbeat.metrics.timings import Timings
from offbeat.workers import learner_pool
from offbeat.workers.learner_pool import LearnerPool


class StubLearner:
    """Calls a function in each learning step."""

    def __init__(self, learn: Any) -> None:
        self._learn, self.updates_made = learn, 0
        self.timings, self.feed = Timings(), SimpleNamespace(stop_loading=lambda: None)

    def learn(self, step: int, progress: float) -> Any:
        return self._learn(self, step, progress)


def learn(_learner: StubLearner, step: int, progress: float) -> tuple[int, float]:
    return step, progress


@pytest.fixture
def released() -> Iterator[Event]:
    """Yield an event for which learners wait; it is set at the end of the test."""
    event = Event()
    yield event
    event.set()


def pool_of(stall_timeout_s: float = 0.05, **learners: Any) -> LearnerPool:
    stubs: Any = {name: StubLearner(function) for name, function in learners.items()}
    return LearnerPool(stubs, Timings(), len(stubs), stall_timeout_s=stall_timeout_s)


def test_a_learner_thread_that_hangs_ends_the_run_with_the_names_of_its_policies(released):
    pool = pool_of(good=learn, hanging=lambda *_: released.wait(60))
    with (
        patch.object(learner_pool, "POLL_S", 0.01),
        pytest.raises(RunFailed, match=r"within 0\.05 s \(stall_timeout_s\).* the learning step: hanging\. If"),
    ):
        pool.learn(0, 0.0)
    released.set()
    pool.close()  # no later test finds its threads


def test_a_pool_closes_although_a_learner_thread_hangs(released):
    pool = pool_of(good=learn, hanging=lambda *_: released.wait(60))
    with patch.object(learner_pool, "POLL_S", 0.01), pytest.raises(RunFailed):
        pool.learn(0, 0.0)
    with patch.object(threads, "CLOSE_S", 0.01):
        pool.close()
    assert not released.is_set()


def test_a_learner_whose_thread_cannot_be_started_says_which_limit_to_raise():
    pool = pool_of(one=learn, other=learn)
    at_the_limit = patch.object(Thread, "start", side_effect=RuntimeError("can't start new thread"))
    with at_the_limit, pytest.raises(RunFailed, match=r"'offbeat learner 0' cannot be started .*ulimit -u"):
        pool.learn(0, 0.0)
    pool.close()


class BusyLearner(StubLearner):
    """Makes an update between any two looks at their number. Its step ends with the tenth look."""

    def __init__(self) -> None:
        super().__init__(self._learn_until_done)
        self._looks, self._done = 0, Event()

    @property
    def updates_made(self) -> int:
        self._looks += 1
        if self._looks == 10:
            self._done.set()
        return self._looks

    @updates_made.setter
    def updates_made(self, _number: int) -> None:
        pass

    def _learn_until_done(self, _learner: StubLearner, step: int, progress: float) -> tuple[int, float]:
        assert self._done.wait(60)
        return step, progress


def test_a_step_that_takes_longer_than_the_limit_is_finished_if_updates_are_made():
    learners: Any = {"good": StubLearner(learn), "slow": BusyLearner()}
    pool = LearnerPool(learners, Timings(), 2, stall_timeout_s=0.02)
    with patch.object(learner_pool, "POLL_S", 0.01):  # a step of ten looks takes at least 0.1 s
        results: list[Any] = list(pool.learn(3, 0.5))
    assert results == [(3, 0.5)] * 2
    pool.close()


def test_the_error_of_the_first_policy_that_failed_is_raised_after_the_others_have_finished():
    finished = list[int]()

    def fail(_learner: StubLearner, step: int, _progress: float) -> None:
        raise ValueError(f"step {step}")

    pool = pool_of(failing=fail, good=lambda _learner, step, _progress: finished.append(step))
    for step in (1, 2):
        with pytest.raises(ValueError, match=f"step {step}"):
            pool.learn(step, 0.0)
    assert finished == [1, 2]
    pool.close()
