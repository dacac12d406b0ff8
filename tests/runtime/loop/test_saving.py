"""When checkpoints are saved."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.replay_runs import small_sac
from tests.support.runs import lines_of, small_run, stop_in_evaluation, weights_of
from tests.support.thorough import thorough

import offbeat
from offbeat.core.errors import ConfigError, RunFailed
from offbeat.metrics.counters import Counters
from offbeat.run_directory import checkpoint
from offbeat.run_directory.checkpoint import Checkpoint, load
from offbeat.run_directory.directory import RunDirectory
from offbeat.run_directory.store import CheckpointStore
from offbeat.runtime.evaluation.evaluators import InlineEvaluator, Result
from offbeat.runtime.hogwild.worker_pool import WorkerPool
from offbeat.runtime.loop.saving import SCORE, Saving

EXACT: dict[str, Any] = {"max_lag": 1, "lag": "exact", "actors": 2}
KINDS: dict[str, dict[str, Any]] = {
    "serial": {"max_lag": 2},
    "threads": {"runtime": "threads", **EXACT},
    "processes": {"runtime": "processes", **EXACT},
    "sac": {"algorithm": "sac", "max_ahead": 2, "steps": 100},
    "one lock-free worker": {"algorithm": "sac", "runtime": "hogwild", "workers": 1, "steps": 300},
}


def trained(path: Path, **settings: Any) -> Path:
    train = small_sac if settings.get("algorithm") == "sac" else small_run
    return train(path, **{"steps": 400, "checkpoint_every": 0, "checkpoints_kept": 100, **settings}).path


def ends_with_the_run(
    evaluator: InlineEvaluator, seconds: float, on_step: Callable[[], None], *, poll: Any = InlineEvaluator.poll
) -> Result | None:
    """Stand for `InlineEvaluator.poll`: an evaluation ends when the run waits for it."""
    return poll(evaluator, seconds, on_step) if seconds else None


@pytest.mark.parametrize("kind", ["serial", "processes", "sac", *thorough("threads", "one lock-free worker")])
def test_checkpoints_at_time_intervals_change_no_bit_of_an_exact_run(tmp_path, kind):
    often = trained(tmp_path / "often", **KINDS[kind], checkpoint_every_s=1e-9)
    never = trained(tmp_path / "never", **KINDS[kind], checkpoint_every_s=0)
    assert len(RunDirectory(often).checkpoint_store().full()) > 2
    assert len(RunDirectory(never).checkpoint_store().full()) == 2  # the first and the last
    assert weights_of(often) == weights_of(never)


def test_workers_pause_for_each_checkpoint_at_a_time_interval(tmp_path, monkeypatch):
    limits: list[int] = []
    states = WorkerPool.states

    def watched(pool: WorkerPool) -> Any:
        limits.append(int(pool._board.limit[0]))
        return states(pool)

    monkeypatch.setattr(WorkerPool, "states", watched)
    trained(tmp_path / "run", **{**KINDS["one lock-free worker"], "steps": 3_000}, checkpoint_every_s=1e-9)
    stops = list(dict.fromkeys(limit for limit in limits if limit < 0))
    assert len(stops) > 1, "a pause that was reported for one stop would be taken for one at the next"


def test_a_resume_keeps_the_score_of_a_best_saved_after_a_full_checkpoint_of_the_same_step(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints", 3)
    weights = {"w": np.zeros(2, np.float32)}
    full = {"env_steps": 100}
    store.save(100, Checkpoint.of_one(weights, full, {"counters": {}}), ("latest",))
    store.save(100, Checkpoint.of_one(weights, {**full, SCORE: 400.0}, None), ("best",))
    assert load(store.path("best")).policy[SCORE] == 400.0
    assert load(store.path("latest")).state is not None


def test_a_checkpoint_is_saved_every_ten_minutes_by_default(tmp_path):
    run = small_run(tmp_path / "run", steps=256).path
    assert "checkpoint_every_s = 600.0" in (run / "config.toml").read_text()


def test_the_score_of_a_checkpoint_is_that_of_its_own_weights(tmp_path):
    evaluated: dict[str, Any] = {"eval_every": 256, "eval_episodes": 2, "evaluator": "inline", "learning_rate": 0.05}
    run = small_run(tmp_path / "run", steps=1024, **evaluated)
    best, last = run.metrics["best_eval_return_mean"], run.metrics["eval_return_mean"]
    assert best > last  # else both checkpoints would have the same weights
    assert [offbeat.load(run, name).trained.eval_return_mean for name in ("best", "latest")] == [best, last]
    stopped = small_run(tmp_path / "stopped", steps=1024, stop_at=600, **evaluated)  # between two evaluations
    assert offbeat.load(stopped).trained.eval_return_mean is None


@pytest.mark.parametrize("poll", [stop_in_evaluation, ends_with_the_run])
def test_policies_are_loaded_from_checkpoints_that_were_saved_during_an_evaluation(tmp_path, monkeypatch, poll):
    evaluated: dict[str, Any] = {"eval_every": 128, "eval_episodes": 1, "evaluator": "inline", "eval_time_share": 1}
    with monkeypatch.context() as patched:
        patched.setattr(InlineEvaluator, "concurrent", True)
        patched.setattr(InlineEvaluator, "poll", poll)
        run = trained(tmp_path / "run", checkpoint_every=128, **evaluated)
    store = RunDirectory(run).checkpoint_store()
    states = {name: store.load(name).state for name in store.full()}
    during = [name for name, state in states.items() if state and state["evaluations"]["is_due"]]
    assert during
    for name in during:
        assert offbeat.evaluate(run, checkpoint=name, episodes=1).episodes == 1


@pytest.mark.parametrize("difference", [0, 1])
def test_the_best_weights_are_saved_with_their_score_if_others_are_evaluated_before(tmp_path, monkeypatch, difference):
    evaluated = Saving.evaluated

    def evaluated_twice(saving: Saving, return_mean: float, weights: Any, counters: Counters) -> None:
        evaluated(saving, return_mean, weights, counters)
        evaluated(saving, return_mean - difference, weights, replace(counters, updates=counters.updates + 1))

    monkeypatch.setattr(Saving, "evaluated", evaluated_twice)
    run = small_run(tmp_path / "run", steps=512, eval_every=256, eval_episodes=2, evaluator="inline")
    best = offbeat.load(run, "best").trained
    assert best.eval_return_mean == run.metrics["best_eval_return_mean"]
    assert best.updates in {line["updates"] for line in lines_of(run.path)}, "of equal ones the first is the best"


def test_best_weights_that_could_not_be_saved_are_saved_with_the_next_checkpoint(tmp_path, monkeypatch):
    save, failed = CheckpointStore.save, set[int]()

    def save_at_the_second_attempt(store: CheckpointStore, env_steps: int, saved: Checkpoint, names: Any) -> Path:
        if names == ("best",) and env_steps not in failed:
            failed.add(env_steps)
            raise OSError(errno.ENOSPC, "No space left on device")
        return save(store, env_steps, saved, names)

    monkeypatch.setattr(CheckpointStore, "save", save_at_the_second_attempt)
    run = small_run(tmp_path / "run", steps=512, learning_rate=0.05, eval_every=256, eval_episodes=2, stop_at=420)
    assert len(failed) == 1
    assert offbeat.load(run, "best").trained.eval_return_mean == run.metrics["best_eval_return_mean"]


def test_a_checkpoint_without_the_states_of_envs_that_cannot_be_written_either_is_reported(tmp_path, monkeypatch):
    save = CheckpointStore.save

    def save_with_states(store: CheckpointStore, env_steps: int, saved: Checkpoint, names: Any) -> Path:
        if env_steps and saved.state is not None and saved.state["actors"] == [None]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return save(store, env_steps, saved, names)

    monkeypatch.setattr(CheckpointStore, "save", save_with_states)
    monkeypatch.setattr(checkpoint, "STATE_BYTES", 300_000)
    imports = ("tests.sample_envs.curious_envs",)
    with pytest.raises(RunFailed, match=r"saved \(No space left on device\), so .*: free some disk space, then resume"):
        small_run(tmp_path / "run", "curious/Diary-v0", imports=imports, steps=512)
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "a checkpoint could not be written ([Errno 28] No space left on device)" in log
    assert "the states of the envs" not in log


class LessRoom(offbeat.Callback):
    """From now on, a resume reads policy.json up to 10 bytes."""

    def on_start(self) -> None:
        checkpoint.POLICY_BYTES = 10


def test_a_checkpoint_that_is_too_large_without_the_states_of_envs_is_not_attributed_to_them(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "POLICY_BYTES", checkpoint.POLICY_BYTES)
    with pytest.raises(RunFailed, match=r"saved \(policy.json would .*\), so .*: remove the cause, then resume"):
        small_run(tmp_path / "run", steps=256, callbacks=[LessRoom()])
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "a checkpoint could not be written (policy.json would have" in log
    assert "the states of the envs" not in log


def test_a_run_whose_first_checkpoint_would_be_refused_because_of_its_size_does_not_start(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "POLICY_BYTES", 10)
    expected = r"the run does not start: policy.json would have \d+ bytes, but a resume reads at most 10$"
    with pytest.raises(ConfigError, match=expected):
        small_run(tmp_path / "run", steps=256)


def test_the_best_weights_of_lock_free_workers_that_are_about_to_pause_are_saved_once(tmp_path, monkeypatch):
    paused, found = WorkerPool.paused, []

    def paused_at_the_second_look(pool: WorkerPool) -> bool:
        found.append(paused.fget(pool))  # type: ignore[attr-defined]
        return found.count(True) > 1 and found[-1]

    monkeypatch.setattr(WorkerPool, "paused", property(paused_at_the_second_look))
    evaluated: dict[str, Any] = {"eval_every": 100, "eval_episodes": 1, "evaluator": "inline"}
    run = trained(tmp_path / "run", **KINDS["one lock-free worker"], **evaluated, stop_at=100)
    best, latest = [(run / "checkpoints" / name).resolve() for name in ("best", "latest")]
    assert best == latest
    assert not latest.name.endswith("-2"), "the same weights were saved twice"


class StopAtOnce(offbeat.Callback):
    def on_start(self) -> None:
        self.run.stop()


def test_a_resumed_run_that_is_saved_before_a_learning_step_keeps_the_score_of_its_weights(tmp_path, monkeypatch):
    evaluated: dict[str, Any] = {"eval_every": 100, "eval_episodes": 1, "evaluator": "inline"}
    run = trained(tmp_path / "run", **KINDS["one lock-free worker"], **evaluated, stop_at=100)
    before, latest = offbeat.load(run).trained, run / "checkpoints" / "latest"
    resumed_from = latest.resolve().name
    assert before.eval_return_mean is not None
    set_limit = WorkerPool.set_limit

    def set_only_stops(pool: WorkerPool, limit: int) -> None:
        if limit < 0:  # the stop reaches the workers before they begin a learning step
            set_limit(pool, limit)

    monkeypatch.setattr(WorkerPool, "set_limit", set_only_stops)
    offbeat.resume(run, callbacks=[StopAtOnce()])
    assert offbeat.load(run).trained == before
    assert latest.resolve().name == f"{resumed_from}-2", "the resumed run was not saved once"
