"""A session on a node when Ray is lost: it is not waited for any longer than Ray leaves time, and it is not killed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from offbeat.experiments import ray_process
from offbeat.experiments.ray_process import RayProcess


class Silent:
    """An actor, or a call of it, from which nothing comes any more. Nothing may be killed through it."""

    def poll(self) -> None: ...

    def remote(self, *_arguments: object) -> None: ...

    @property
    def kill(self) -> Any:
        raise AssertionError

    signal: Any = property(lambda self: self)


def running(*, is_lost: bool) -> RayProcess:
    placement: Any = SimpleNamespace(usable=SimpleNamespace(is_lost=is_lost), nodes=())
    process, silent = RayProcess(placement), Silent()
    process._actor, process._host = silent, "10.0.0.1"
    process._start = process._wait = process._save = silent  # type: ignore[assignment]
    return process


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_session_that_saves_is_waited_for_but_not_for_ever_if_ray_is_lost(monkeypatch, is_lost):
    now = 0.0
    monkeypatch.setattr("offbeat.experiments.ray_process.time.monotonic", lambda: now)
    process = running(is_lost=False)
    process.terminate()
    process._placement.usable.is_lost = is_lost  # type: ignore[misc]
    assert process.poll() is None
    now = ray_process.SAVE_S - 1
    assert process.poll() is None
    now = ray_process.SAVE_S + 1
    end = process.poll()
    assert (end is not None and end.node_lost) == is_lost


def test_a_session_is_not_killed_if_ray_is_lost_so_that_it_saves():
    process = running(is_lost=True)
    process.kill()
    assert process.close() == ""
