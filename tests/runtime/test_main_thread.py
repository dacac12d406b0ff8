"""A main thread that makes no progress in time is reported, with what it does."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.sample_envs.run_envs import Ages, Wave
from tests.support.runs import wait_until

import offbeat
from offbeat.algorithms.base import Batch
from offbeat.algorithms.ppo import PPO
from offbeat.api.named_code import name_of_env
from offbeat.config.resolve import resolve
from offbeat.core.errors import EnvFailed
from offbeat.envs.testing.worlds import CartPoles
from offbeat.runtime.runtimes import build
from offbeat.tuning.auto_layout import with_measured_topology

SMALL: dict[str, Any] = {"steps": 16, "unroll_length": 8, "envs_per_actor": 2, "unrolls_per_batch": 1, "epochs": 1}
SMALL |= {"hidden_sizes": (8,), "minibatch_size": 16, "eval_every": 0, "checkpoint_every": 0, "progress": "none"}
LIMIT_S = 0.2
TRIED = 12
"""More env steps than those with which an env is tried before a run."""
CALL = "the main thread was in a call of its envs that did not return in time"
LEARNING = f"the learner has made no update for {LIMIT_S} s (stall_timeout_s)"
CLOSING = f"the envs have not closed for {LIMIT_S} s (stall_timeout_s)"
LOG: list[Path] = []
"""The log of this test's run."""
SAID: list[str] = []
"""The messages of this test, where there is no log."""
REPORTED: list[str] = []
"""What was reported of this test's run while the main thread waited for it."""


@pytest.fixture(autouse=True)
def _one_run_a_test(tmp_path, monkeypatch):
    monkeypatch.setattr("offbeat.runtime.main_thread.CHECK_S", 0.02)
    CountingPPO.counts.clear()
    REPORTED.clear()
    SAID.clear()
    LOG[:] = [tmp_path / "run/log.txt"]


def wait_for_report(text: str) -> None:
    """Wait until this is reported: however slow the machine is, a wait that ends was long enough, and no longer."""
    wait_until(lambda: text in LOG[0].read_text(), seconds=60.0)
    REPORTED.append(text)


class SlowStep(Wave):
    """A step of a run is slow."""

    def step(self, action: Any) -> Any:
        if self.steps == 3 and LOG[0].exists() and not REPORTED:
            wait_for_report(CALL)
        return super().step(action)


class SlowReset(Wave):
    """The first episode after a learning step starts slowly."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if CountingPPO.counts and not REPORTED:
            wait_for_report(CALL)
        return super().reset(seed=seed, options=options)


class SlowClose(Ages):
    """Closes slowly at the end of a run."""

    def close(self) -> None:
        if self.age >= TRIED:
            wait_for_report(CLOSING)


class RaisesAndClosesSlowly(SlowClose):
    """Raises in the same step in which it starts to close slowly."""

    def step(self, action: Any) -> Any:
        result = super().step(action)
        if self.age == TRIED:
            raise LookupError("the wave is lost")
        return result


def wait_until_said() -> None:
    """Wait until it is reported that an env call takes too long: also in a test of the env, which has no log."""
    wait_until(lambda: bool(SAID), seconds=60.0)


class SlowFirstReset(Wave):
    """Its first episode starts slowly."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        wait_until_said()
        return super().reset(seed=seed, options=options)


class SlowThirdStep(Wave):
    """Its third step is slow."""

    def step(self, action: Any) -> Any:
        if self.steps == 2:
            wait_until_said()
        return super().step(action)


class SlowToMake(Wave):
    """Takes long to make."""

    def __init__(self) -> None:
        wait_until_said()


class SlowWorlds(CartPoles):
    """Its steps are slow."""

    def step(self, actions: Mapping[str, Any]) -> Any:
        wait_until_said()
        return super().step(actions)


class SlowOnceTested(Ages):
    """Is slow in the first step of those after which an env has been tested."""

    def step(self, action: Any) -> Any:
        if self.age == TRIED:
            wait_until_said()
        return super().step(action)


class SlowPPO(PPO):
    """Its learning steps are slow."""

    def prepare(self, batch: Batch) -> Batch:
        wait_for_report(LEARNING)
        return super().prepare(batch)


class CountingPPO(PPO):
    """Counts the threads that watch the main thread in each of its learning steps."""

    counts: ClassVar[list[int]] = []

    def prepare(self, batch: Batch) -> Batch:
        self.counts.append(watching_threads())
        return super().prepare(batch)


def watching_threads() -> int:
    return [thread.name for thread in threading.enumerate()].count("offbeat watch")


def log_of(folder: Path, algorithm: Any = "ppo", env: Any = Wave, **settings: Any) -> str:
    run = offbeat.train(algorithm, env, run_dir=folder / "run", **{**SMALL, **settings})
    assert run.state == "finished"
    return (run.path / "log.txt").read_text()


@pytest.mark.parametrize(
    ("env", "limit", "method"),
    [
        (SlowFirstReset, "reset_timeout_s", "reset"),
        (SlowThirdStep, "step_timeout_s", "step"),
        (SlowToMake, "reset_timeout_s", "__init__"),
        (SlowWorlds, "step_timeout_s", "step"),
    ],
)
@pytest.mark.parametrize("runtime", ["serial", "hogwild"])
def test_an_env_call_that_takes_too_long_before_a_run_is_reported_with_its_place(env, limit, method, runtime):
    several = {"policies": "shared"} if env is SlowWorlds else {}
    settings = {"step_timeout_s": 30.0, "reset_timeout_s": 30.0, limit: LIMIT_S, "runtime": runtime, **several}
    with closing(build(resolve("ppo", name_of_env(env), flags=settings), SAID.append)):
        pass
    assert f"did not return in time ({limit})" in SAID[0]
    assert re.search(rf"it is in {method}, line \d+ of \S*test_main_thread\.py", SAID[0])


def test_in_another_thread_than_the_main_one_only_a_kill_ends_an_env_call():
    config = resolve("ppo", name_of_env(SlowThirdStep), flags={"step_timeout_s": LIMIT_S, "reset_timeout_s": 30.0})
    with ThreadPoolExecutor() as pool:
        pool.submit(build, config, SAID.append).result().close()
    assert SAID[0].startswith("the thread was in a call of its envs that did not return in time")
    assert "If it hangs, kill the process; " in SAID[0]


@pytest.mark.parametrize("runtime", ["threads", "processes"])
def test_an_env_call_that_takes_too_long_while_auto_layout_measures_is_reported(runtime):
    settings = {**SMALL, "runtime": runtime, "split": "measured", "step_timeout_s": LIMIT_S}
    del settings["progress"]
    with_measured_topology(resolve("ppo", name_of_env(SlowOnceTested), flags=settings), SAID.append)
    assert SAID[0].startswith(f"{CALL} (step_timeout_s)")
    assert SAID[0].endswith("With --actors, no envs are measured")


def test_a_step_of_an_env_in_the_main_thread_that_takes_too_long_is_reported_with_its_traceback(tmp_path):
    log = log_of(tmp_path, env=SlowStep, step_timeout_s=LIMIT_S, reset_timeout_s=LIMIT_S)
    assert REPORTED == [CALL]
    assert "wait_for_report(CALL)" in log


def test_an_env_that_is_slow_in_an_evaluation_in_the_main_thread_is_reported(tmp_path):
    settings = {"eval_every": 16, "eval_episodes": 1, "evaluator": "inline", "reset_timeout_s": LIMIT_S}
    log_of(tmp_path, CountingPPO, SlowReset, **settings)
    assert REPORTED == [CALL]


@pytest.mark.parametrize("runtime", ["serial", "threads"])
def test_envs_that_do_not_close_in_time_at_the_end_of_a_run_are_reported_with_their_traceback(tmp_path, runtime):
    log = log_of(tmp_path, env=SlowClose, steps=32, stall_timeout_s=LIMIT_S, runtime=runtime)
    assert f"{CLOSING}, and a thread cannot be killed. If it hangs, kill the process: Ctrl-C does not end it;" in log
    assert "wait_for_report(CLOSING)" in log


def test_the_error_of_a_run_is_in_the_log_before_its_envs_are_closed(tmp_path):
    with pytest.raises(EnvFailed):
        log_of(tmp_path, env=RaisesAndClosesSlowly, steps=32, stall_timeout_s=LIMIT_S)
    log = (tmp_path / "run" / "log.txt").read_text()
    assert log.count("Z Traceback") == 1
    assert log.index("the wave is lost") < log.index(CLOSING)


@pytest.mark.parametrize("runtime", ["serial", "threads"])
def test_a_learning_step_without_an_update_in_time_is_reported_with_its_traceback(tmp_path, runtime):
    log = log_of(tmp_path, SlowPPO, stall_timeout_s=LIMIT_S, runtime=runtime)
    assert REPORTED == [LEARNING]
    assert "wait_for_report(LEARNING)" in log


@pytest.mark.parametrize("method", ["on_metrics", "on_end"])
def test_a_callback_that_does_not_return_in_time_is_named_once_with_its_method_and_traceback(tmp_path, method):
    named = f"{method} of the callback Slow has not returned for {LIMIT_S} s (stall_timeout_s)"

    def be_slow(*_: object) -> None:
        wait_for_report(named)
        time.sleep(1.0)  # it could be named once more

    slow = type("Slow", (offbeat.Callback,), {method: be_slow})
    log = log_of(tmp_path, steps=32, log_every=16, stall_timeout_s=LIMIT_S, callbacks=[slow()])
    assert log.count(named) == 1
    assert "wait_for_report(named)" in log


def test_one_thread_watches_acting_learning_and_evaluations_in_the_main_thread(tmp_path):
    before = watching_threads()  # other tests may have left parts of a run that was not closed
    log_of(tmp_path, CountingPPO, steps=48, eval_every=16, eval_episodes=1, evaluator="inline")
    assert set(CountingPPO.counts) == {before + 1}


def test_a_main_thread_that_neither_acts_nor_learns_is_not_watched(tmp_path):
    before = watching_threads()
    policies = {"cat": {"agents": "cart_1"}, "dog": {"agents": "*"}}
    log_of(tmp_path, CountingPPO, CartPoles, runtime="processes", learner_workers=2, policies=policies)
    assert set(CountingPPO.counts) == {before}
