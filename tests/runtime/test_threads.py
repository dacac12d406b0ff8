"""The threads runtime at the end of a run."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.sample_envs.run_envs import Wave
from tests.support.process_state import open_descriptors
from tests.support.registering import register_envs
from tests.support.runs import small_run, wait_until

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


register_envs("threads", SlowInOneActor)


def test_an_actor_that_is_in_a_long_step_when_the_run_fails_is_closed_after_it(tmp_path, monkeypatch):
    monkeypatch.setattr("offbeat.core.threads.CLOSE_S", 0.1)
    before = open_descriptors()
    with pytest.raises(RunFailed, match="broken"):
        small_run(
            tmp_path / "run", "threads/SlowInOneActor-v0", runtime="threads", actors=2, envs_per_actor=1, max_lag=1
        )
    assert closed == []
    RELEASED.set()
    wait_until(lambda: closed == ["offbeat actor 1"])
    wait_until(lambda: open_descriptors() == before)
