"""Callbacks of a run: when they are called, what they reach, and what happens when one stops the run or raises."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from tests.support.journals import EVALUATED, HOOKS, Journal, assert_called_once_for_each_event
from tests.support.runs import lines_of, small_run, status_of, weights_of
from tests.support.thorough import thorough

import offbeat
from offbeat.config.runtimes import RUNTIMES
from offbeat.run_directory.checkpoint import load as load_checkpoint

HOGWILD: dict[str, Any] = {"algorithm": "a2c", "runtime": "hogwild", "workers": 1}
PROCESSES: dict[str, Any] = {"runtime": "processes", "actors": 1, "evaluator": "process"}
EVERY_KIND = pytest.mark.parametrize("layout", [{}, PROCESSES, HOGWILD], ids=["serial", "processes", "hogwild"])
OBSERVATION = [0.0, 0.1, 0.0, -0.1]


def callback(hook: str, action: Callable[[offbeat.Callback], Any]) -> offbeat.Callback:
    """Return a callback that does something in one method, with itself as the argument."""
    return type("Mine", (offbeat.Callback,), {hook: lambda self, *_: action(self)})()


def interrupt_once() -> Callable[[dict[str, Any]], None]:
    """Return a callback that sends SIGINT to this process at the first line."""
    signals = iter([signal.SIGINT])

    def interrupt(_line: dict[str, Any]) -> None:
        for number in signals:
            os.kill(os.getpid(), number)

    return interrupt


# --- when they are called -----------------------------------------------------------------------------------


def test_a_function_receives_every_metrics_line(tmp_path):
    seen: list[dict[str, Any]] = []
    run = small_run(tmp_path / "run", callbacks=[seen.append], eval_every=1000, eval_episodes=2)
    assert seen == lines_of(run.path)


def test_a_callback_that_changes_its_line_does_not_change_that_of_the_next_one(tmp_path):
    seen: list[dict[str, Any]] = []
    run = small_run(tmp_path / "run", callbacks=[dict.clear, seen.append])
    assert seen == lines_of(run.path)


LAYOUTS: dict[str, dict[str, Any]] = {
    "serial": {},
    "threads": {"runtime": "threads", "actors": 2, "evaluator": "process"},
    "processes": {**PROCESSES, "actors": 2},
    "two learners": {**PROCESSES, "devices": ("cpu", "cpu"), "shards": 2},
    "hogwild": {**HOGWILD, "workers": 2, "evaluator": "process"},
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_callbacks_are_called_once_for_each_event_in_every_runtime(layout, tmp_path):
    journal = Journal()
    assert_called_once_for_each_event(journal, small_run(tmp_path / "run", callbacks=[journal], **EVALUATED | layout))


def test_every_runtime_is_one_in_which_the_calls_of_callbacks_are_counted():
    counted = {layout.get("runtime", "serial") for layout in LAYOUTS.values()}
    assert counted == set(RUNTIMES) - {"ray"}, "tests/runtime/ray/test_ray_runs.py counts those on Ray"


def test_callbacks_are_called_in_the_order_of_the_list(tmp_path):
    entries: list[tuple[str, str]] = []
    small_run(tmp_path / "run", callbacks=[Journal(entries, "first"), Journal(entries, "second")], **EVALUATED)
    firsts, seconds = entries[::2], entries[1::2]
    assert {name for name, _ in firsts} == {"first"}
    assert [hook for _, hook in firsts] == [hook for _, hook in seconds]


def test_on_checkpoint_is_called_with_what_latest_or_best_points_to(tmp_path):
    paths: list[Path] = []

    class Collect(offbeat.Callback):
        def on_checkpoint(self, path: Path) -> None:
            named = [(path.parent / name).resolve() for name in ("latest", "best") if (path.parent / name).exists()]
            assert path.resolve() in named
            paths.append(path)

    run = small_run(tmp_path / "run", callbacks=[Collect()], **EVALUATED)
    assert paths[-1].resolve() == (run.path / "checkpoints/latest").resolve()
    assert len(set(paths)) == 2


def test_on_start_of_a_resumed_run_says_so(tmp_path):
    seen: list[tuple[bool, int, str]] = []
    note = callback("on_start", lambda self: seen.append((self.run.resumed, self.run.env_steps, self.run.state)))
    run = small_run(tmp_path / "run", stop_at=512, callbacks=[note])
    offbeat.resume(run.path, callbacks=[note])
    assert seen == [(False, 0, "running"), (True, run.metrics["env_steps"], "running")]


@pytest.mark.parametrize(
    ("ends", "state", "reason"),
    [
        ({}, "finished", "learned from"),
        ({"stop_at": 256}, "interrupted", "stop-at"),
        ({"callbacks": [interrupt_once()]}, "interrupted", "SIGINT"),
        ({"env": "tests.sample_envs.run_envs:RaisesLate"}, "failed", "RaisesLate"),
    ],
    ids=["finished", "stopped", "signal", "failed"],
)
def test_on_end_knows_how_the_run_has_ended_and_can_be_interrupted_as_other_code(ends, state, reason, tmp_path):
    seen: list[Any] = []
    mine = signal.getsignal(signal.SIGINT)
    note = callback("on_end", lambda self: seen.append((self.run.state, self.run.reason, signal.getsignal(2))))
    given = {"env": "CartPole-v1", **ends, "callbacks": [note, *ends.get("callbacks", [])]}
    if state == "failed":
        with pytest.raises(offbeat.OffbeatError):
            small_run(tmp_path / "run", **{**given, "steps": 5000})
    else:
        small_run(tmp_path / "run", **given)
    ((found, why, handler),) = seen
    assert (found, handler) == (state, mine)
    assert reason in why
    assert status_of(tmp_path / "run")["state"] == state


# --- what they reach ----------------------------------------------------------------------------------------


@EVERY_KIND
def test_the_current_policy_is_a_copy_with_the_weights_of_the_moment(layout, tmp_path):
    taken: list[offbeat.LoadedPolicy] = []
    take = callback("on_checkpoint", lambda self: taken.append(self.run.current_policy()))
    run = small_run(tmp_path / "run", callbacks=[take], steps=512, checkpoint_every=128, **layout)
    vectors = [policy.acting_policy.vector for policy in taken]
    saved = offbeat.load(run.path).acting_policy.vector
    np.testing.assert_array_equal(vectors[-1], saved)
    assert not np.array_equal(vectors[0], saved)
    assert taken[0](OBSERVATION) in (0, 1)
    assert [policy.trained.env_steps for policy in taken] == sorted(policy.trained.env_steps for policy in taken)
    assert (taken[-1].trained.env, taken[-1].trained.env_steps) == ("CartPole-v1", run.metrics["env_steps"])


@EVERY_KIND
def test_the_evaluated_policy_has_the_weights_whose_results_are_given(layout, tmp_path):
    seen: list[Any] = []

    class Compare(offbeat.Callback):
        def on_evaluation(self, results: dict[str, float | None]) -> None:
            seen.append((results["eval_env_steps"], results["eval_return_mean"], self.run.evaluated_policy()))

    run = small_run(tmp_path / "run", callbacks=[Compare()], **{**EVALUATED, **layout})
    for env_steps, return_mean, policy in seen:
        assert (policy.trained.env_steps, policy.trained.eval_return_mean) == (env_steps, return_mean)
    np.testing.assert_array_equal(seen[-1][2].acting_policy.vector, offbeat.load(run.path).acting_policy.vector)


def test_an_evaluated_policy_before_the_first_evaluation_is_refused_with_what_to_do(tmp_path):
    early = callback("on_start", lambda self: self.run.evaluated_policy())
    with pytest.raises(offbeat.ConfigError, match=r"no evaluation yet.*use current_policy\(\)"):
        small_run(tmp_path / "run", callbacks=[early])


@pytest.mark.parametrize("method", ["current_policy", "evaluated_policy"])
def test_a_policy_of_a_run_that_has_ended_is_refused_with_how_to_load_it(method, tmp_path):
    kept = offbeat.Callback()
    run = small_run(tmp_path / "run", callbacks=[kept], **EVALUATED)
    with pytest.raises(offbeat.ConfigError, match=r"run has ended: .* call offbeat\.load\('.*run'\)"):
        getattr(kept.run, method)()
    assert kept.run.env_steps == run.metrics["env_steps"]


def test_a_policy_of_a_run_with_several_is_named_and_a_league_changes_nothing(tmp_path):
    seen: list[Any] = []

    class Names(offbeat.Callback):
        def on_end(self) -> None:
            seen.append({name: self.run.current_policy(name).trained.agents for name in self.run.policies})
            self.run.current_policy()

    world = "offbeat.envs.testing.worlds:CartPoles"
    policies = {"red": {"agents": "cart_0"}, "blue": {"agents": "cart_*"}}
    league = {"window": 2, "snapshot_every": 2}
    with pytest.raises(offbeat.ConfigError, match=r"has the policies blue, red: choose one"):
        small_run(tmp_path / "run", world, policies=policies, league=league, steps=256, callbacks=[Names()])
    assert {name: len(agents) for name, agents in seen[0].items()} == {"blue": 2, "red": 1}


def test_a_callback_may_use_its_attribute_run_for_something_else(tmp_path):
    def replace(own: offbeat.Callback) -> None:
        own.run = "that of another library"  # type: ignore[assignment]

    ended: list[offbeat.Callback] = []
    own = callback("on_start", replace)
    other = callback("on_end", ended.append)
    run = small_run(tmp_path / "run", callbacks=[own, other], eval_every=1000, eval_episodes=2)
    assert (status_of(run.path)["state"], str(own.run)) == ("finished", "that of another library")
    assert ended == [other]


def test_the_run_has_its_path_and_its_settings_by_key(tmp_path):
    seen: list[Any] = []

    class Look(offbeat.Callback):
        def on_start(self) -> None:
            settings = self.run.settings
            seen.extend([self.run.path, settings["env"], settings["learning_rate"], settings["steps"], repr(self.run)])

    small_run(tmp_path / "run", learning_rate=0.01, steps=256, callbacks=[Look()])
    assert seen == [tmp_path / "run", "CartPole-v1", 0.01, 256, f"<run {tmp_path / 'run'}: running, 0 env steps>"]


# --- metrics ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [{}, PROCESSES], ids=["serial", "processes"])
def test_numbers_returned_by_a_callback_are_metrics_of_the_next_line(layout, tmp_path):
    def counting(line: dict[str, Any]) -> dict[str, float]:
        return {"mine/steps_before": line["env_steps"], "half": np.float32(0.5)}

    run = small_run(tmp_path / "run", callbacks=[counting], log_every=256, steps=1024, **layout)
    lines = lines_of(run.path)
    assert [line.get("mine/steps_before") for line in lines] == [None, *(line["env_steps"] for line in lines[:-1])]
    assert [line.get("half") for line in lines] == [None, *(0.5 for _ in lines[:-1])]


@EVERY_KIND
def test_numbers_returned_for_an_evaluation_are_in_the_lines_of_its_results(layout, tmp_path):
    class Twice(offbeat.Callback):
        def on_evaluation(self, results: dict[str, float | None]) -> dict[str, float]:
            return {"mine/twice": 2 * (results["eval_return_mean"] or 0.0)}

    run = small_run(tmp_path / "run", callbacks=[Twice()], **{**EVALUATED, **layout})
    evaluated = [line for line in lines_of(run.path) if line["eval_return_mean"] is not None]
    assert evaluated
    assert [line["mine/twice"] for line in evaluated] == [2 * line["eval_return_mean"] for line in evaluated]


@pytest.mark.parametrize(
    ("hook", "answer", "words"),
    [
        ("on_metrics", {"loss": "high"}, "returned loss='high', but a number is expected"),
        ("on_metrics", {"loss": 10**400}, "returned loss=1000"),
        ("on_metrics", {"loss": None}, "returned loss=None, but a number is expected"),
        ("on_metrics", {3: 1.0}, "returned the key 3, but a name is expected"),
        ("on_metrics", {(0,) * 1000: 1.0}, r"returned the key \(0, .{,600}\.\.\., but a name is expected"),
        ("on_metrics", {"sps": 1.0}, "the callback Mine returned 'sps', which is the name of another metric"),
        ("on_metrics", "end", "callback Mine returned 'end', but 'stop', a dict of numbers or None is expected"),
        ("on_metrics", [0] * 1000, r"callback Mine returned \[0, .{,600}\.\.\., but 'stop', a dict"),
        ("on_start", {"loss": 1.0}, "on_start of the callback Mine returned {'loss': 1.0}, but 'stop' or None is expe"),
        ("on_checkpoint", True, "on_checkpoint of the callback Mine returned True, but 'stop' or None is expected"),
        ("on_evaluation", {"loss": "high"}, "returned loss='high', but a number is expected"),
        ("on_evaluation", {"eval_return_mean": 1.0}, "which is the name of another metric"),
    ],
)
def test_an_invalid_return_value_of_a_callback_fails_the_run_with_a_message(tmp_path, hook, answer, words):
    with pytest.raises(offbeat.RunFailed, match=words):
        small_run(tmp_path / "run", callbacks=[callback(hook, lambda _self: answer)], **EVALUATED)


def test_a_name_that_two_callbacks_return_fails_the_run(tmp_path):
    both = [callback("on_metrics", lambda _self: {"mine": 1.0}), _own_metric]
    with pytest.raises(offbeat.RunFailed, match="the callbacks Mine and _own_metric both returned 'mine'"):
        small_run(tmp_path / "run", callbacks=both)


def _own_metric(_line: dict[str, Any]) -> dict[str, float]:
    return {"mine": 1.0}


def test_a_callback_that_calls_sys_exit_fails_the_run_with_the_way_to_stop_it(tmp_path):
    with pytest.raises(offbeat.RunFailed, match=r"the callback Mine called sys.exit\('enough'\): return 'stop'"):
        small_run(tmp_path / "run", callbacks=[callback("on_metrics", lambda _self: sys.exit("enough"))])
    assert (tmp_path / "run" / "checkpoints" / "latest").exists()


# --- stop ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_lag", [2, *thorough(0)])
def test_a_callback_stops_a_run_with_a_complete_checkpoint(tmp_path, max_lag):
    def enough(line: dict[str, Any]) -> Any:
        return "stop" if line["env_steps"] >= 500 else None

    run = small_run(tmp_path / "run", callbacks=[enough], max_lag=max_lag)
    assert (run.state, run.reason, run.exit_code) == ("interrupted", "stopped by the callback enough", 0)
    assert 500 <= run.metrics["env_steps"] <= 500 + 64 * (max_lag + 2)
    assert load_checkpoint(run.path / "checkpoints" / "latest").state is not None

    whole = small_run(tmp_path / "whole", max_lag=max_lag)
    assert weights_of(offbeat.resume(run.path).path) == weights_of(whole.path)


@pytest.mark.parametrize(
    ("hook", "layout"),
    [
        *((hook, {}) for hook in ("on_start", "on_metrics", "on_evaluation", "on_checkpoint")),
        ("on_metrics", PROCESSES),
        ("on_metrics", HOGWILD),
    ],
)
def test_each_method_can_stop_the_run_and_say_why(hook, layout, tmp_path):
    stop = callback(hook, lambda self: self.run.stop("it is good enough"))
    settings = {**EVALUATED, "steps": 100_000, "log_every": 128, **layout}
    run = small_run(tmp_path / "run", callbacks=[stop], **settings)
    assert (run.state, run.reason) == ("interrupted", "stopped by the callback Mine: it is good enough")
    assert status_of(tmp_path / "run")["reason"] == run.reason
    assert run.metrics["env_steps"] < 100_000
    assert load_checkpoint(run.path / "checkpoints/latest").policy["env_steps"] == run.metrics["env_steps"]


@pytest.mark.parametrize("hook", ["on_start", "on_metrics", "on_evaluation", "on_checkpoint"])
def test_a_method_stops_the_run_by_returning_stop(hook, tmp_path):
    stop = callback(hook, lambda _self: "stop")
    run = small_run(tmp_path / "run", callbacks=[stop], **{**EVALUATED, "steps": 100_000, "log_every": 128})
    assert (run.state, run.reason) == ("interrupted", "stopped by the callback Mine")


def test_the_first_callback_that_stops_a_run_gives_the_reason(tmp_path):
    first = callback("on_metrics", lambda self: self.run.stop("one"))
    second = callback("on_metrics", lambda self: self.run.stop("two"))
    run = small_run(tmp_path / "run", callbacks=[first, second])
    assert run.reason == "stopped by the callback Mine: one"


def test_another_thread_can_stop_the_run(tmp_path):
    def stop(self: offbeat.Callback) -> None:
        thread = threading.Thread(target=self.run.stop)
        thread.start()
        thread.join()

    run = small_run(tmp_path / "run", callbacks=[callback("on_start", stop)], steps=10_000)
    assert (run.state, run.reason) == ("interrupted", "stopped by the callback Mine")


# --- several runs -------------------------------------------------------------------------------------------


def test_a_callback_of_a_run_that_has_not_ended_is_refused_by_another_run(tmp_path):
    def train_another(self: offbeat.Callback) -> None:
        with pytest.raises(offbeat.ConfigError, match=r"Mine is in the callbacks of .*outer, .*: pass another object"):
            small_run(tmp_path / "inner", callbacks=[self])
        self.run.stop("seen")

    mine = callback("on_start", train_another)
    run = small_run(tmp_path / "outer", callbacks=[mine], steps=10_000)
    assert run.reason == "stopped by the callback Mine: seen"
    assert not (tmp_path / "inner").exists()


def test_a_run_in_on_end_cannot_take_a_callback_whose_on_end_is_still_to_come(tmp_path):
    ends: list[str] = []
    later = callback("on_end", lambda self: ends.append(self.run.path.name))

    def train_another(_self: offbeat.Callback) -> None:
        with pytest.raises(offbeat.ConfigError, match=r"Mine is in the callbacks of .*first, which has not ended"):
            small_run(tmp_path / "second", callbacks=[later], stop_at=128)

    small_run(tmp_path / "first", callbacks=[callback("on_end", train_another), later], stop_at=128)
    assert ends == ["first"]


WHILE_MADE: list[Callable[[], None]] = []


class Trains(CartPoleEnv):
    """An env that does something when it is made."""

    def __init__(self) -> None:
        super().__init__()
        for action in WHILE_MADE:
            action()


def test_a_callback_of_a_run_that_is_prepared_is_refused_by_another_run_before_it_starts(tmp_path, monkeypatch):
    mine = callback("on_metrics", lambda _self: None)
    refused = []

    def train_another() -> None:
        monkeypatch.setattr(f"{__name__}.WHILE_MADE", [])
        with pytest.raises(offbeat.ConfigError, match="Mine is in the callbacks of another run, which has not ended"):
            small_run(tmp_path / "inner", callbacks=[mine])
        refused.append(True)

    monkeypatch.setattr(f"{__name__}.WHILE_MADE", [train_another])
    small_run(tmp_path / "outer", f"{__name__}:Trains", callbacks=[mine], stop_at=128)
    assert refused
    assert not (tmp_path / "inner").exists()
    small_run(tmp_path / "inner", callbacks=[mine], stop_at=128)


def test_a_callback_may_start_another_run_when_its_run_has_ended(tmp_path):
    def train_another(self: offbeat.Callback) -> None:
        if self.run.path == tmp_path / "first":
            small_run(tmp_path / "second", callbacks=[self], stop_at=128)

    small_run(tmp_path / "first", callbacks=[callback("on_end", train_another)], stop_at=128)
    assert lines_of(tmp_path / "second")


def test_a_callback_can_be_used_in_one_run_after_the_other(tmp_path):
    journal = Journal()
    first = small_run(tmp_path / "first", callbacks=[journal], stop_at=128)
    small_run(tmp_path / "second", callbacks=[journal], stop_at=128)
    assert journal.run.path == tmp_path / "second"
    offbeat.resume(first, callbacks=[journal], progress="none")
    assert journal.run.path == tmp_path / "first"


# --- exceptions ---------------------------------------------------------------------------------------------


def test_the_note_of_a_failed_run_does_not_refer_to_a_log_that_could_not_be_written(tmp_path):
    def broken(_self: offbeat.Callback) -> None:
        (tmp_path / "run" / "log.txt").unlink()
        (tmp_path / "run" / "log.txt").mkdir()
        raise LookupError("no such table")

    with pytest.raises(LookupError, match="no such table") as raised:
        small_run(tmp_path / "run", callbacks=[callback("on_metrics", broken)])
    note = raised.value.__notes__[-1]
    assert note.startswith(f"The run is in {tmp_path / 'run'}: log.txt could not be written, and ")


@pytest.mark.parametrize(
    ("hook", "layout"), [*((hook, {}) for hook in HOOKS), ("on_metrics", PROCESSES), ("on_metrics", HOGWILD)]
)
def test_an_exception_of_a_callback_ends_the_run_saved_and_named(hook, layout, tmp_path):
    def broken(_self: offbeat.Callback) -> None:
        raise LookupError("no such table")

    journal = Journal()
    with pytest.raises(LookupError, match="no such table") as raised:
        small_run(tmp_path / "run", callbacks=[callback(hook, broken), journal], **{**EVALUATED, **layout})
    assert "It was raised in the callback Mine" in raised.value.__notes__
    saved = next(note for note in raised.value.__notes__ if note.startswith("The run is in"))
    assert ("resumes from the latest checkpoint" in saved) == (hook != "on_end")  # then all is learned
    status = status_of(tmp_path / "run")
    assert (status["state"], status["reason"]) == (
        "failed",
        "the callback Mine raised LookupError: no such table",
    )
    assert journal.calls.count("on_end") == (hook != "on_start")
    assert offbeat.resume(tmp_path / "run", steps=640).state == "finished"


def test_only_on_end_is_called_once_a_run_has_failed(tmp_path):
    class Broken(Journal):
        def on_metrics(self, line: dict[str, Any]) -> Any:
            super().on_metrics(line)
            raise LookupError("no such table")

    journal = Broken()
    with pytest.raises(LookupError):
        small_run(tmp_path / "run", callbacks=[journal])
    assert journal.calls == ["on_start", "on_metrics", "on_end"]


@pytest.mark.parametrize("error", [LookupError("no such table"), KeyboardInterrupt()], ids=repr)
def test_a_callback_that_always_raises_does_not_keep_the_run_from_being_saved(error, tmp_path):
    def broken(line: dict[str, Any]) -> None:
        if line["env_steps"] >= 256:
            raise error

    with pytest.raises(type(error)):
        small_run(tmp_path / "run", callbacks=[broken], log_every=64)
    assert load_checkpoint(tmp_path / "run/checkpoints/latest").policy["env_steps"] >= 256
    assert status_of(tmp_path / "run")["reason"].startswith(f"the callback broken raised {type(error).__name__}")


def test_what_on_end_raises_after_a_failure_is_added_to_the_error_of_the_run(tmp_path):
    class Broken(offbeat.Callback):
        def on_start(self) -> None:
            raise LookupError("no such table")

        def on_end(self) -> None:
            raise ValueError("no such file")

    with pytest.raises(LookupError, match="no such table") as raised:
        small_run(tmp_path / "run", callbacks=[Broken()])
    assert any("at the end of the run: ValueError: no such file" in note for note in raised.value.__notes__)


class OfAnotherLibrary(offbeat.Callback):
    def _on_step(self):
        return False


class Unlike(offbeat.Callback):
    def on_stop(self):
        return None


class Misspelt(offbeat.Callback):
    def on_metric(self, _line):
        return "stop"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            [OfAnotherLibrary()],
            r"never called\. _on_step is a name of Stable-Baselines3; in offbeat, on_metrics\(line\) is called",
        ),
        ([Unlike()], r"has the method on_stop, which is never called\. The methods that are called are"),
        ([Misspelt()], r"has the method on_metric, which is never called\. Did you mean 'on_metrics'\?"),
        (print, r"callbacks is print, but a list is expected: pass callbacks=\[my_function\]"),
        (Journal(), r"callbacks is Journal, but a list is expected: pass callbacks=\[my_callback\]"),
        (None, r"callbacks is None, but a list is expected: pass callbacks=\[my_function\]"),
        (5, "callbacks is 5, but a list is expected"),
        ([Journal()] * 2, "callbacks has Journal twice, so it would be called twice: pass it once"),
        ([print, Journal(), print], "callbacks has print twice"),
        ([Journal], r"has the class Journal, but an object is expected: pass Journal\(\)"),
        (["stop"], r"has 'stop', but an object of a subclass of offbeat.Callback is expected"),
    ],
)
def test_something_that_is_no_callback_is_refused_before_anything_is_created(given, words, tmp_path):
    with pytest.raises(offbeat.ConfigError, match=words):
        small_run(tmp_path / "run", callbacks=given)
    assert not (tmp_path / "run").exists()


def test_arguments_of_the_base_class_of_another_library_are_refused_by_that_of_offbeat():
    class Verbose(offbeat.Callback):
        def __init__(self, verbose: int = 0) -> None:
            super().__init__(verbose)  # type: ignore[call-arg]

    with pytest.raises(TypeError, match=r"Callback\.__init__\(\) takes 1 positional argument"):
        Verbose()


def test_a_second_base_class_of_a_callback_is_initialized_too():
    class Counts:
        def __init__(self) -> None:
            self.lines = 0

    class Mine(offbeat.Callback, Counts):
        pass

    assert Mine().lines == 0


# --- exactness ----------------------------------------------------------------------------------------------


class Busy(offbeat.Callback):
    """Acts with the policies, evaluates, draws from every global generator, and reports metrics."""

    def on_metrics(self, line: dict[str, Any]) -> dict[str, float]:  # noqa: ARG002
        random.seed(1)
        torch.manual_seed(int(np.random.randint(1000)))  # noqa: NPY002 - the global generator is what is tested
        action = self.run.current_policy()(OBSERVATION, random=np.random.default_rng())
        return {"mine/drawn": float(action) + float(torch.rand(1)) + random.random()}

    def on_evaluation(self, results: dict[str, float | None]) -> dict[str, float]:  # noqa: ARG002
        again = offbeat.evaluate(self.run.evaluated_policy(), episodes=1, seed=3)
        return {"mine/evaluated": again.return_mean or 0.0}


@pytest.mark.parametrize(
    "settings",
    [{**PROCESSES, "max_lag": 1}, {"core": "gru", "core_size": 8, "minibatch_size": 64}],
    ids=["mlp in processes", "gru in serial"],
)
def test_callbacks_do_not_change_the_bits_of_an_exact_run(settings, tmp_path):
    settings = {**EVALUATED, **settings, "lag": "exact"}
    alone = small_run(tmp_path / "alone", **settings)
    busy = small_run(tmp_path / "busy", callbacks=[Busy()], **settings)
    assert weights_of(busy.path) == weights_of(alone.path)
    assert "mine/drawn" in busy.metrics
    assert "mine/evaluated" in busy.metrics
