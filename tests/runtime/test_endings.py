"""However a run ends, what was learned is kept, and what belongs to another timeline is not."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from itertools import count
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from tests.sample_envs import run_envs
from tests.support.runs import (
    OFFBEAT,
    Started,
    lines_of,
    run_python,
    small_arguments,
    small_run,
    status_of,
    stop_from,
    stop_in_evaluation,
    untimed,
    weights_of,
)
from tests.support.thorough import thorough

from offbeat.api.callbacks.callback import Callback
from offbeat.api.resume import resume
from offbeat.core.errors import ConfigError, EnvFailed, RunFailed
from offbeat.core.process import stop_signals
from offbeat.metrics.timings import KINDS
from offbeat.run_directory import checkpoint
from offbeat.run_directory.store import CheckpointStore
from offbeat.runtime.evaluation.evaluators import InlineEvaluator, Result
from offbeat.runtime.evaluation.plan import EvaluationPlan
from offbeat.runtime.loop import signals
from offbeat.runtime.serial import SerialActing

RUN_ENVS = "tests.sample_envs.run_envs"


def test_a_run_whose_callback_raises_before_the_first_checkpoint_is_saved(tmp_path):
    def third_line_fails(line):
        if line["learning_step"] >= 3:
            raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        small_run(tmp_path / "run", callbacks=[third_line_fails])
    learned = lines_of(tmp_path / "run")[-1]["env_steps"]
    assert status_of(tmp_path / "run")["state"] == "failed"
    finished = resume(tmp_path / "run")
    assert finished.state == "finished"
    assert finished.metrics["env_steps"] > learned > 0


def test_a_run_whose_env_raises_an_error_that_is_no_exception_is_saved(tmp_path, monkeypatch):
    wait, waits = SerialActing.wait, count(1)

    def wait_or_fail(acting: SerialActing, *arguments: Any) -> None:
        if next(waits) > 3:
            raise asyncio.CancelledError
        wait(acting, *arguments)

    monkeypatch.setattr(SerialActing, "wait", wait_or_fail)
    with pytest.raises(asyncio.CancelledError):
        small_run(tmp_path / "run")
    assert checkpoint.load(tmp_path / "run" / "checkpoints" / "latest").policy["env_steps"] > 0


def signals_from(env_steps: int, *numbers: signal.Signals) -> Any:
    """A callback that sends signals to this process, one after the other, from so many env steps on."""
    left = list(numbers)

    def send(line: dict[str, Any]) -> None:
        while line["env_steps"] >= env_steps and left:
            os.kill(os.getpid(), left.pop(0))

    return send


def slow_down_saves(monkeypatch: pytest.MonkeyPatch, *, with_signal: bool) -> None:
    """Let a save take twice as long as the grace after a signal, which may come in the middle of the second."""
    write, saves = checkpoint.write, count(1)

    def slowly(*arguments: Any) -> None:
        if next(saves) == 2 and with_signal:
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.6)
        write(*arguments)

    monkeypatch.setattr(signals, "GRACE_S", 0.3)
    monkeypatch.setattr("offbeat.run_directory.store.write", slowly)


LINES: dict[str, Any] = {"steps": 512, "log_every": 128, "checkpoint_every": 256}


@pytest.mark.parametrize(
    "settings",
    [
        {"runtime": "serial"},
        {"runtime": "threads", "max_lag": 1},
        {"runtime": "serial", "stop_at": 250},
        {"runtime": "serial", "callbacks": [stop_from(256)]},
        {"runtime": "serial", "eval_every": 256, "eval_episodes": 1, "stop_at": 250},
        {"algorithm": "a2c", "runtime": "hogwild", "workers": 1, "callbacks": [stop_from(256)]},
    ],
    ids="-".join,
)
def test_a_learning_step_has_one_metrics_line_also_at_the_end_of_a_run_and_after_a_resume(settings, tmp_path):
    run = small_run(tmp_path / "run", **LINES, **settings)
    steps = [line["learning_step"] for line in lines_of(run.path)]
    assert len(steps) == len(set(steps)) > 0
    assert (
        lines_of(run.path)[-1]["env_steps"] == checkpoint.load(run.path / "checkpoints" / "latest").policy["env_steps"]
    )
    resume(run.path, steps=768 if run.state == "finished" else None)
    steps = [line["learning_step"] for line in lines_of(run.path)]
    assert len(steps) == len(set(steps)) > 1


@pytest.mark.parametrize("stop_at", [256, 300])
def test_the_lines_of_a_resumed_run_are_those_of_one_that_was_not_stopped(stop_at, tmp_path):
    whole = small_run(tmp_path / "whole", runtime="serial", **LINES)
    stopped = small_run(tmp_path / "stopped", runtime="serial", stop_at=stop_at, **LINES)
    resumed = {line["learning_step"]: untimed(line) for line in lines_of(resume(stopped.path).path)}
    for line in lines_of(whole.path):
        assert resumed[line["learning_step"]] == untimed(line)


LAST_EVALUATION: dict[str, Any] = {
    "steps": 256,
    "checkpoint_every": 128,
    "eval_every": 256,
    "eval_episodes": 1,
    "evaluator": "inline",
    "lag": "exact",
    "runtime": "serial",
}
"""The only evaluation is that at the end of the run."""


@pytest.mark.parametrize("end", [{"stop_at": 420}, {"steps": 448}])
def test_the_times_of_the_last_line_are_those_of_one_thread_in_serial_however_long_the_last_save_takes(
    end, tmp_path, monkeypatch
):
    save = CheckpointStore.save

    def save_slowly(store: CheckpointStore, env_steps: int, saved: checkpoint.Checkpoint, names: Any) -> Path:
        time.sleep(2.0)
        return save(store, env_steps, saved, names)

    monkeypatch.setattr(CheckpointStore, "save", save_slowly)
    lines = lines_of(small_run(tmp_path / "run", **end, log_every=256, log_every_s=1000.0).path)
    assert len(lines) == 2
    for line in lines:
        assert 0 < sum(line[f"time_{kind}"] for kind in KINDS) < 1.01


def env_steps_of(run: Path) -> Any:
    """Return the env steps of the latest checkpoint."""
    return checkpoint.load(run / "checkpoints" / "latest").policy["env_steps"]


def test_a_run_that_is_killed_in_its_last_evaluation_learns_again_from_its_last_checkpoint_on_and_evaluates(tmp_path):
    kill = "InlineEvaluator.poll = lambda *_: os.kill(os.getpid(), signal.SIGKILL)"
    code = f"import os, signal; from offbeat.runtime.evaluation.evaluators import InlineEvaluator; {kill}; {OFFBEAT}"
    killed = tmp_path / "killed"
    assert run_python(code, *small_arguments(killed, **LAST_EVALUATION), folder=tmp_path).code == -signal.SIGKILL
    assert 128 <= env_steps_of(killed) < 256
    assert status_of(killed)["state"] == "running"
    whole = small_run(tmp_path / "whole", **LAST_EVALUATION).path
    resume(killed)
    assert status_of(killed)["state"] == "finished"
    assert [weights_of(killed, name) for name in ("latest", "best")] == [weights_of(whole)] * 2
    assert list(map(untimed, lines_of(killed))) == list(map(untimed, lines_of(whole)))
    assert lines_of(whole)[-1]["evaluations"] == 1


def test_a_run_whose_last_evaluation_fails_is_finished_with_what_it_has_learned(tmp_path, monkeypatch):
    monkeypatch.setattr(InlineEvaluator, "poll", lambda *_: Result(None, 0.1, "the env has no end"))
    failed = small_run(tmp_path / "failed", **LAST_EVALUATION)
    assert (failed.state, failed.exit_code) == ("finished", 0)
    assert env_steps_of(failed.path) == failed.metrics["env_steps"] >= 256
    with pytest.raises(ConfigError, match="nothing is left to do"):
        resume(failed.path)


@pytest.mark.parametrize("runtime", ["serial", "processes", *thorough("threads")])
def test_a_resume_makes_only_the_last_evaluation_that_a_signal_has_stopped(tmp_path, monkeypatch, runtime):
    settings = LAST_EVALUATION | {"runtime": runtime, "max_lag": 1}
    whole = small_run(tmp_path / "whole", **settings)
    with monkeypatch.context() as patched:
        patched.setattr(InlineEvaluator, "poll", stop_in_evaluation)
        stopped = small_run(tmp_path / "stopped", **settings)
    assert (stopped.state, stopped.exit_code, stopped.metrics["evaluations"]) == ("interrupted", 130, 0)
    assert stopped.reason.endswith("stopped by SIGTERM before its last evaluation")
    evaluated = resume(stopped.path)
    assert (evaluated.state, evaluated.exit_code) == ("finished", 0)
    assert evaluated.reason == whole.reason
    assert untimed(evaluated.metrics) == untimed(whole.metrics)
    assert [weights_of(stopped.path, name) for name in ("latest", "best")] == [weights_of(whole.path)] * 2
    longer = [resume(run.path, steps=384) for run in (whole, stopped)]
    assert untimed(longer[0].metrics) == untimed(longer[1].metrics)
    assert weights_of(whole.path) == weights_of(stopped.path)


@pytest.mark.parametrize(
    ("runtime", "limit"),
    [("serial", {"time": 1e-9}), ("processes", {"stop_at": 256}), *thorough(("threads", {"stop_at": 256}))],
    ids=str,
)
def test_a_resume_to_the_same_limit_makes_only_the_evaluation_that_a_signal_has_stopped(
    tmp_path, monkeypatch, runtime, limit
):
    settings = LAST_EVALUATION | {"steps": 512, "eval_every": limit.get("stop_at", 1), "runtime": runtime, "max_lag": 0}
    whole = small_run(tmp_path / "whole", **settings, **limit)
    with monkeypatch.context() as patched:
        patched.setattr(InlineEvaluator, "poll", stop_in_evaluation)
        stopped = small_run(tmp_path / "stopped", **settings, **limit)
    assert (stopped.exit_code, stopped.metrics["evaluations"]) == (130, 0)
    assert stopped.reason.endswith(", and stopped by SIGTERM before its last evaluation")
    evaluated = resume(stopped.path, **limit)
    assert (evaluated.exit_code, evaluated.reason) == (0, whole.reason)
    assert untimed(evaluated.metrics) == untimed(whole.metrics)
    with pytest.raises(ConfigError, match="nothing is left to do"):
        resume(stopped.path, **limit)
    assert untimed(resume(stopped.path).metrics) == untimed(resume(whole.path).metrics)
    assert weights_of(whole.path) == weights_of(stopped.path)


@pytest.mark.parametrize("limit", [{}, {"stop_at": 256}], ids=str)
def test_a_resume_makes_the_last_evaluation_once_that_a_signal_has_stopped_in_a_lock_free_run(
    tmp_path, monkeypatch, limit
):
    settings: dict[str, Any] = {key: value for key, value in LAST_EVALUATION.items() if key != "lag"}
    settings |= {"algorithm": "a2c", "runtime": "hogwild", "workers": 1, "steps": 512 if limit else 256}
    with monkeypatch.context() as patched:
        patched.setattr(InlineEvaluator, "poll", stop_in_evaluation)
        stopped = small_run(tmp_path / "run", **settings, **limit)
    assert (stopped.state, stopped.metrics["evaluations"]) == ("interrupted", 0)
    evaluated = resume(stopped.path, **limit)
    assert (evaluated.exit_code, evaluated.metrics["evaluations"]) == (0, 1)
    assert evaluated.metrics["env_steps"] == stopped.metrics["env_steps"]
    with pytest.raises(ConfigError, match="nothing is left to do"):
        resume(stopped.path, **limit)


def test_a_resume_makes_an_evaluation_that_was_due_after_a_signal(tmp_path):
    settings = LAST_EVALUATION | {
        "steps": 512,
        "checkpoint_every": 256,
        "max_lag": 3,
        "log_every": 64,
        "eval_every": 400,
    }
    whole = small_run(tmp_path / "whole", **settings)
    stopped = small_run(tmp_path / "stopped", **settings, callbacks=[signals_from(320, signal.SIGTERM)])
    assert 400 <= stopped.metrics["env_steps"] < 512
    assert stopped.metrics["evaluations"] == 0
    assert resume(stopped.path).metrics["evaluations"] == whole.metrics["evaluations"] == 2


def test_a_resume_makes_an_evaluation_that_a_signal_has_stopped_of_the_same_weights(tmp_path, monkeypatch):
    settings = LAST_EVALUATION | {"eval_every": 128}
    whole = small_run(tmp_path / "whole", **settings)
    with monkeypatch.context() as patched:
        patched.setattr(InlineEvaluator, "poll", stop_in_evaluation)
        stopped = small_run(tmp_path / "stopped", **settings)
    assert stopped.metrics["evaluations"] == 0
    assert untimed(resume(stopped.path).metrics) == untimed(whole.metrics)


def test_the_result_of_an_evaluation_that_a_resume_makes_up_for_has_its_own_line(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(InlineEvaluator, "poll", stop_in_evaluation)
        stopped = small_run(tmp_path / "run", **LAST_EVALUATION | {"eval_every": 128})
    last = resume(stopped.path).metrics
    evaluated = [line["eval_env_steps"] for line in lines_of(stopped.path) if line["evaluations"]]
    assert evaluated == [stopped.metrics["env_steps"], last["env_steps"]]


def test_a_final_save_longer_than_the_grace_period_after_a_signal_is_completed(tmp_path, monkeypatch):
    slow_down_saves(monkeypatch, with_signal=False)
    run = small_run(tmp_path / "run", callbacks=[signals_from(400, signal.SIGINT)])
    assert (run.state, run.reason, run.exit_code) == ("interrupted", "stopped by SIGINT", 130)
    saved = checkpoint.load(run.path / "checkpoints" / "latest").policy["env_steps"]
    assert saved == lines_of(run.path)[-1]["env_steps"] >= 400


def test_a_signal_that_is_sent_twice_at_once_lets_the_run_save(tmp_path):
    """As `timeout` does, to the process and to its group."""
    run = small_run(tmp_path / "run", callbacks=[signals_from(400, signal.SIGTERM, signal.SIGTERM)])
    assert (run.state, run.reason, run.exit_code) == ("interrupted", "stopped by SIGTERM", 130)
    assert checkpoint.load(run.path / "checkpoints" / "latest").policy["env_steps"] >= 400


@pytest.mark.parametrize("during_an_evaluation", [True, False])
def test_after_a_signal_no_evaluation_starts(tmp_path, monkeypatch, during_an_evaluation):
    evaluate, started = EvaluationPlan.evaluate, list[EvaluationPlan]()

    def signalled(plan: EvaluationPlan, *arguments: Any, **settings: Any) -> Any:
        started.append(plan)
        if during_an_evaluation:
            os.kill(os.getpid(), signal.SIGINT)
        return evaluate(plan, *arguments, **settings)

    monkeypatch.setattr(EvaluationPlan, "evaluate", signalled)
    settings: dict[str, Any] = {"eval_every": 64, "eval_episodes": 1, "evaluator": "inline", "max_lag": 3}
    callbacks = [] if during_an_evaluation else [signals_from(64, signal.SIGINT)]
    run = small_run(tmp_path / "run", **settings, lag="exact", callbacks=callbacks)
    assert run.reason == "stopped by SIGINT"
    assert run.metrics["learning_step"] > 2
    assert (len(started), run.metrics["evaluations"]) == (1, 0 if during_an_evaluation else 1)


def test_a_second_signal_ends_the_run_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(stop_signals, "REPEATED_WITHIN_S", 0.0)
    run = small_run(tmp_path / "run", callbacks=[signals_from(400, signal.SIGINT, signal.SIGTERM)])
    assert (run.state, run.exit_code) == ("interrupted", 130)
    assert run.reason.startswith("a second signal was received, so no checkpoint of this moment was saved: ")
    assert "env steps learned from since the last checkpoint, are lost" in run.reason


class StopsAtTheStart(Callback):
    """Sends two signals before anything is learned."""

    def on_start(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_run_that_has_saved_all_that_it_has_learned_loses_only_the_unfinished_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(stop_signals, "REPEATED_WITHIN_S", 0.0)
    run = small_run(tmp_path / "run", callbacks=[StopsAtTheStart()])
    assert run.reason.endswith("the unfinished batch is lost, and the last checkpoint has all that was learned before")


def test_a_save_during_a_signal_is_completed_and_no_other_is_started(tmp_path, monkeypatch):
    slow_down_saves(monkeypatch, with_signal=True)
    run = small_run(tmp_path / "run", checkpoint_every=512)
    assert (run.state, run.exit_code) == ("interrupted", 130)
    assert run.reason.startswith("the run could not pause within 0.3 seconds of the signal, so no checkpoint of this")
    assert 512 <= checkpoint.load(run.path / "checkpoints" / "latest").policy["env_steps"] < 700
    assert resume(run.path).state == "finished"


SIGNALLED_WHILE_IT_CLOSES = """
import os, signal, sys
from offbeat.cli.train import Train
from offbeat.api import train
from offbeat.core.process import stop_signals
from offbeat.runtime.loop.training_loop import TrainingLoop

stop_signals.REPEATED_WITHIN_S = 0.0
close = TrainingLoop.close
def close_with_signals(self):
    ending = close(self)
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGINT)
    return ending
TrainingLoop.close = close_with_signals
sys.argv = ["offbeat", *sys.argv[1:]]
from offbeat.cli.entry import main
main()
"""


def test_signals_while_a_run_closes_give_no_traceback_and_leave_it_complete(tmp_path):
    arguments = small_arguments(tmp_path / "run")
    said = Started(arguments, tmp_path, SIGNALLED_WHILE_IT_CLOSES).end()
    assert said.code == 130
    assert "Traceback" not in said.err
    assert status_of(tmp_path / "run")["state"] == "interrupted"
    assert checkpoint.load(tmp_path / "run" / "checkpoints" / "latest").state is not None


@pytest.mark.parametrize("fails", [False, True], ids=["stopped", "failed"])
def test_signals_while_a_run_that_did_not_start_closes_do_not_interrupt_its_end(tmp_path, monkeypatch, fails):
    monkeypatch.setattr(stop_signals, "REPEATED_WITHIN_S", 0.0)
    close, closed = SerialActing.close, list[SerialActing]()

    def send_two_signals() -> None:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)

    def start(*_: Any) -> None:
        if fails:
            raise RunFailed("no server")
        send_two_signals()

    def close_with_signals(acting: SerialActing) -> None:
        send_two_signals()
        close(acting)
        closed.append(acting)

    monkeypatch.setattr(SerialActing, "start", start)
    monkeypatch.setattr(SerialActing, "close", close_with_signals)
    if fails:
        with pytest.raises(RunFailed, match="no server"):
            small_run(tmp_path / "run")
    else:
        assert small_run(tmp_path / "run").state == "interrupted"
    assert closed


def test_the_newest_full_checkpoints_are_kept_regardless_of_the_best(tmp_path):
    run = tmp_path / "run"
    small_run(run, steps=512, checkpoint_every=96, checkpoints_kept=3, eval_every=96, eval_episodes=1, max_lag=1)
    folder = run / "checkpoints"
    full = [path.parent.name for path in folder.glob("step-*/state.json")]
    best = (folder / "best").resolve().name
    assert len([name for name in full if name != best]) >= 2
    assert {path.name for path in folder.glob("step-*")} == {*full, best}
    assert len(set(full) - {best}) <= 3


# --- before the first checkpoint on the way -----------------------------------------------------------------


def test_a_run_that_fails_before_learning_logs_the_traceback_and_resumes_from_its_start(tmp_path, monkeypatch):
    run, late = tmp_path / "mine" / "run", {"unroll_length": 250, "imports": (RUN_ENVS,), "steps": 2000}
    with pytest.raises(EnvFailed) as failed:
        small_run(run, "runs/RaisesLate-v0", **late)
    lines, note = failed.value.__notes__
    assert "run_envs.py" in lines
    assert f"offbeat resume {run}" in note
    assert status_of(run)["state"] == "failed"
    assert "in step" in (run / "log.txt").read_text()
    assert checkpoint.load(run / "checkpoints" / "latest").policy["env_steps"] == 0
    monkeypatch.setattr(run_envs, "FAULTY", False)
    assert resume(run).state == "finished"
    small_run(tmp_path / "whole", "runs/RaisesLate-v0", **late)
    assert weights_of(run) == weights_of(tmp_path / "whole")


def test_a_refused_run_deletes_the_folders_created_for_it(tmp_path):
    (tmp_path / "mine").mkdir()
    unsendable: Any = lambda: run_envs.Wave()  # noqa: E731, PLW0108 - no other process finds it
    gym.register("tests/Unsendable-v0", unsendable)
    try:
        with pytest.raises(ConfigError, match="cannot be sent to another process"):
            small_run(tmp_path / "mine" / "a" / "b", "tests/Unsendable-v0", runtime="processes")
    finally:
        del gym.registry["tests/Unsendable-v0"]
    assert list((tmp_path / "mine").iterdir()) == []


def test_a_failed_run_saves_the_weights_of_the_last_finished_learning_step(tmp_path):
    def fails(line):
        if line["learning_step"] == 5:
            raise ValueError("stop here")

    with pytest.raises(ValueError, match="stop here"):
        small_run(tmp_path / "failed", callbacks=[fails])
    whole = small_run(tmp_path / "whole", callbacks=[lambda line: "stop" if line["learning_step"] == 4 else None])
    assert whole.metrics["learning_step"] == 5
    assert weights_of(tmp_path / "failed") == weights_of(tmp_path / "whole")
