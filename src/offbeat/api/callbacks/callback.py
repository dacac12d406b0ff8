"""Callbacks: the user's objects and functions that are called while a run trains, and what they can reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from offbeat.config.keys import values_of
from offbeat.core.errors import ConfigError

if TYPE_CHECKING:
    from offbeat.api.playing.loaded_policy import LoadedPolicy
    from offbeat.core.types import Tree
    from offbeat.metrics.counters import Counters
    from offbeat.run_directory.directory import RunDirectory, RunState
    from offbeat.runtime.loop.training_loop import TrainingLoop
    from offbeat.runtime.parts import Parts

Stop = Literal["stop"] | None
"""What each method of a callback except `on_end` may return: 'stop', or nothing."""
Answer = Stop | Mapping[str, float]
"""What a callback may return: 'stop', metrics by name, or nothing."""
CallbackFunction = Callable[[dict[str, Any]], Answer]
"""The `on_metrics` of a callback, as a function."""


class RunHandle:
    """A run while it trains, as a callback sees it: `self.run`."""

    def __init__(
        self, parts: Parts, directory: RunDirectory, loop: TrainingLoop, callback: str, *, resumed: bool
    ) -> None:
        # Internal: None once the run has ended. Who keeps a callback does not keep the memory of its run.
        self._run: tuple[Parts, TrainingLoop] | None = parts, loop
        self._last_counters, self._config, self._callback = loop.counters, parts.config, callback
        self._evaluated: tuple[Mapping[str, Tree], Counters] | None = None
        self._stop_reason = ""
        self.path = directory.folder
        """The run directory, as an absolute path: an env may change the working directory."""
        self.policies = tuple(policy.name for policy in parts.policies)
        """The names of the policies; a single policy has the name 'default'."""
        self.resumed = resumed
        """Whether the run continues from a checkpoint."""
        self.state: RunState = "running"
        """running; in `on_end` finished, interrupted or failed."""
        self.reason = ""
        """Why the run has ended; '' while it is running."""

    def __repr__(self) -> str:
        return f"<run {self.path}: {self.state}, {self.env_steps} env steps>"

    @property
    def settings(self) -> dict[str, object]:
        """Every setting of the run, by its key: `env`, `seed`, `steps`, `learning_rate`, ..."""
        return values_of(self._config)

    @property
    def env_steps(self) -> int:
        """Env steps that the run has learned from, of all its parts."""
        return self._counters.env_steps

    @property
    def learning_step(self) -> int:
        """Finished learning steps of the run, of all its parts."""
        return self._counters.learning_step

    def stop(self, reason: str = "") -> None:
        """Stop the run at the next boundary, with a checkpoint: it can be resumed. Other threads may call it too.

        Args:
            reason: why, for status.json and the last message of the run.
        """
        text = ": ".join(filter(None, (f"stopped by the callback {self._callback}", reason)))
        self._stop_reason = self._stop_reason or text

    def current_policy(self, name: str | None = None) -> LoadedPolicy:
        """Return a policy with the weights that the run has now. It is a copy: learning does not change it.

        Call this only in the methods of a callback. What it returns can be used at any time, in any thread; several
        threads may share it as they may share a `LoadedPolicy`.

        Args:
            name: the policy, in a run with several.

        Raises:
            ConfigError: there is no such policy, or there are several and none is named; or the run has ended.
        """
        parts, loop = self._running()
        return self._policy_of(parts, loop, parts.weights(), loop.counters, name)

    def evaluated_policy(self, name: str | None = None) -> LoadedPolicy:
        """Return a policy with the weights of the last evaluation. It is a copy, as that of `current_policy`.

        Args:
            name: the policy, in a run with several.

        Raises:
            ConfigError: as `current_policy`; or there was no evaluation since the run was started or resumed.
        """
        parts, loop = self._running()
        if self._evaluated is None:
            raise ConfigError(
                f"there was no evaluation yet since {self.path} was started or resumed: call evaluated_policy() in "
                "on_evaluation, or use current_policy()"
            )
        return self._policy_of(parts, loop, *self._evaluated, name)

    @property
    def _counters(self) -> Counters:
        run = self._run  # another thread may read the counters while the run ends
        return self._last_counters if run is None else run[1].counters

    def _running(self) -> tuple[Parts, TrainingLoop]:
        """Return the parts of the run and its training loop.

        Raises:
            ConfigError: the run has ended.
        """
        if self._run is None:
            path = str(self.path)
            raise ConfigError(
                f"the run {path} has ended: its policies are in its files, so call offbeat.load({path!r})"
            )
        return self._run

    def _policy_of(
        self, parts: Parts, loop: TrainingLoop, weights: Mapping[str, Tree], counters: Counters, name: str | None
    ) -> LoadedPolicy:
        """Return a policy with its weights, which are copied; `counters`: those of the run at these weights."""
        from offbeat.api.playing.load import chosen_policy, loaded_from
        from offbeat.config.trust import Code
        from offbeat.run_directory.checkpoint import Checkpoint, SavedPolicy
        from offbeat.runtime.loop.saving import numbers_of, policy_json

        chosen = chosen_policy(self.policies, name, str(self.path))
        (policy,) = (each for each in parts.policies if each.name == chosen)
        numbers = numbers_of(counters) | loop.saving.score_at(counters)
        saved = SavedPolicy(weights[chosen], policy_json(self._config, policy, numbers))
        return loaded_from(Checkpoint({chosen: saved}, None), str(self.path), Code(), policy=chosen)

    def _release(self) -> None:
        """Release the memory of the run, which has ended."""
        self._last_counters, self._run, self._evaluated = self._counters, None, None


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
