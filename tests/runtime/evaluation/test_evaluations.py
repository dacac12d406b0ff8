"""Evaluations run in a supervised process: what fails there costs an evaluation, not the run."""

from __future__ import annotations

import errno
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec
from tests.sample_envs.run_envs import Wave
from tests.support.runs import (
    SMALL,
    CommandResult,
    lines_of,
    offbeat,
    small_arguments,
    small_run,
    status_of,
    wait_until,
    weights_of,
)
from tests.support.thorough import thorough

import offbeat as package
from offbeat.config.env import CLASSIC
from offbeat.config.resolve import resolve
from offbeat.config.run_config import RunConfig
from offbeat.core.errors import RunFailed
from offbeat.envs.call_watch import UNWATCHED
from offbeat.run_directory.checkpoint import load
from offbeat.runtime.children import supervisor
from offbeat.runtime.children.launch import start_worker
from offbeat.runtime.children.supervisor import Supervisor
from offbeat.runtime.evaluation import schedule as evaluations
from offbeat.runtime.evaluation.evaluators import InlineEvaluator, ProcessEvaluator, Result
from offbeat.runtime.evaluation.plan import EvaluatedPolicy, EvaluationPlan
from offbeat.runtime.loop.run_metrics import RunMetrics
from offbeat.runtime.runtimes import build

ENVS = ("tests.sample_envs.evaluated_envs",)
EVALUATED: dict[str, Any] = {"eval_every": 512, "eval_episodes": 3, "imports": ENVS}
PROCESSES: dict[str, Any] = EVALUATED | {"runtime": "processes", "actors": 2, "max_lag": 1}


pytestmark = pytest.mark.usefixtures("in_temporary_folder")


def train(env: str, **settings: Any) -> CommandResult:
    return offbeat(*small_arguments(Path("run"), f"evaluated/{env}-v0", **settings))


def last_line() -> dict[str, Any]:
    return lines_of(Path("run"))[-1]


@pytest.mark.parametrize("settings", [EVALUATED, *thorough(PROCESSES)], ids=lambda s: s.get("runtime", "serial"))
def test_an_env_that_exits_in_evaluations_does_not_end_the_run(settings):
    said = train("ExitsInEvaluations", **settings, restart_budget=1)
    assert said.code == 0, said.err
    last = last_line()
    assert last["evaluations"] == 0
    assert last["evaluations_failed"] >= 1
    assert last["actor_restarts"] == 0
    assert "evaluation failed, and training continues" in said.err
    assert "ended with exit code 3" in said.err
    assert not (Path("run") / "checkpoints" / "best").exists()


@pytest.mark.parametrize("env", ["RaisesInEvaluations", "HangsInCloseOnceRaised"])
def test_an_env_that_raises_in_an_evaluation_is_reported_with_its_env_steps(monkeypatch, env):
    monkeypatch.setattr(supervisor, "ENV_CLOSE_S", 0.5)
    said = train(env, **EVALUATED, restart_budget=1, step_timeout_s=1, reset_timeout_s=1)
    assert said.code == 0, said.err
    assert "an evaluation failed after 12 env steps" in said.err  # 4 in each of 3 columns
    assert "ZeroDivisionError: the wave has no length" in said.err


def test_an_evaluation_whose_env_hangs_is_repeated():
    said = train("HangsInOneEvaluation", **EVALUATED, step_timeout_s=2, reset_timeout_s=2)
    assert said.code == 0, said.err
    last = last_line()
    assert (last["evaluations"], last["evaluations_failed"], last["evaluator_restarts"]) == (2, 0, 1)
    assert "evaluator 0" in said.err
    assert "was in a call of its envs that did not return in time" in said.err


def test_an_evaluation_whose_env_hangs_in_close_counts(monkeypatch):
    monkeypatch.setattr(supervisor, "CLOSE_S", 1.0)
    said = train("HangsInClose", **EVALUATED, step_timeout_s=1, reset_timeout_s=1, stall_timeout_s=5)
    assert said.code == 0, said.err
    last = last_line()
    assert (last["evaluations"], last["evaluations_failed"], last["evaluator_restarts"]) == (2, 0, 1)
    assert "(stall_timeout_s)" in said.err


def test_a_killed_evaluator_is_restarted(monkeypatch):
    monkeypatch.setattr(evaluations, "POLL_INTERVAL_S", 0.01)
    killed: list[int] = []

    def kill() -> None:
        wait_until(lambda: evaluators() != [])
        killed.append(evaluators()[0])
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    said = train("SlowInEvaluations", **EVALUATED)
    killer.join(10)
    assert said.code == 0, said.err
    assert len(killed) == last_line()["evaluator_restarts"] == 1
    assert last_line()["evaluations"] == 2
    assert "was killed by SIGKILL" in said.err
    assert "no longer exact" not in said.err


def kill_the_actor_in_an_evaluation(
    monkeypatch: pytest.MonkeyPatch, first: Callable[[], None] = lambda: None
) -> list[bool]:
    """Let the only actor die in the first evaluation, after a call of `first`.

    Return a list that gets whether it was then restarted at once.
    """
    poll, actors, restarted = InlineEvaluator.poll, list[int](), list[bool]()

    def kill_and_poll(evaluator: InlineEvaluator, seconds: float, on_step: Callable[[], None]) -> Result:
        if not actors:
            first()
            actors.extend(pid for role, pid in processes() if role == "actor")
            os.kill(actors[0], signal.SIGKILL)
            os.waitid(os.P_PID, actors[0], os.WEXITED | os.WNOWAIT)
            on_step()
            restarted.append(("actor", actors[0]) not in processes())
        return poll(evaluator, seconds, on_step)

    monkeypatch.setattr("offbeat.runtime.children.supervised.POLL_EVERY_S", 0.0)
    monkeypatch.setattr(InlineEvaluator, "poll", kill_and_poll)
    return restarted


ONE_ACTOR: dict[str, Any] = {"runtime": "processes", "actors": 1, "evaluator": "inline", "eval_episodes": 1}


def test_an_actor_that_dies_during_an_evaluation_for_which_the_learner_waits_is_restarted_at_once(monkeypatch):
    restarted = kill_the_actor_in_an_evaluation(monkeypatch)
    run = small_run(Path("run"), **ONE_ACTOR, eval_every=512)
    assert (run.state, run.metrics["evaluations"], restarted) == ("finished", 2, [True])


def test_a_run_fails_during_an_evaluation_if_it_loses_an_actor(monkeypatch):
    kill_the_actor_in_an_evaluation(monkeypatch)
    with pytest.raises(RunFailed, match="restart_budget of 0 is used up"):
        small_run(Path("run"), **ONE_ACTOR, eval_every=512, restart_budget=0)
    assert package.load("run").trained.env_steps >= 512


def test_a_run_that_loses_an_actor_during_its_last_evaluation_is_finished(monkeypatch):
    kill_the_actor_in_an_evaluation(monkeypatch)
    run = small_run(Path("run"), **ONE_ACTOR, eval_every=1024, restart_budget=0)
    assert (run.state, run.metrics["evaluations"]) == ("finished", 1)


def test_an_actor_that_dies_in_the_last_evaluation_after_it_has_sent_its_state_is_not_missed(monkeypatch):
    supervisors, init = list[Any](), Supervisor.__init__

    def noted(supervisor: Any, *arguments: Any, **named: Any) -> None:
        init(supervisor, *arguments, **named)
        supervisors.append(supervisor)

    monkeypatch.setattr(Supervisor, "__init__", noted)

    def wait_for_the_state() -> None:
        (actor,) = supervisors[0].processes
        while actor.paused[0] < 0:
            actor.take_reports(0.05)

    kill_the_actor_in_an_evaluation(monkeypatch, wait_for_the_state)
    run = small_run(Path("run"), **ONE_ACTOR, eval_every=512, stop_at=512, restart_budget=0, max_lag=0, lag="exact")
    assert run.state == "interrupted"
    state = load(run.path / "checkpoints" / "latest").state
    assert state is not None
    assert state["actors"] != [None]


def processes() -> list[tuple[str, int]]:
    """Return role and process id of the processes of the run."""
    return [(process["role"], process["pid"]) for process in status_of(Path("run"))["processes"]]


def evaluators() -> list[int]:
    if not Path("run/status.json").exists():
        return []
    return [pid for role, pid in processes() if role == "evaluator"]


def test_learning_continues_during_a_slow_evaluation():
    def go() -> None:
        wait_until(lambda: any(line["env_steps"] >= 900 for line in lines_of(Path("run"))))
        Path("GO").touch()

    threading.Thread(target=go, daemon=True).start()
    said = train("WaitsInEvaluations", **PROCESSES)
    assert said.code == 0, said.err
    first = next(line for line in lines_of(Path("run")) if line["evaluations"] == 1)
    assert first["eval_env_steps"] < 900 <= first["env_steps"]
    assert last_line()["eval_env_steps"] == last_line()["env_steps"], "the end is evaluated too"


class EndsEvaluationsAtTheEnd(package.Callback):
    """Lets evaluations continue once the run has learned from all its env steps."""

    def on_start(self) -> None:
        threading.Thread(target=self._go, daemon=True).start()

    def _go(self) -> None:
        while self.run.env_steps < SMALL["steps"]:
            time.sleep(0.01)
        Path("GO").touch()


def test_the_last_line_has_the_wait_for_the_evaluations_at_the_end():
    run = small_run(Path("run"), "evaluated/WaitsInEvaluations-v0", **PROCESSES, callbacks=[EndsEvaluationsAtTheEnd()])
    *_, before, earlier, last = lines_of(run.path)
    assert [line["evaluations"] for line in (before, earlier, last)] == [0, 1, 2]
    assert earlier["time_learn"] == before["time_learn"], "its period continues"
    assert before["time_evaluate"] == 0 < last["time_evaluate"]


def postpone_evaluations(schedule: evaluations.Evaluations, *_arguments: Any, due: bool, last: bool) -> bool:  # noqa: ARG001
    """Do as after a stop signal."""
    if due:
        schedule.postpone()
    return False


def test_the_wait_for_an_evaluation_that_was_postponed_to_the_resume_counts(monkeypatch):
    with monkeypatch.context() as stopped:
        stopped.setattr(evaluations.Evaluations, "step", postpone_evaluations)
        small_run(Path("run"), eval_every=512, eval_episodes=3, stop_at=512)
    package.resume("run", progress="none", stop_at=None)
    line = next(line for line in lines_of(Path("run")) if line["evaluations"] == 1)
    assert line["env_steps"] < SMALL["steps"]
    assert line["time_evaluate"] > 0


def test_evaluations_that_take_too_much_time_are_skipped_except_the_last(monkeypatch):
    monkeypatch.setattr(evaluations, "ALWAYS_ALLOWED_S", 0.0)
    said = train("SlowInEvaluations", **EVALUATED | {"eval_every": 128}, eval_time_share=0.1)
    assert said.code == 0, said.err
    assert "some are skipped, because all together would take more than 10% of the time so far" in said.err
    taken = re.search(r"^evaluations took (\S+) s, (\d+)% of the time", said.err, re.MULTILINE)
    assert taken
    assert float(taken[1]) >= round(last_line()["evaluation_s"], 1), "serial waits for the start of the process too"
    assert 1 <= last_line()["evaluations"] <= 3
    assert last_line()["eval_env_steps"] == last_line()["env_steps"]


def let_evaluations_wait(monkeypatch: pytest.MonkeyPatch, waited_s: float) -> None:
    """Let each evaluation of a process take 100 seconds by its own clock, with these seconds of waits for a core."""
    start, poll, results = ProcessEvaluator.start, ProcessEvaluator.poll, list[Result]()

    def start_and_wait(evaluator: ProcessEvaluator, vectors: Any) -> None:
        start(evaluator, vectors)
        while not (result := poll(evaluator, 0.1, lambda: None)):
            pass
        results.append(result._replace(seconds=100.0, waited_s=waited_s))

    monkeypatch.setattr(ProcessEvaluator, "start", start_and_wait)
    monkeypatch.setattr(ProcessEvaluator, "poll", lambda *_arguments: results.pop())


@pytest.mark.parametrize(("waited_s", "skips"), [(0.0, True), (99.9, False)])
def test_a_run_and_its_resume_know_what_evaluations_have_cost_without_their_waits_for_a_core(
    monkeypatch, waited_s, skips
):
    let_evaluations_wait(monkeypatch, waited_s)
    stopped = train("Quick", **PROCESSES | {"eval_every": 256}, eval_time_share=0.1, stop_at=512)
    assert stopped.code == 0, stopped.err
    assert ("an evaluation takes about 100.0 s: some are skipped" in stopped.err) == skips
    assert last_line()["evaluation_s"] == 100.0 * (before := last_line()["evaluations"])
    said = offbeat("resume", "run", "--import", *ENVS, "--progress", "lines", "--set", "stop_at=none")
    assert said.code == 0, said.err
    assert ("some are skipped" in said.err) == skips
    assert last_line()["evaluation_s"] == 100.0 * last_line()["evaluations"]
    assert f"evaluations took {100 * (last_line()['evaluations'] - before)}.0 s, " in said.err


@pytest.mark.parametrize(("layout", "first"), [({"runtime": "threads", "actors": 1}, 3), ({}, 8)])
def test_an_expectation_of_the_first_evaluation_that_is_too_high_is_halved_beside_the_learner(
    monkeypatch, layout, first
):
    monkeypatch.setattr(RunMetrics, "expected_evaluation_s", lambda _metrics, _counters: 12.0)
    said = train("Quick", **EVALUATED | {"eval_every": 128}, **layout)
    assert said.code == 0, said.err
    assert "an evaluation takes about 12.0 s: some are skipped" in said.err
    line = next(line for line in lines_of(Path("run")) if line["evaluations"] == 1)
    assert line["eval_env_steps"] // 128 == first


@pytest.mark.parametrize("given", [None, 5, 20_000])
def test_a_given_eval_max_episode_steps_is_the_limit_of_an_atari_game_too(given):
    run = RunConfig("ppo", "ALE/Pong-v5", eval_max_episode_steps=given)
    assert EvaluationPlan(run, CLASSIC, ()).max_episode_steps == (given or CLASSIC.evaluation_limit)


@pytest.mark.parametrize("setting", [{"lag": "exact", "eval_time_share": 0.01}, {"eval_time_share": 1}], ids=str)
def test_no_evaluation_is_skipped_with_lag_exact_or_an_eval_time_share_of_1(monkeypatch, setting):
    monkeypatch.setattr(RunMetrics, "expected_evaluation_s", lambda _metrics, _counters: 1e6)
    said = train("Quick", **EVALUATED | {"eval_every": 256, **setting})
    assert said.code == 0, said.err
    assert last_line()["evaluations"] == 4


def test_exact_runs_have_the_same_evaluations_and_best_checkpoint_in_every_runtime(tmp_path):
    settings: dict[str, Any] = {"lag": "exact", "max_lag": 1, "actors": 2, "eval_every": 256, "eval_episodes": 3}
    runs = [
        small_run(tmp_path / f"{runtime}-{evaluator}", **settings, runtime=runtime, evaluator=evaluator).path
        for runtime, evaluator in [("serial", "inline"), ("serial", "process"), ("processes", "process")]
    ]
    told = [[(line["eval_env_steps"], line["eval_return_mean"]) for line in lines_of(run)] for run in runs]
    assert told[0] == told[1] == told[2]
    assert told[0][-1][1] is not None
    assert weights_of(runs[0], "best") == weights_of(runs[1], "best") == weights_of(runs[2], "best")


@pytest.mark.parametrize(
    "layout", [{"runtime": "serial"}, {"runtime": "threads", "actors": 2}], ids=lambda layout: layout["runtime"]
)
def test_an_env_that_cannot_be_sent_is_evaluated_in_the_process_of_the_learner_which_waits_for_it(layout):
    def local(**_arguments: Any) -> Wave:
        """Is found under no name."""
        return Wave()

    gym.register("evaluated/Local-v0", entry_point=local)
    try:
        said = train("Local", **EVALUATED, **layout)
    finally:
        del gym.registry["evaluated/Local-v0"]
    assert said.code == 0, said.err
    assert "evaluations run in the learner's process" in said.err
    assert "in parallel to learning" not in said.err
    first_lines = {line["evaluations"]: line for line in reversed(lines_of(Path("run"))) if line["evaluations"]}
    assert len(first_lines) == 2
    for line in first_lines.values():
        assert line["eval_env_steps"] == line["env_steps"]


def test_an_evaluator_whose_process_cannot_be_started_costs_an_evaluation(monkeypatch):
    attempts = count(1)

    def start_at_the_third_attempt(*arguments: Any) -> Any:
        if next(attempts) < 3:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return start_worker(*arguments)

    monkeypatch.setattr("offbeat.runtime.evaluation.evaluators.start_worker", start_at_the_third_attempt)
    said = train("Quick", **EVALUATED)
    assert said.code == 0, said.err
    assert (last_line()["evaluations"], last_line()["evaluations_failed"]) == (1, 1)
    assert "its process could not be started (Resource temporarily unavailable)" in said.err


class HasNoPorts(Wave):
    """Needs a port; `TakesThePorts` takes all of them when the actors have theirs."""

    are_taken = False

    def __init__(self, **_arguments: Any) -> None:
        if self.are_taken:
            raise OSError("all ports are taken")
        super().__init__()


class TakesThePorts(package.Callback):
    def on_start(self) -> None:
        HasNoPorts.are_taken = True


def test_an_env_that_cannot_be_made_for_an_evaluation_in_the_process_of_the_learner_does_not_end_the_run(monkeypatch):
    monkeypatch.setattr(HasNoPorts, "are_taken", False)
    spec = EnvSpec("HasNoPorts-v0", HasNoPorts)
    monkeypatch.setitem(gym.registry, spec.id, spec)
    small_run(Path("run"), "HasNoPorts-v0", eval_every=512, evaluator="inline", callbacks=[TakesThePorts()])
    assert (last_line()["evaluations"], last_line()["evaluations_failed"]) == (0, 2)
    assert "HasNoPorts-v0 cannot be made (OSError: all ports are taken)" in Path("run/log.txt").read_text()


def test_an_error_of_the_run_is_no_failure_of_the_evaluation_in_its_process():
    parts = build(resolve("ppo", "CartPole-v1", flags=SMALL))
    plan = EvaluationPlan(parts.config.run, parts.config.env, (EvaluatedPolicy("default", parts.policy.spec),))
    evaluator = InlineEvaluator(plan, UNWATCHED, lambda _env_steps: None)
    parts.policy.learner.publish(0)
    evaluator.start({"default": parts.policy.weights.read(0)})

    def lose_worker() -> None:
        raise RunFailed("worker 1 was killed")

    with pytest.raises(RunFailed, match="worker 1 was killed"):
        evaluator.poll(0.0, lose_worker)
    parts.close()
