"""The memory of a run is freed when the run has ended, also while the user keeps its callbacks and its result."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from tests.support.runs import small_run

import offbeat
from offbeat.core.process import caller_state
from offbeat.core.process.allocator import stop_keeping_memory
from offbeat.runtime.loop.training_loop import TrainingLoop
from offbeat.runtime.parts import Parts

LAYOUTS: dict[str, dict[str, Any]] = {
    "serial": {},
    "threads": {"runtime": "threads", "actors": 2},
    "processes": {"runtime": "processes", "actors": 1, "evaluator": "process"},
    "inference worker": {"runtime": "processes", "actors": 1, "inference": "worker"},
    "two learners": {"runtime": "processes", "actors": 1, "devices": ("cpu", "cpu"), "shards": 2},
    "hogwild": {"algorithm": "a2c", "runtime": "hogwild", "workers": 1},
    "a league": {"env": "offbeat.envs.testing.worlds:CartPoles", "league": {"window": 2, "snapshot_every": 2}},
}


@pytest.fixture
def new_parts() -> Iterator[Callable[[], list[str]]]:
    """Return what finds the parts and training loops of the runs of this test that are in memory.

    Only reference counts free memory: the garbage collector may take long to come.
    """
    gc.collect()
    gc.disable()
    before = _parts_in_memory()  # other tests may keep some, such as pytest those of a failed one
    yield lambda: [type(each).__name__ for each in _parts_in_memory() if not any(each is old for old in before)]
    gc.enable()


def _parts_in_memory() -> list[object]:
    return [each for each in gc.get_objects() if issubclass(type(each), (Parts, TrainingLoop))]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_the_memory_of_a_run_is_freed_when_it_ends(layout, tmp_path, new_parts):
    kept = offbeat.Callback()
    run = small_run(tmp_path / "run", callbacks=[kept], stop_at=256, eval_every=128, eval_episodes=1, **layout)
    assert new_parts() == []
    resumed = offbeat.resume(run, callbacks=[kept], progress="none")
    assert new_parts() == []
    assert kept.run.env_steps == resumed.metrics["env_steps"]


@pytest.mark.parametrize("layout", [LAYOUTS["serial"], LAYOUTS["threads"], LAYOUTS["processes"]], ids=list(LAYOUTS)[:3])
def test_the_memory_of_a_failed_run_is_freed_with_its_error(layout, tmp_path, new_parts):
    def divide(line: dict[str, Any]) -> None:
        line["env_steps"] // 0

    with suppress(ZeroDivisionError):
        small_run(tmp_path / "run", callbacks=[divide], stop_at=256, **layout)
    assert new_parts() == []


def test_free_memory_is_returned_to_the_system_once_that_of_the_run_is_free(tmp_path, monkeypatch, new_parts):
    left: list[list[str]] = []

    def return_memory() -> None:
        left.append(new_parts())
        stop_keeping_memory()

    monkeypatch.setattr(caller_state, "stop_keeping_memory", return_memory)
    run = small_run(tmp_path / "run", stop_at=256)
    offbeat.resume(run, progress="none")
    assert left
    assert not any(left)
