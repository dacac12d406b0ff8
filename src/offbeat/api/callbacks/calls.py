"""Calls the callbacks of a run, and checks what they return."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from offbeat.api.callbacks.callback import Answer, Callback, CallbackFunction, RunHandle
from offbeat.config.other_libraries import other_calls
from offbeat.core.errors import ConfigError, RunFailed, suggestion, type_and_text
from offbeat.core.fields import in_short
from offbeat.core.messages import once
from offbeat.runtime.loop.observer import Observer

if TYPE_CHECKING:
    from offbeat.core.types import Tree
    from offbeat.metrics.counters import Counters
    from offbeat.run_directory.directory import RunDirectory, RunState
    from offbeat.runtime.loop.training_loop import TrainingLoop
    from offbeat.runtime.parts import Parts
    from offbeat.runtime.reporting import Notify


class _FunctionCallback(Callback):
    """A function as a callback."""

    def __init__(self, function: CallbackFunction) -> None:
        self.function = function

    def on_metrics(self, line: dict[str, Any]) -> Answer:
        return self.function(line)


_RESERVED: dict[int, Callbacks] = {}
"""Identity of a callback -> those of the run that it is reserved for."""


class Callbacks(Observer):
    """All callbacks of a run, in their order."""

    def __init__(self, given: Sequence[Callback | CallbackFunction]) -> None:
        """Take the callbacks that the user has given.

        Raises:
            ConfigError: it is no list, or one of them is not a callback or is in it twice.
        """
        is_one = callable(given) or isinstance(given, Callback)
        if is_one or not isinstance(given, Iterable):
            name = _name_of(given) if is_one else repr(given)
            raise ConfigError(f"callbacks is {name}, but a list is expected: pass callbacks=[{_example(given)}]")
        given = list(given)
        self._callbacks = [_as_callback(each) for each in given]
        for number, each in enumerate(given):
            if any(each is other for other in given[:number]):
                raise ConfigError(f"callbacks has {_name_of(each)} twice, so it would be called twice: pass it once")
        self._run: Path | str = "another run"
        """The run directory, for messages; until `start` there may be none."""
        self._started: list[tuple[Callback, RunHandle]] = []
        """Beside each its own handle: a callback may have replaced its attribute `run`."""
        self._run_failed = False
        self._watch_call: Callable[[str], AbstractContextManager[Any]] = nullcontext
        """Returns a context in which a callback is called: the user is notified if it does not return in time.

        Its argument is the name of the call, for the message. Until `start` it watches nothing.
        """
        self._owners: dict[str, str] = {}
        """Name of the callback that returned each number last."""
        self.failure = ""

    @property
    def stop_reason(self) -> str:  # type: ignore[override]
        return next((handle._stop_reason for _, handle in self._started if handle._stop_reason), "")  # noqa: SLF001

    def start(
        self, parts: Parts, directory: RunDirectory, loop: TrainingLoop, notify: Notify, *, resumed: bool
    ) -> None:
        """Connect the callbacks with a run whose actors have started, and call `on_start`.

        `notify` is called once for each method of a callback that does not return in time.
        """
        self._run, self._watch_call = directory.folder, partial(parts.main_thread.callback, once(notify))
        for callback in self._callbacks:
            callback.run = handle = RunHandle(parts, directory, loop, name_of(callback), resumed=resumed)
            self._started.append((callback, handle))
            self._answer_without_numbers(callback, "on_start")

    @contextmanager
    def reserved(self) -> Iterator[None]:
        """Reserve the callbacks for this run while entered, or until it ends: in another run they would no longer reach
        it.

        Raises:
            ConfigError: one of them is reserved for another run, perhaps in another thread.
        """
        with ExitStack() as releasing:
            for callback in self._callbacks:
                other = _RESERVED.setdefault(id(callback), self)  # one operation: of two threads, one reserves it
                if other is not self:
                    raise ConfigError(
                        f"{name_of(callback)} is in the callbacks of {other._run}, "  # noqa: SLF001
                        "which has not ended: pass another object"
                    )
                releasing.callback(self._release, callback)
            yield

    def _release(self, callback: Callback) -> None:
        if _RESERVED.get(id(callback)) is self:
            del _RESERVED[id(callback)]

    def metrics_written(self, line: Mapping[str, Any]) -> dict[str, float]:
        return self._collect("on_metrics", line)

    def evaluated(
        self, results: Mapping[str, float | None], weights: Mapping[str, Tree], counters: Counters
    ) -> dict[str, float]:
        for _, handle in self._started:
            handle._evaluated = weights, counters  # noqa: SLF001
        return self._collect("on_evaluation", results)

    def checkpoint_saved(self, path: Path) -> None:
        for callback in self._active:
            self._answer_without_numbers(callback, "on_checkpoint", path)

    def run_failed(self) -> None:
        self._run_failed = True

    def end(self, state: RunState, reason: str) -> None:
        """Call `on_end` of all callbacks whose `on_start` was called, also if one of them raises an exception.

        Raises:
            BaseException: the last exception of a callback; the earlier ones are its context.
        """
        started, self._started = self._started, []
        with ExitStack() as calls:
            for callback, handle in reversed(started):  # an ExitStack calls the last one first
                handle.state, handle.reason = state, reason
                calls.callback(handle._release)  # noqa: SLF001
                calls.callback(self._call, callback, "on_end")
                calls.callback(self._release, callback)  # before: there it may start another run

    def owner_of(self, metric: str) -> str:
        return f"the callback {self._owners[metric]}" if metric in self._owners else "a callback"

    @property
    def _active(self) -> list[Callback]:
        return [] if self._run_failed else [callback for callback, _ in self._started]

    def _collect(self, method: str, argument: Mapping[str, Any]) -> dict[str, float]:
        """Call a method of each callback, with a copy of the argument; return all numbers that they return."""
        numbers: dict[str, float] = {}
        owners: dict[str, str] = {}
        for callback in self._active:
            name, answer = name_of(callback), self._answer(callback, method, dict(argument))
            if answer is not None:
                added = _numbers(answer, name)
                for twice in numbers.keys() & added.keys():
                    raise RunFailed(
                        f"the callbacks {owners[twice]} and {name} both returned {twice!r}: rename one of them"
                    )
                numbers |= added
                owners |= dict.fromkeys(added, name)
        self._owners = owners
        return numbers

    def _answer_without_numbers(self, callback: Callback, method: str, *arguments: Any) -> None:
        """Call a method that may return 'stop' but no numbers.

        Raises:
            RunFailed: it returned something else.
        """
        answer = self._answer(callback, method, *arguments)
        if answer is not None:
            raise RunFailed(
                f"{method} of the callback {name_of(callback)} returned {in_short(answer)}, but 'stop' or None is "
                "expected"
            )

    def _answer(self, callback: Callback, method: str, *arguments: Any) -> Answer:
        """Call a method, and stop the run if it returns 'stop'; return any other answer."""
        answer = self._call(callback, method, *arguments)
        if isinstance(answer, str) and answer == "stop":
            callback.run.stop()
            return None
        return answer

    def _call(self, callback: Callback, method: str, *arguments: Any) -> Answer:
        """Call a method of a callback. An exception gets a note that says whose it is, and is kept as the failure."""
        try:
            with self._watch_call(f"{method} of the callback {name_of(callback)}"):
                answer: Answer = getattr(callback, method)(*arguments)
                return answer
        except SystemExit as error:
            self.failure = (
                f"the callback {name_of(callback)} called sys.exit({'' if error.code is None else repr(error.code)}): "
                "return 'stop', or call self.run.stop(), to end the run"
            )
            raise RunFailed(self.failure) from error
        except (Exception, KeyboardInterrupt) as error:
            self.failure = self.failure or f"the callback {name_of(callback)} raised {type_and_text(error)}"
            error.add_note(f"It was raised in the callback {name_of(callback)}")
            raise


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
            f"callbacks has {in_short(given)}, but an object of a subclass of offbeat.Callback is expected, or a "
            "function that is called with each metrics line"
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
            known = f" {other_calls()[name]}." if name in other_calls() else suggestion(name, called, likeness=0.8)
            raise ConfigError(
                f"the callback {type(callback).__name__} has the method {name}, which is never called.{known} The "
                f"methods that are called are {', '.join(called)}"
            )


def _numbers(answer: object, callback: str) -> dict[str, float]:
    """Return the metrics that a callback has returned, as floats.

    Raises:
        RunFailed: it returned something else.
    """
    if not isinstance(answer, Mapping):
        raise RunFailed(
            f"the callback {callback} returned {in_short(answer)}, but 'stop', a dict of numbers or None is expected"
        )
    return {_checked_name(key, callback): _number(value, key, callback) for key, value in answer.items()}


def _checked_name(key: object, callback: str) -> str:
    if not isinstance(key, str) or not key or not key.isprintable():
        raise RunFailed(
            f"the callback {callback} returned the key {in_short(key)}, but a name is expected: 'my_metric'"
        )
    return key


def _number(value: object, key: str, callback: str) -> float:
    if isinstance(value, Real | np.bool_):
        with suppress(OverflowError):  # an int that is too large for a float
            return float(value)
    raise RunFailed(
        f"the callback {callback} returned {key}={in_short(value)}, but a number is expected: return float(...) of it, "
        "or leave it out of the dict while its value is not known"
    )
