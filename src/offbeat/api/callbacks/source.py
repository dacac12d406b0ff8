"""What the callbacks of a run can reach: its progress, its settings, and copies of its policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from offbeat.config.config import Config
from offbeat.config.trust import Code
from offbeat.core.errors import ConfigError

if TYPE_CHECKING:
    from offbeat.api.playing.loaded_policy import LoadedPolicy
    from offbeat.core.types import Tree
    from offbeat.metrics.counters import Counters
    from offbeat.run_directory.directory import RunDirectory, RunState
    from offbeat.runtime.loop.training_loop import TrainingLoop
    from offbeat.runtime.parts import Parts


class Source:
    """What the `RunHandle`s of all callbacks read: the run and its progress."""

    def __init__(self, parts: Parts, directory: RunDirectory, loop: TrainingLoop, resumed: bool) -> None:
        self._run: tuple[Parts, TrainingLoop] | None = parts, loop
        """None once the run has ended: who keeps its callbacks does not keep its memory."""
        self._last_counters = loop.counters
        self.directory, self.resumed = directory, resumed
        self.config: Config = parts.config
        self.policies = tuple(policy.name for policy in parts.policies)
        self.state: RunState = "running"
        self.reason = self.stop_reason = ""
        self.evaluated: tuple[Mapping[str, Tree], Counters] | None = None
        """The weights of the last evaluation, and the counters of the run at these weights."""

    @property
    def counters(self) -> Counters:
        run = self._run  # another thread may read the counters while the run ends
        return self._last_counters if run is None else run[1].counters

    def stop(self, name: str, reason: str) -> None:
        self.stop_reason = self.stop_reason or ": ".join(filter(None, (f"stopped by the callback {name}", reason)))

    def release(self) -> None:
        """Release the memory of the run, which has ended."""
        self._last_counters, self._run, self.evaluated = self.counters, None, None

    def current_policy(self, name: str | None) -> LoadedPolicy:
        """See `RunHandle.current_policy`."""
        parts, loop = self._running()
        return self._policy_of(parts, loop, parts.weights(), loop.counters, name)

    def evaluated_policy(self, name: str | None) -> LoadedPolicy:
        """See `RunHandle.evaluated_policy`."""
        parts, loop = self._running()
        if self.evaluated is None:
            raise ConfigError(
                f"there was no evaluation yet since {self.directory.folder} was started or resumed: call "
                "evaluated_policy() in on_evaluation, or use current_policy()"
            )
        return self._policy_of(parts, loop, *self.evaluated, name)

    def _running(self) -> tuple[Parts, TrainingLoop]:
        """Return the parts of the run and its training loop.

        Raises:
            ConfigError: the run has ended.
        """
        if self._run is None:
            path = str(self.directory.folder)
            raise ConfigError(
                f"the run {path} has ended: its policies are in its files, so call offbeat.load({path!r})"
            )
        return self._run

    def _policy_of(
        self, parts: Parts, loop: TrainingLoop, weights: Mapping[str, Tree], counters: Counters, name: str | None
    ) -> LoadedPolicy:
        """Return a policy with its weights, which are copied; `counters`: those of the run at these weights."""
        from offbeat.api.playing.load import chosen_policy, loaded_from
        from offbeat.run_directory.checkpoint import Checkpoint, SavedPolicy
        from offbeat.runtime.loop.saving import numbers_of, policy_json

        chosen = chosen_policy(self.policies, name, str(self.directory.path))
        (policy,) = (each for each in parts.policies if each.name == chosen)
        numbers = numbers_of(counters) | loop.saving.score_at(counters)
        saved = SavedPolicy(weights[chosen], policy_json(self.config, policy, numbers))
        return loaded_from(Checkpoint({chosen: saved}, None), str(self.directory.path), Code(), policy=chosen)
