"""The lock-free runtime: several workers share one budget, one ratio and one run.

That one worker has the bits of serial is in tests/runtime/test_exactness.py.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
from tests.support.hogwild_runs import assert_ratio_of_each, assert_whole, pools, workers_of
from tests.support.replay_runs import LINKS, SMALL_RATIO, SMALL_SAC, linked_rows, small_sac, updates_due
from tests.support.runs import (
    SMALL,
    contents,
    is_alive,
    lines_of,
    offbeat,
    record_pids,
    small_arguments,
    small_run,
    stop_from,
    weights_of,
)
from tests.support.thorough import thorough

from offbeat.api.playing.load import policy_of
from offbeat.api.resume import resume
from offbeat.api.train import Run
from offbeat.core.policy_names import DEFAULT_POLICY
from offbeat.envs.make import make_envs
from offbeat.models.spec_file import read_spec
from offbeat.run_directory.checkpoint import load
from offbeat.runtime.hogwild import loop
from offbeat.runtime.hogwild.workforce import HogwildWorkforce
from offbeat.workers.evaluation_envs import EVALUATION_ENVS, EvaluationEnvs
from offbeat.workers.evaluator import evaluate

ON_A_REPLAY = ("sac", "dqn")


def log_of(run: Run | Path) -> str:
    return ((run.path if isinstance(run, Run) else run) / "log.txt").read_text()


def train(algorithm: str, path: Path, env: str, **settings: Any) -> Run:
    if algorithm in ON_A_REPLAY:
        return small_sac(path, env, algorithm=algorithm, **settings)
    return small_run(path, env, algorithm=algorithm, **settings)


# --- one worker ---------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", ["sac", "ppo"])
def test_one_worker_with_checkpoints_and_evaluations_has_the_bits_and_scores_of_serial(tmp_path, algorithm):
    often: dict[str, Any] = (
        {"checkpoint_every": 100, "eval_every": 150, "eval_episodes": 2} if algorithm == "sac" else {}
    )
    serial = train(algorithm, tmp_path / "serial", "Pendulum-v1", **often)
    run = train(algorithm, tmp_path / "run", "Pendulum-v1", **often, runtime="hogwild", workers=1)
    assert weights_of(run.path) == weights_of(serial.path)
    last, expected = run.metrics, serial.metrics
    assert last["eval_return_mean"] == expected["eval_return_mean"], "the last evaluation is of the same weights"
    assert_whole(run.path)


def test_a_resume_without_the_replay_warms_up_again_and_restarts_the_update_ratio(tmp_path):
    ratio = Fraction(7, 3)
    layout: dict[str, Any] = {"utd_ratio": "7/3", "save_replay": False, "runtime": "hogwild", "workers": 1}
    stopped = small_sac(tmp_path / "run", **layout, stop_at=120)
    assert_ratio_of_each(stopped.path, ratio)
    assert not list(stopped.path.rglob("replay*"))
    resumed = resume(stopped.path)
    assert "the checkpoint has no replays: they warm up again, and the ratio counts from here" in log_of(resumed)
    assert_ratio_of_each(resumed.path, ratio)
    since = resumed.metrics["env_steps"] - stopped.metrics["env_steps"]
    assert resumed.metrics["updates"] - stopped.metrics["updates"] == updates_due(ratio, SMALL_SAC["warmup"], since)
    assert resumed.metrics["replay_size"] == since
    (worker,) = workers_of(resumed.path)
    assert (worker["done"]["valid"], worker["done"]["updates_before"]) == (since, stopped.metrics["updates"])


# --- several workers ----------------------------------------------------------------------------------------


class Several(NamedTuple):
    algorithm: str
    workers: int
    step: int
    """Rows of a learning step."""
    settings: dict[str, Any]


OFTEN = {"eval_every": 200, "eval_episodes": 3, "eval_time_share": 1, "checkpoint_every": 250}
REPLAYED: dict[str, Any] = {**OFTEN, "chunk_length": 4, "warmup": 100, "utd_ratio": "3/4", "steps": 600}
SEVERAL = [
    Several(
        "a2c",
        2,
        2 * 4 * 16,
        {"unrolls_per_batch": 2, "hogwild": "synced", "hogwild_moments": "per_worker", "frame_skip": 2},
    ),
    Several("sac", 2, 4 * 2, REPLAYED),
    *thorough((Several("sac", 3, 4 * 2, REPLAYED),)),
]


@pytest.fixture(scope="module", params=SEVERAL, ids=lambda several: f"{several.algorithm}-{several.workers}")
def several(request, tmp_path_factory) -> tuple[Several, Run]:
    case = request.param
    path = tmp_path_factory.mktemp("several") / "run"
    layout = {"runtime": "hogwild", "workers": case.workers, "capacity": 3000}
    if case.algorithm == "a2c":
        del layout["capacity"]
    keep, workers = record_pids(path, "worker")
    with pools() as begun:
        run = train(case.algorithm, path, "CartPole-v1", **layout, **case.settings, callbacks=[keep])
        assert len(begun) == 1
    assert len(workers) == case.workers
    assert not any(map(is_alive, workers))
    return case, run


def test_a_run_exceeds_its_steps_by_less_than_a_learning_step_of_each_worker(several):
    case, run = several
    steps = load(run.path / "checkpoints" / "latest").policy["env_steps"]
    wanted = SMALL["steps"] if case.algorithm == "a2c" else REPLAYED["steps"]
    assert run.state == "finished"
    assert wanted <= steps == run.metrics["env_steps"] < wanted + case.workers * case.step
    assert all(worker["done"]["env_steps"] > 0 for worker in workers_of(run.path)), "all took part"
    assert len(workers_of(run.path)) == case.workers


def test_every_metrics_line_counts_all_workers_and_counters_never_decrease(several):
    case, run = several
    lines = lines_of(run.path)
    for name in ("env_steps", "learning_step", "updates", "episodes", "wall_time_s"):
        values = [line[name] for line in lines]
        assert values == sorted(values), name
    workers = workers_of(run.path)
    last = lines[-1]
    assert last["env_steps"] == sum(worker["done"]["env_steps"] for worker in workers)
    assert last["frames"] == case.settings.get("frame_skip", 1) * last["env_steps"]
    assert last["learning_step"] == sum(worker["done"]["learning_steps"] for worker in workers)
    assert last["updates"] == sum(worker["updates"] for worker in workers)
    assert last["actor_restarts"] == last["updates_refused"] == 0
    assert last["episodes"] > 10
    for line in lines:
        lags = [line[f"gradient_staleness_{of}"] for of in ("min", "mean", "max")]
        assert lags == [None] * 3 or 0 <= lags[0] <= lags[1] <= lags[2] <= last["updates"]
    assert any(line["gradient_staleness_mean"] is not None for line in lines)
    assert {line["learner_queue_size_mean"] for line in lines} == {None}
    assert last["learner_grad_time_ms"] > 0


def test_the_final_checkpoint_has_the_last_state_of_each_worker(several):
    case, run = several
    assert_whole(run.path)
    separate = "hogwild_moments" in case.settings
    assert [bool(worker["learner"]["adam"]) for worker in workers_of(run.path)] == [separate] * case.workers


def test_the_training_progress_of_a_worker_is_that_of_all_workers_together(several):
    case, run = several
    wanted = SMALL["steps"] if case.algorithm == "a2c" else REPLAYED["steps"]
    progress = [worker["learner"]["progress"] for worker in workers_of(run.path)]
    assert 1 - case.workers * case.step / wanted <= max(progress) <= 1


def test_each_worker_learns_from_its_own_episodes(several):
    case, run = several
    workers = workers_of(run.path)
    following = [worker["actor"]["policies"][0]["following"]["observation"] for worker in workers]
    for one in range(case.workers):
        for other in range(one):
            assert not np.intersect1d(following[one], following[other]).size
    if case.algorithm == "sac":
        rows = load(run.path / "checkpoints" / "latest", with_replay=True).replay
        assert rows is not None
        seen = [
            np.concatenate([rows[name].ravel() for name in rows if name.startswith(f"{worker}/") and "obs" in name])
            for worker in range(case.workers)
        ]
        assert all(len(each) > 100 for each in seen)
        for one in range(case.workers):
            for other in range(one):
                assert len(np.intersect1d(seen[one][seen[one] != 0], seen[other])) < 5


def test_each_worker_keeps_the_update_ratio(several):
    case, run = several
    if case.algorithm != "sac":
        pytest.skip("the ratio is of a replay")
    assert_ratio_of_each(run.path, Fraction(3, 4))
    valid = sum(worker["done"]["valid"] for worker in workers_of(run.path))
    assert valid == run.metrics["env_steps"] == run.metrics["replay_size"], "the replays hold all"
    due = updates_due(Fraction(3, 4), 100, valid)
    assert due - case.workers < run.metrics["updates"] <= due


def test_evaluations_use_a_snapshot_and_best_has_the_evaluated_weights(several):
    case, run = several
    if case.algorithm != "sac":
        pytest.skip("it was not evaluated")
    assert run.metrics["evaluations"] >= 1  # some are left out while another one runs
    best = load(run.path / "checkpoints" / "best")
    policy = policy_of(read_spec(best.policy["policy"]), best.weights)
    envs = make_envs("CartPole-v1", min(3, EVALUATION_ENVS), seed=0, role="evaluation")
    result = evaluate({DEFAULT_POLICY: policy}, EvaluationEnvs.of_one(envs), episodes=3, seed=0)
    envs.close()
    assert result.return_mean == run.metrics["best_eval_return_mean"]
    assert offbeat("eval", run.path, "--episodes", 2).code == 0


def test_workers_interrupted_in_mid_episode_resume_their_episodes(tmp_path):
    path = tmp_path / "run"
    layout: dict[str, Any] = {"runtime": "hogwild", "workers": 2, "chunk_length": 24, "normalize_observations": True}
    layout |= {"steps": 10**6, "log_every": 100, "capacity": 400, "prioritized": True, "hogwild": "synced"}

    def interrupt(line: dict[str, Any]) -> None:
        if line["updates"] > wanted and not sent:
            sent.append(line)
            os.kill(os.getpid(), signal.SIGINT)

    wanted, sent = 50, []
    stopped = small_sac(path, **layout, callbacks=[interrupt])
    assert (stopped.state, stopped.exit_code, stopped.reason) == ("interrupted", 130, "stopped by SIGINT")
    assert_whole(path)
    assert_ratio_of_each(path, SMALL_RATIO)
    before = [worker["done"]["env_steps"] for worker in workers_of(path)]
    resumed = resume(path, steps=stopped.metrics["env_steps"] + 100)
    assert resumed.state == "finished"
    assert "the replays of 2 workers restored; unfinished episodes continue" in log_of(resumed)
    assert_whole(path)
    assert_ratio_of_each(path, SMALL_RATIO)
    assert sum(worker["done"]["env_steps"] for worker in workers_of(path)) == resumed.metrics["env_steps"]
    assert all(now["done"]["env_steps"] >= then for now, then in zip(workers_of(path), before, strict=True))
    state = load(path / "checkpoints" / "latest").state
    assert state is not None
    assert state["learner"]["algorithm"]["observations"]["count"] == resumed.metrics["env_steps"], "each row once"


def test_a_worker_with_a_slow_learning_step_is_saved_after_the_step(tmp_path):
    slow: dict[str, Any] = {"imports": ("tests.sample_envs.run_envs",), "unroll_length": 100, "envs_per_actor": 4}
    layout: dict[str, Any] = {"runtime": "hogwild", "workers": 1, "steps": 20_000}
    run = small_run(tmp_path / "run", "runs/Unhurried-v0", **slow, **layout, callbacks=[stop_from(1)])
    assert (run.state, run.reason) == ("interrupted", "stopped by the callback <lambda>")
    workers = workers_of(run.path)
    assert sum(worker["done"]["env_steps"] for worker in workers) == run.metrics["env_steps"] > 0
    for worker in workers:
        assert worker["learner"]["algorithm"]["observations"]["count"] == worker["done"]["env_steps"]


def test_a_failed_run_is_saved_whole_and_resumes_although_a_worker_did_not_pause_in_time(tmp_path):
    def fail(_line: Any) -> None:
        raise LookupError("the callback fails")

    def state_after_an_update(self: HogwildWorkforce) -> dict[str, Any]:
        made = self._board.updates[0, 0]
        while begun and self._board.updates[0, 0] == made and begun[0]._supervisor.processes[0].is_alive():
            time.sleep(0.001)
        return state(self)

    path, state = tmp_path / "run", HogwildWorkforce.state
    with (
        pools() as begun,
        patch.object(loop, "DRAIN_S", 0.0),
        patch.object(HogwildWorkforce, "state", state_after_an_update),
        pytest.raises(LookupError),
    ):
        small_run(path, runtime="hogwild", workers=1, steps=100_000, epochs=500, log_every=64, callbacks=[fail])
    assert workers_of(path)[0]["learner"] is None, "it was in the middle of its learning step"
    assert_whole(path)
    assert resume(path, stop_at=200, epochs=1).state == "interrupted"


def test_no_transition_crosses_an_episode_end_after_a_resume_without_snapshots(tmp_path):
    path = tmp_path / "run"
    layout: dict[str, Any] = {**LINKS, "runtime": "hogwild", "workers": 1, "capacity": 3000, "chunk_length": 4}
    stopped = small_sac(path, "links/Linked-v0", **layout, stop_at=200)
    resumed = resume(path)
    assert "they are cut, and new episodes start" in log_of(resumed)
    assert linked_rows(path) == resumed.metrics["env_steps"] > stopped.metrics["env_steps"] >= 200


# --- into and out of other runtimes -------------------------------------------------------------------------

FROZEN: dict[str, Any] = {"learning_rate": 1e-30, "learning_rate_schedule": "constant"}


def test_init_from_copies_weights_and_normalizers_from_and_to_other_runtimes(tmp_path):
    first = small_run(tmp_path / "first", steps=512)
    of_hogwild: dict[str, Any] = {"runtime": "hogwild", "workers": 1, "steps": 200, **FROZEN}
    second = small_run(tmp_path / "second", **of_hogwild, init_from=str(first.path))
    third = small_run(tmp_path / "third", runtime="threads", steps=200, **FROZEN, init_from=str(second.path))
    assert "initial weights and normalisation are those of" in log_of(second)
    kept = [load(run.path / "checkpoints" / "latest") for run in (first, second, third)]
    names = [name for name in kept[0].weights if name.startswith(("policy_", "critic_"))]
    assert len(names) >= 6
    for name in names:
        np.testing.assert_array_equal(kept[1].weights[name], kept[0].weights[name], err_msg=name)
        np.testing.assert_array_equal(kept[2].weights[name], kept[0].weights[name], err_msg=name)
    counts = [each.state["learner"]["algorithm"]["observations"]["count"] for each in kept if each.state]
    steps = [run.metrics["env_steps"] for run in (first, second, third)]
    assert counts == [steps[0], steps[0] + steps[1], sum(steps)]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    arguments = small_arguments(folder / "free", steps=128)
    said = offbeat(*arguments[:3], "--runtime", "hogwild", "--workers", "2", *arguments[3:])
    assert said.code == 0, said
    small_run(folder / "bound", steps=128)
    for name, before, after in (
        ("fewer", "workers = 2", "workers = 1"),
        ("alone", 'hogwild_moments = "none"', 'hogwild_moments = "per_worker"'),
    ):
        shutil.copytree(folder / "free", folder / name, symlinks=True)
        text = (folder / name / "config.toml").read_text()
        assert before in text
        (folder / name / "config.toml").write_text(text.replace(before, after))
    return folder


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        *(
            (f"free --runtime {other}", ["used the hogwild runtime", f"cannot be resumed in {other}", "--init-from"])
            for other in ("serial", "threads", "processes")
        ),
        ("bound --runtime hogwild", ["used the serial runtime", "cannot be resumed in hogwild", "--init-from"]),
        ("fewer", ["workers is 2 in the checkpoint and 1 now", "--init-from"]),
        ("alone", ["hogwild_moments is none in the checkpoint and per_worker now", "--init-from"]),
    ],
)
def test_a_resume_cannot_change_from_or_to_hogwild_nor_the_number_of_workers(prepared, monkeypatch, arguments, says):
    monkeypatch.chdir(prepared)
    before = contents(prepared)
    said = offbeat("resume", *arguments.split(), "--steps", 500)
    assert said.code == 2, said
    assert [fragment for fragment in says if fragment not in said.err] == [], said
    assert contents(prepared) == before


@pytest.mark.thorough
def test_a_finished_run_resumed_with_more_steps_has_the_bits_of_serial(tmp_path):
    constant: dict[str, Any] = {"learning_rate_schedule": "constant", "clip_schedule": "constant"}
    whole = small_run(tmp_path / "whole", steps=600, **constant)
    first = small_run(tmp_path / "first", steps=300, **constant, runtime="hogwild", workers=1)
    assert resume(first.path, steps=600).state == "finished"
    assert weights_of(first.path) == weights_of(whole.path)


def test_the_command_line_trains_with_hogwild_and_reports_its_workers(prepared):
    assert "lock-free: 2 workers have work for" in log_of(prepared / "free")
