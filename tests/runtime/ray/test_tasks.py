"""Tasks when Ray is lost, without a cluster."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from offbeat.core.errors import RunFailed
from offbeat.runtime.ray.tasks import TaskPool


def test_tasks_end_when_ray_is_lost_and_ask_nothing_of_it_while_the_head_does_not_answer(monkeypatch):
    def require() -> None:
        if watch.asked == 2:
            raise RunFailed("the head does not answer")

    def head_answers() -> bool:
        watch.asked += 1
        return False

    def nodes() -> None:
        raise AssertionError

    watch = SimpleNamespace(require=require, head_answers=head_answers, asked=0)
    cluster: Any = SimpleNamespace(require=lambda *_: None, watch=watch, nodes=nodes)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(wait=lambda waiting, timeout: ([], waiting)))  # noqa: ARG005
    with pytest.raises(RunFailed, match="the head does not answer"):
        TaskPool(cluster, {"CPU": 1.0}, "a task")._wait(["task"])
