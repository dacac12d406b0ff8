"""Callbacks: the user's objects and functions that are called while a run trains, and what they can reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from offbeat.config.keys import values_of

if TYPE_CHECKING:
    from offbeat.api.callbacks.source import Source
    from offbeat.api.playing.loaded_policy import LoadedPolicy
    from offbeat.run_directory.directory import RunState

Stop = Literal["stop"] | None
"""What each method of a callback except `on_end` may return: 'stop', or nothing."""
Answer = Stop | Mapping[str, float]
"""What a callback may return: 'stop', metrics by name, or nothing."""
CallbackFunction = Callable[[dict[str, Any]], Answer]
"""The `on_metrics` of a callback, as a function."""


class RunHandle:
    """A run while it trains, as a callback sees it: `self.run`."""

    def __init__(self, source: Source, name: str) -> None:
        self._source, self._name = source, name

    def __repr__(self) -> str:
        return f"<run {self.path}: {self.state}, {self.env_steps} env steps>"

    @property
    def path(self) -> Path:
        """The run directory, as an absolute path: an env may change the working directory."""
        return self._source.directory.folder

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

        Call this only in the methods of a callback. What it returns can be used at any time, in any thread; several
        threads may share it as they may share a `LoadedPolicy`.

        Args:
            name: the policy, in a run with several.

        Raises:
            ConfigError: there is no such policy, or there are several and none is named; or the run has ended.
        """
        return self._source.current_policy(name)

    def evaluated_policy(self, name: str | None = None) -> LoadedPolicy:
        """Return a policy with the weights of the last evaluation. It is a copy, as that of `current_policy`.

        Args:
            name: the policy, in a run with several.

        Raises:
            ConfigError: as `current_policy`; or there was no evaluation since the run was started or resumed.
        """
        return self._source.evaluated_policy(name)


class Callback:
    """The base class of callbacks: override the methods that you need. `self.run` is the run.

    All methods are called in the process and the thread that has called `offbeat.train` or `offbeat.resume`, between
    two learning steps, for one callback after the other, in the order of the list. Meanwhile actors act as far as
    the pace allows. With `lag="exact"` callbacks change no bits of the run, whatever they return.

    All but `on_end` may return 'stop', which is the same as `self.run.stop()`. `on_metrics` and `on_evaluation` may
    instead return a dict of numbers, which become metrics. An exception ends the run: what was learned is saved, and
    `offbeat.train` raises it. An object can be used in several runs, but not before the run before has ended.
    """

    run: RunHandle
    """The run: its path, its settings, its current policy. It is set before `on_start`."""

    def __init__(self) -> None:
        """Make a callback. The base class has no arguments, such as `verbose`: a subclass may have its own."""
        super().__init__()  # of a second base class

    def on_start(self) -> Stop:
        """Called before the first learning step, of a new run and of one that is resumed (`self.run.resumed`)."""

    def on_metrics(self, line: dict[str, Any]) -> Answer:
        """Called with each metrics line after it was written; None are values that are not known yet.

        The numbers that it returns are written in the next line.
        """

    def on_evaluation(self, results: dict[str, float | None]) -> Answer:
        """Called with the results of each evaluation, before they are written to a metrics line.

        `results` has `eval_return_mean` and the other eval_ metrics; `eval_env_steps` are the env steps of the weights.
        These are in `self.run.evaluated_policy()`: learning goes on during an evaluation in another process.
        The numbers that it returns are written in the same lines as the results. Let their names begin with eval_, so
        that `offbeat plot` draws them as evaluations.
        """

    def on_checkpoint(self, path: Path) -> Stop:
        """Called after `latest` or `best` of the checkpoints has changed, with the directory that it now points to.

        It is not called for the checkpoint of the start, and not for one that could not be written.
        """

    def on_end(self) -> None:
        """Called once after the last line and the last checkpoint; `self.run.state` and `.reason` say how it ended.

        Also called if the run failed, as long as this process lives: close here what `on_start` has opened.
        """
