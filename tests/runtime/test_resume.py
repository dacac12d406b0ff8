"""What a resume goes on with, and what it refuses. That it has the same bits is in test_exactness.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.runs import contents, lines_of, offbeat, small_run, untimed, weights_of

import offbeat as package
from offbeat.api.resume import resume
from offbeat.core.errors import ConfigError
from offbeat.run_directory.checkpoint import load

HALF = 256
LAGGED: dict[str, Any] = {"max_lag": 1, "unrolls_per_batch": 2, "actors": 2, "steps": 768}
EVALUATED: dict[str, Any] = {"eval_every": 150, "eval_episodes": 1, "evaluator": "inline"}


def test_a_resume_continues_counters_episodes_and_metrics(tmp_path):
    whole = small_run(tmp_path / "whole", **LAGGED, **EVALUATED)
    stopped = small_run(tmp_path / "stopped", **LAGGED, **EVALUATED, stop_at=HALF)
    resumed = resume(stopped.path)

    assert resumed.metrics["episodes"] > stopped.metrics["episodes"] > 0
    assert untimed(resumed.metrics) == untimed(whole.metrics)
    assert resumed.metrics["wall_time_s"] > stopped.metrics["wall_time_s"]
    assert lines_of(resumed.path)[-1] == resumed.metrics


@pytest.mark.parametrize("runtime", ["threads", "processes"])
def test_a_checkpoint_before_any_acting_since_the_resume_has_the_state_of_the_envs(tmp_path, runtime):
    """The batch is used again in the first learning step after the resume, so no actor is waited for."""
    settings: dict[str, Any] = {"runtime": runtime, "max_lag": 0, "passes": 2, "checkpoints_kept": 9, "steps": 128}
    stopped = small_run(
        tmp_path / "run", "stalling/SlowToContinue-v0", imports=("tests.sample_envs.stalling",), **settings, stop_at=64
    )
    before = actors_at(stopped.path, "step-000000000064", learning_step=1)
    resume(stopped.path, checkpoint_every_s=1e-9)
    np.testing.assert_equal(actors_at(stopped.path, "step-000000000064-2", learning_step=2), before)


def actors_at(run: Path, checkpoint: str, learning_step: int) -> list[dict[str, Any]]:
    """Return the state of each actor in a checkpoint, which is of this learning step."""
    state = load(run / "checkpoints" / checkpoint).state
    assert state is not None
    assert state["counters"]["learning_step"] == learning_step
    actors: list[dict[str, Any]] = state["actors"]
    return actors


# --- what cannot be exact, and what is refused --------------------------------------------------------------


def test_envs_without_snapshots_start_new_episodes_and_the_resume_logs_it(tmp_path):
    path = tmp_path / "run"
    env, modules = "runs/Wave-v0", ("tests.sample_envs.run_envs",)
    small_run(path, env, imports=modules, steps=2 * HALF, stop_at=HALF)
    said = offbeat("resume", path, "--progress", "lines")

    assert said.code == 0
    assert "they are cut, and new episodes start" in said.err
    last = lines_of(path)[-1]
    assert last["env_steps"] >= 2 * HALF
    assert last["episode_length_mean"] == 20  # none was glued together at the cut, and none cut short there


def test_a_resume_with_snapshots_logs_that_episodes_continue(tmp_path):
    path = small_run(tmp_path / "run", steps=2 * HALF, stop_at=HALF).path
    assert "unfinished episodes continue" in offbeat("resume", path, "--progress", "lines").err


def test_a_finished_run_is_resumed_only_with_more_steps(tmp_path):
    path = small_run(tmp_path / "run", steps=256).path
    before = weights_of(path)
    with pytest.raises(ConfigError, match=r"nothing is left to do.*--steps"):
        resume(path)
    assert weights_of(path) == before

    more = resume(path, steps=384)
    assert more.state == "finished"
    assert more.metrics["env_steps"] >= 384
    assert weights_of(path) != before


class Checkpoints(package.Callback):
    """Notes which checkpoints a run has before its first learning step."""

    def on_start(self) -> None:
        folder = self.run.path / "checkpoints"
        self.latest = (folder / "latest").resolve()
        self.steps = set(folder.glob("step-*"))


@pytest.mark.parametrize("settings", [{}, {"passes": 3, "resident_batches": 2}])
def test_a_resume_from_an_older_checkpoint_drops_later_metrics_lines_and_checkpoints(tmp_path, settings):
    saved: dict[str, Any] = {"steps": 512, "checkpoint_every": 150, "checkpoints_kept": 3, **EVALUATED}
    whole = small_run(tmp_path / "run", **saved, **settings)
    lines, weights = lines_of(whole.path), weights_of(whole.path)
    checkpoints = whole.path / "checkpoints"
    older, best = min(checkpoints.glob("step-*")), (checkpoints / "best").resolve()
    noted = Checkpoints()
    run = resume(whole.path, checkpoint=older.name, callbacks=[noted])

    assert (noted.latest, noted.steps) == (older, {older, best})
    assert [untimed(line) for line in lines_of(run.path)] == [untimed(line) for line in lines]
    assert weights_of(run.path) == weights


def test_a_damaged_best_checkpoint_is_replaced_at_the_next_evaluation_of_the_resumed_run(tmp_path):
    always_five: dict[str, Any] = {"max_episode_steps": 5, **EVALUATED}
    run = small_run(tmp_path / "run", steps=512, stop_at=HALF, **always_five).path
    best, latest = (run / "checkpoints" / name for name in ("best", "latest"))
    assert best.resolve() != latest.resolve()
    (best / "policy.json").write_bytes(b"{}")
    resume(run)
    assert "the best checkpoint is replaced by the weights of the next evaluation" in (run / "log.txt").read_text()
    assert package.load(run, "best").trained.eval_return_mean == 5


def test_a_refused_resume_from_an_older_checkpoint_changes_nothing(tmp_path):
    run = small_run(tmp_path / "run", steps=512, checkpoint_every=150).path
    before = contents(run)
    said = offbeat("resume", run, "--checkpoint", min((run / "checkpoints").glob("step-*")).name, "--set", "seed=9")
    assert (said.code, "seed is 0" in said.err) == (2, True)
    assert offbeat("resume", run, "--checkpoint", "step-7").code == 2
    assert contents(run) == before


def test_a_resume_with_an_edited_topology_is_refused_and_changes_nothing(tmp_path):
    run = small_run(tmp_path / "run", steps=256, stop_at=128).path
    edited = (run / "config.toml").read_text().replace("max_lag = 0", "max_lag = 2")
    (run / "config.toml").write_text(edited)
    metrics = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(ConfigError, match="max_lag is 0 in the checkpoint and 2 now"):
        resume(run)
    assert (run / "metrics.jsonl").read_bytes() == metrics
    assert (run / "config.toml").read_text() == edited
