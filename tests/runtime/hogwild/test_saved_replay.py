"""What a checkpoint of a lock-free run has of the replay of a worker."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.runs import contents

from offbeat.algorithms.replay_config import ReplayConfig
from offbeat.api.resume import resume
from offbeat.api.train import train
from offbeat.config.resolve import resolve
from offbeat.core.errors import ConfigError
from offbeat.core.types import FRAME_AGE, Tree
from offbeat.memory.replay.rings import Rings, RingShape
from offbeat.metrics.counters import WorkerCounters
from offbeat.runtime.hogwild.parts import HogwildParts, build_hogwild

STACK, TICKETS = 4, 60
FLAGS: dict[str, Any] = {
    "runtime": "hogwild",
    "workers": 1,
    "frame_stack": STACK,
    "chunk_length": 1,
    "envs_per_actor": 2,
    "capacity": 48,
    "warmup": 16,
    "batch_size": 16,
}
"""A frame stack contains frames of several tickets; tickets have left the window."""


def parts() -> HogwildParts:
    return build_hogwild(resolve("dqn", "offbeat/PixelsMotion-v0", flags=FLAGS), print)


def rings_of(run: HogwildParts) -> Rings:
    rings = run.plans[0].policy.slots(run.worker_arenas[0].arrays)
    assert isinstance(rings, Rings)
    return rings


def write_rows(rings: Rings) -> None:
    """Write rows of one endless episode, with random frames."""
    random = np.random.default_rng(0)
    for name, value in (("valid", True), (FRAME_AGE, STACK - 1)):
        rings.flat(name)[:] = value
    frames = rings.flat("observation")
    frames[:] = random.integers(256, size=frames.shape)


def samples(run: HogwildParts) -> Tree:
    replay = run.config.settings_as(ReplayConfig).replay(rings_of(run))
    replay.recover(0, TICKETS, 0)
    random = np.random.default_rng(1)
    drawn = [{name: array.copy() for name, array in replay.sample(random).arrays.items()} for _ in range(9)]
    return {name: np.concatenate([arrays[name] for arrays in drawn]) for name in drawn[0]}


def test_a_checkpoint_with_other_rows_of_the_replay_than_the_run_needs_is_refused(tmp_path, monkeypatch):
    settings: dict[str, Any] = {"run_dir": tmp_path / "run", "progress": "none", "evaluator": "inline", "eval_every": 0}
    with monkeypatch.context() as other_version:
        other_version.setattr(RingShape, "tickets_to_save", RingShape.window)
        train("dqn", "offbeat/PixelsMotion-v0", **FLAGS, **settings, steps=400, stop_at=80)
    before = contents(tmp_path / "run" / "checkpoints")
    with pytest.raises(ConfigError, match=r"other rows of the replay than this run needs.*--init-from RUN"):
        resume(tmp_path / "run")
    assert contents(tmp_path / "run" / "checkpoints") == before


def test_a_restored_replay_has_the_older_frames_in_the_stacks_of_its_first_rows():
    saved, restored, done = parts(), parts(), WorkerCounters(learning_steps=TICKETS)
    try:
        write_rows(rings_of(saved))
        for name, rows in restored.replay_rows(0, done).items():
            rows[...] = saved.replay_rows(0, done)[name]
        np.testing.assert_equal(samples(restored), samples(saved))
    finally:
        saved.close()
        restored.close()
