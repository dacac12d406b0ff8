"""What acting and learners have opened is closed if one of their later steps fails."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.reference.runs import SMALL

from offbeat.config.resolve import resolve
from offbeat.runtime.board import Bell
from offbeat.runtime.learners import processes
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.runtimes import acting_of, build
from offbeat.runtime.supervisor import Reporting

REPORTING = Reporting(lambda _text, _details="": None, lambda _role, _children: None)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def parts(request) -> Iterator[PacedParts]:
    made: PacedParts = build(resolve("ppo", "CartPole-v1", flags={**SMALL, "runtime": "processes", **request.param}))
    yield made
    made.close()


class Failing:
    """Makes bells, but fails to make the last one."""

    def __init__(self, bells: int) -> None:
        self.left = bells
        self._make = Bell.make

    def __call__(self) -> Bell:
        self.left -= 1
        if not self.left:
            raise OSError("Too many open files")
        return self._make()


@pytest.mark.parametrize("parts", [{"actors": 3, "inference": "worker"}], indirect=True)
def test_acting_that_cannot_be_made_leaves_nothing_open(parts, monkeypatch):
    before = descriptors()
    for bells in count(1):
        failing = Failing(bells)
        with monkeypatch.context() as patched:
            patched.setattr(Bell, "make", failing)
            if _is_made(parts):
                break
        assert descriptors() == before
    assert bells > 5, "a learner, three actors, an inference worker"


def _is_made(parts: PacedParts) -> bool:
    try:
        acting = acting_of(parts, 0, REPORTING)
    except OSError:
        return False
    acting.close()
    return True


@pytest.mark.parametrize("parts", [{"devices": ("cpu", "cpu"), "shards": 2}], indirect=True)
def test_learner_processes_that_cannot_be_made_leave_nothing_open(parts, monkeypatch):
    acting = acting_of(parts, 0, REPORTING)
    before = descriptors()

    def fail(*_arguments: Any) -> None:
        raise OSError("Too many open files")

    monkeypatch.setattr(processes, "make_collective", fail)
    with pytest.raises(OSError, match="Too many open files"):
        processes.learners_of(parts, acting, REPORTING)
    assert descriptors() == before
    acting.close()
