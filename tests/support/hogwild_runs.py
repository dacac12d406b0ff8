"""Small lock-free runs, what their checkpoints say of each worker, and their processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from tests.support.replay_runs import updates_due

from offbeat.algorithms.replay_config import ReplayConfig
from offbeat.config.config_file import load as load_config
from offbeat.run_directory.checkpoint import load
from offbeat.runtime.hogwild.worker_pool import WorkerPool
from offbeat.runtime.hogwild.worker_process import WorkerState


@contextmanager
def pools() -> Iterator[list[WorkerPool]]:
    """Yield the pools that start in this process meanwhile."""
    begun: list[WorkerPool] = []
    start = WorkerPool.start

    def start_and_note(self: WorkerPool, states: Sequence[WorkerState | None]) -> None:
        begun.append(self)
        start(self, states)

    with patch.object(WorkerPool, "start", start_and_note):
        yield begun


# --- what a checkpoint says ---------------------------------------------------------------------------------


def workers_of(run: Path) -> list[dict[str, Any]]:
    """Return the state of each worker."""
    state = load(run / "checkpoints" / "latest").state
    assert state is not None
    workers: list[dict[str, Any]] = state["workers"]
    return workers


def assert_whole(run: Path) -> None:
    """Each worker's state is that of one moment, the last of all that it has done, and everything is finite.

    A worker that had died when the run was saved has left its counts alone.
    """
    saved = load(run / "checkpoints" / "latest", with_replay=True)
    assert saved.state is not None
    assert all(np.isfinite(array).all() for array in (*saved.weights.values(), *saved.state["learned"].values()))
    for worker in saved.state["workers"]:
        done, learner = worker["done"], worker["learner"] or {"adam": {}}
        for moments in learner["adam"].values():
            assert all(np.isfinite(array).all() for array in moments.values())
        if "counted" in learner:
            assert learner["counted"]["valid"] == done["valid"]
            assert learner["counted"]["due"] == worker["updates"] - done["updates_before"]
        if learner.get("replay"):
            assert learner["replay"]["taken_in"] == done["learning_steps"]
    assert sum(worker["done"]["env_steps"] for worker in saved.state["workers"]) == saved.policy["env_steps"]
    assert sum(worker["updates"] for worker in saved.state["workers"]) == saved.policy["updates"]


def assert_ratio_of_each(run: Path, ratio: Fraction, spare: int = 0) -> None:
    """Each worker has made the updates that its own transitions make due, and all together those of the run.

    Args:
        run: its directory, at its end.
        ratio: updates for each transition beyond the warm-up.
        spare: updates that a worker may have made beside that, for a learning step that was broken off.
    """
    config, workers = load_config(run / "config.toml"), workers_of(run)
    whole = config.settings_as(ReplayConfig).warmup
    warmups = [config.of_worker(index).settings_as(ReplayConfig).warmup for index in range(len(workers))]
    assert sum(warmups) == whole
    for worker, warmup in zip(workers, warmups, strict=True):
        done = worker["done"]
        assert 0 <= worker["updates"] - done["updates_before"] - updates_due(ratio, warmup, done["valid"]) <= spare
    if all(worker["done"]["valid"] >= warmup for worker, warmup in zip(workers, warmups, strict=True)):
        valid = sum(worker["done"]["valid"] for worker in workers)
        held = sum(worker["updates"] - worker["done"]["updates_before"] for worker in workers)
        due = updates_due(ratio, whole, valid)
        assert due - len(workers) < held <= due + spare * len(workers)
