"""The threads runtime at the end of a run."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.sample_envs.run_envs import Wave
from tests.support.process_state import open_descriptors
from tests.support.registering import register_envs
from tests.support.runs import small_run, wait_until

from offbeat.api.callbacks.callback import Callback
from offbeat.api.resume import resume
from offbeat.core.errors import RunFailed

STUCK, RELEASED = threading.Event(), threading.Event()
closed: list[str] = []
"""The threads in which envs were closed after the release."""


class SlowInOneActor(Wave):
    """Is stuck in a step of actor 1 until it is released; meanwhile a step of actor 0 fails."""

    def step(self, action: Any) -> Any:
        name = threading.current_thread().name
        if name.endswith("actor 1"):
            STUCK.set()
            RELEASED.wait(60)
        elif name.endswith("actor 0"):
            STUCK.wait(60)
            raise ValueError("broken")
        return super().step(action)

    def close(self) -> None:
        if RELEASED.is_set():
            closed.append(threading.current_thread().name)


LEARNED = threading.Event()


class FailsAfterTheRun(Wave):
    """Begins its first episode in actor 1 only once the run has learned everything, and then fails."""

    def reset(self, **arguments: Any) -> Any:
        if threading.current_thread().name.endswith("actor 1"):
            LEARNED.wait(60)
            raise ValueError("broken")
        return super().reset(**arguments)


class TellsWhatIsLearned(Callback):
    def on_metrics(self, *_: Any) -> None:
        LEARNED.set()


register_envs("threads", SlowInOneActor, FailsAfterTheRun)


def test_an_actor_that_is_in_a_long_step_when_the_run_fails_is_closed_after_it(tmp_path, monkeypatch):
    monkeypatch.setattr("offbeat.core.process.threads.CLOSE_S", 0.1)
    before = open_descriptors()
    with pytest.raises(RunFailed, match="broken"):
        small_run(
            tmp_path / "run", "threads/SlowInOneActor-v0", runtime="threads", actors=2, envs_per_actor=1, max_lag=1
        )
    assert closed == []
    RELEASED.set()
    wait_until(lambda: closed == ["offbeat actor 1"])
    wait_until(lambda: open_descriptors() == before)


@pytest.mark.filterwarnings("ignore::offbeat.core.errors.LargeBatch")
def test_a_run_that_has_learned_everything_is_finished_also_if_an_actor_fails_whose_envs_were_to_be_saved(tmp_path):
    one_batch = {"actors": 2, "envs_per_actor": 1, "max_lag": 2, "unrolls_per_batch": 1, "unroll_length": 32}
    run = small_run(
        tmp_path / "run",
        "threads/FailsAfterTheRun-v0",
        runtime="threads",
        steps=16,
        log_every=1,
        callbacks=[TellsWhatIsLearned()],
        **one_batch,
    )
    assert run.state == "finished"
    assert "unfinished episodes are not saved: actor 1" in (run.path / "log.txt").read_text()
    assert resume(run.path, runtime="serial", steps=64).state == "finished"
