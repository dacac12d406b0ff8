"""Callbacks: the user's objects and functions that are called while a run trains, and what they can reach."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from offbeat.config.changes import values_of
from offbeat.config.config import Config
from offbeat.config.trust import Code
from offbeat.core.errors import ConfigError, RunFailed, suggestion
from offbeat.runtime.callbacks import Observer

if TYPE_CHECKING:
    from offbeat.api.loaded_policy import LoadedPolicy
    from offbeat.core.types import Tree
    from offbeat.metrics.recorder import Counters
    from offbeat.run_directory.directory import RunDirectory, RunState
    from offbeat.runtime.parts import Parts
    from offbeat.runtime.training_loop import TrainingLoop

Answer = Literal["stop"] | Mapping[str, float] | None
"""What a callback may return: 'stop', metrics by name, or nothing."""
CallbackFunction = Callable[[dict[str, Any]], Answer]
"""The `on_metrics` of a callback, as a function."""


class RunHandle:
    """A run while it trains, as a callback sees it: `self.run`."""

    def __init__(self, source: _Source, name: str) -> None:
        self._source, self._name = source, name

    def __repr__(self) -> str:
        return f"<run {self.path}: {self.state}, {self.env_steps} env steps>"

    @property
    def path(self) -> Path:
        """The run directory."""
        return self._source.directory.path

    @property
    def settings(self) -> dict[str, object]:
        """Every setting of the run, by its key: `env`, `seed`, `steps`, `learning_rate`, ..."""
        return values_of(self._source.config)

    @property
    def policies(self) -> tuple[str, ...]:
        """The names of the policies; a single policy has the name 'default'."""
        return self._source.policies

    @property
    def env_steps(self) -> int:
        """Env steps that the run has learned from, of all its parts."""
        return self._source.counters.env_steps

    @property
    def learning_step(self) -> int:
        """Finished learning steps of the run, of all its parts."""
        return self._source.counters.learning_step

    @property
    def resumed(self) -> bool:
        """Whether the run continues from a checkpoint."""
        return self._source.resumed

    @property
    def state(self) -> RunState:
        """running; in `on_end` finished, interrupted or failed."""
        return self._source.state

    @property
    def reason(self) -> str:
        """Why the run has ended; '' while it is running."""
        return self._source.reason

    def stop(self, reason: str = "") -> None:
        """Stop the run at the next boundary, with a checkpoint: it can be resumed. Other threads may call it too.

        Args:
            reason: why, for status.json and the last message of the run.
        """
        self._source.stop(self._name, reason)

    def current_policy(self, name: str | None = None) -> LoadedPolicy:
        """Return a policy with the weights that the run has now. It is a copy: learning does not change it.

        Call this only in the methods of a callback. What it returns can be used at any time, in any thread.

        Args:
            name: the policy, in a run with several.

        Raises:
            ConfigError: there is no such policy, or there are several and none is named.
        """
        return self._source.policy_of(self._source.current_weights(), self._source.counters, name)

    def evaluated_policy(self, name: str | None = None) -> LoadedPolicy:
        """Return a policy with the weights of the last evaluation. It is a copy, as that of `current_policy`.

        Args:
            name: the policy, in a run with several.

        Raises:
            ConfigError: as `current_policy`; or there was no evaluation since the run was started or resumed.
        """
        if self._source.evaluated is None:
            raise ConfigError(
                f"there was no evaluation yet since {self.path} was started or resumed: call evaluated_policy() in "
                "on_evaluation, or use current_policy()"
            )
        return self._source.policy_of(*self._source.evaluated, name)


class Callback:
    """The base class of callbacks: override the methods that you need. `self.run` is the run.

    All methods are called in the process and the thread that has called `offbeat.train` or `offbeat.resume`, between
    two learning steps, for one callback after the other, in the order of the list. Meanwhile actors act as far as
    the pace allows. With `lag="exact"` callbacks change no bits of the run, whatever they return.

    `on_metrics` and `on_evaluation` may return 'stop', which is the same as `self.run.stop()`, or a dict of numbers,
    which become metrics. An exception ends the run: what was learned is saved, and `offbeat.train` raises it.
    """

    run: RunHandle
    """The run: its path, its settings, its current policy. It is set before `on_start`."""

    def on_start(self) -> None:
        """Called before the first learning step, of a new run and of one that is resumed (`self.run.resumed`)."""

    def on_metrics(self, line: dict[str, Any]) -> Answer:
        """Called with each metrics line after it was written; None are values that are not known yet.

        The numbers that it returns are written in the next line.
        """

    def on_evaluation(self, results: dict[str, float | None]) -> Answer:
        """Called with the results of each evaluation, before they are written to a metrics line.

        `results` has `eval_return_mean` and the other eval_ metrics; `eval_env_steps` are the env steps of the weights.
        These are in `self.run.evaluated_policy()`: learning goes on during an evaluation in another process.
        The numbers that it returns are written in the same lines as the results.
        """

    def on_checkpoint(self, path: Path) -> None:
        """Called after `latest` or `best` of the checkpoints has changed, with the directory that it now points to.

        It is not called for the checkpoint of the start, and not for one that could not be written.
        """

    def on_end(self) -> None:
        """Called once after the last line and the last checkpoint; `self.run.state` and `.reason` say how it ended.

        Also called if the run failed, as long as this process lives: close here what `on_start` has opened.
        """


class _FunctionCallback(Callback):
    """A function as a callback."""

    def __init__(self, function: CallbackFunction) -> None:
        self.function = function

    def on_metrics(self, line: dict[str, Any]) -> Answer:
        return self.function(line)


class Callbacks(Observer):
    """All callbacks of a run, in their order."""

    def __init__(self, given: Sequence[Callback | CallbackFunction]) -> None:
        """Take the callbacks that the user has given.

        Raises:
            ConfigError: it is no list, or one of them is not a callback.
        """
        is_one = callable(given) or isinstance(given, Callback)
        if is_one or not isinstance(given, Iterable):
            name = _name_of(given) if is_one else repr(given)
            raise ConfigError(f"callbacks is {name}, but a list is expected: pass callbacks=[{_example(given)}]")
        self._callbacks = [_as_callback(each) for each in given]
        self._source: _Source | None = None
        self._has_started: list[Callback] = []
        self._has_failed = False
        self._owners: dict[str, str] = {}
        """Name of the callback that returned each number last."""
        self.failure = ""

    @property
    def stop_reason(self) -> str:  # type: ignore[override]
        return self._source.stop_reason if self._source else ""

    def start(self, parts: Parts, directory: RunDirectory, loop: TrainingLoop, *, resumed: bool) -> None:
        """Connect the callbacks with a run whose actors have started, and call `on_start`."""
        self._source = source = _Source(parts, directory, loop, resumed)
        for callback in self._callbacks:
            callback.run = RunHandle(source, name_of(callback))
            self._has_started.append(callback)
            self._call(callback, callback.on_start)

    def metrics_written(self, line: Mapping[str, Any]) -> dict[str, float]:
        return self._collect(lambda callback: partial(callback.on_metrics, dict(line)))

    def evaluated(
        self, results: Mapping[str, float | None], weights: Mapping[str, Tree], counters: Counters
    ) -> dict[str, float]:
        if self._source:
            self._source.evaluated = weights, counters
        return self._collect(lambda callback: partial(callback.on_evaluation, dict(results)))

    def checkpoint_saved(self, path: Path) -> None:
        for callback in self._active:
            self._call(callback, partial(callback.on_checkpoint, path))

    def run_failed(self) -> None:
        self._has_failed = True

    def end(self, state: RunState, reason: str) -> None:
        """Call `on_end` of all callbacks whose `on_start` was called, also if one of them raises an exception.

        Raises:
            BaseException: the last exception of a callback; the earlier ones are its context.
        """
        if self._source:
            self._source.state, self._source.reason = state, reason
        started, self._has_started = self._has_started, []
        with ExitStack() as calls:
            for callback in reversed(started):  # an ExitStack calls the last one first
                calls.callback(self._call, callback, callback.on_end)

    def owner_of(self, metric: str) -> str:
        return f"the callback {self._owners[metric]}" if metric in self._owners else "a callback"

    @property
    def _active(self) -> list[Callback]:
        return [] if self._has_failed else self._has_started

    def _collect(self, method: Callable[[Callback], Callable[[], Answer]]) -> dict[str, float]:
        """Call a method of each callback; return all numbers that they return."""
        numbers: dict[str, float] = {}
        owners: dict[str, str] = {}
        for callback in self._active:
            name, answer = name_of(callback), self._call(callback, method(callback))
            if isinstance(answer, str) and answer == "stop":
                callback.run.stop()
            elif answer is not None:
                added = _numbers(answer, name)
                for twice in numbers.keys() & added.keys():
                    raise RunFailed(
                        f"the callbacks {owners[twice]} and {name} both returned {twice!r}: rename one of them"
                    )
                numbers |= added
                owners |= dict.fromkeys(added, name)
        self._owners = owners
        return numbers

    def _call(self, callback: Callback, method: Callable[[], Answer]) -> Answer:
        """Call a method of a callback. An exception gets a note that says whose it is, and is kept as the failure."""
        try:
            return method()
        except SystemExit as error:
            self.failure = (
                f"the callback {name_of(callback)} called sys.exit({'' if error.code is None else repr(error.code)}): "
                "return 'stop', or call self.run.stop(), to end the run"
            )
            raise RunFailed(self.failure) from error
        except Exception as error:
            self.failure = self.failure or f"the callback {name_of(callback)} raised {type(error).__name__}: {error}"
            error.add_note(f"It was raised in the callback {name_of(callback)}")
            raise


class _Source:
    """What the handles of all callbacks read: the run and its progress."""

    def __init__(self, parts: Parts, directory: RunDirectory, loop: TrainingLoop, resumed: bool) -> None:
        self._parts, self._loop, self.directory, self.resumed = parts, loop, directory, resumed
        self.config: Config = parts.config
        self.policies = tuple(policy.name for policy in parts.policies)
        self.state: RunState = "running"
        self.reason = self.stop_reason = ""
        self.evaluated: tuple[Mapping[str, Tree], Counters] | None = None
        """The weights of the last evaluation, and the counters of the run at these weights."""

    @property
    def counters(self) -> Counters:
        return self._loop.counters

    def stop(self, name: str, reason: str) -> None:
        self.stop_reason = self.stop_reason or ": ".join(filter(None, (f"stopped by the callback {name}", reason)))

    def current_weights(self) -> dict[str, Tree]:
        return self._parts.snapshot()

    def policy_of(self, weights: Mapping[str, Tree], counters: Counters, name: str | None) -> LoadedPolicy:
        """Return a policy with its weights, which are copied."""
        from offbeat.api.load import chosen_policy, loaded_from
        from offbeat.run_directory.checkpoint import Checkpoint, SavedPolicy
        from offbeat.runtime.saving import about, progress_of

        chosen = chosen_policy(self.policies, name, str(self.directory.path))
        (policy,) = (each for each in self._parts.policies if each.name == chosen)
        saved = SavedPolicy(weights[chosen], about(self.config, policy, progress_of(counters)))
        return loaded_from(Checkpoint({chosen: saved}, None), str(self.directory.path), Code(), policy=chosen)


def name_of(callback: Callback) -> str:
    """Return the name of a callback for messages: its class, or the function."""
    return _name_of(callback.function) if isinstance(callback, _FunctionCallback) else type(callback).__name__


def _name_of(given: object) -> str:
    return getattr(given, "__name__", None) or type(given).__name__


def _example(given: object) -> str:
    if isinstance(given, type):
        return f"{given.__name__}()"
    return "my_callback" if isinstance(given, Callback) else "my_function"


def _as_callback(given: Callback | CallbackFunction) -> Callback:
    """Return an object of the user as a callback.

    Raises:
        ConfigError: it is none.
    """
    if isinstance(given, Callback):
        _refuse_unknown_methods(given)
        return given
    if isinstance(given, type):
        raise ConfigError(
            f"callbacks has the class {given.__name__}, but an object is expected: pass {given.__name__}()"
        )
    if not callable(given):
        raise ConfigError(
            f"callbacks has {given!r}, but an object of a subclass of offbeat.Callback is expected, or a function that "
            "is called with each metrics line"
        )
    return _FunctionCallback(given)


def _refuse_unknown_methods(callback: Callback) -> None:
    """Refuse a callback with a method that looks as if it were called: on_step, or _on_step of another library.

    Raises:
        ConfigError: it has one.
    """
    called = [name for name in vars(Callback) if name.startswith("on_")]
    for name in dir(callback):
        if name.startswith(("on_", "_on_")) and name not in called and callable(getattr(callback, name)):
            raise ConfigError(
                f"the callback {type(callback).__name__} has the method {name}, which is never called."
                f"{suggestion(name.lstrip('_'), called)} The methods that are called are {', '.join(called)}"
            )


def _numbers(answer: object, callback: str) -> dict[str, float]:
    """Return the metrics that a callback has returned, as floats.

    Raises:
        RunFailed: it returned something else.
    """
    if not isinstance(answer, Mapping):
        raise RunFailed(
            f"the callback {callback} returned {answer!r}, but 'stop', a dict of numbers or None is expected"
        )
    return {_checked_name(key, callback): _number(value, key, callback) for key, value in answer.items()}


def _checked_name(key: object, callback: str) -> str:
    if not isinstance(key, str) or not key or not key.isprintable():
        raise RunFailed(f"the callback {callback} returned the key {key!r}, but a name is expected: 'my_metric'")
    return key


def _number(value: object, key: str, callback: str) -> float:
    if not isinstance(value, Real | np.bool_):
        raise RunFailed(
            f"the callback {callback} returned {key}={value!r}, but a number is expected: return float(...) of it, or "
            "leave it out of the dict while its value is not known"
        )
    return float(value)
