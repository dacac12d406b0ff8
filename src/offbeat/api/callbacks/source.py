"""What the callbacks of a run can reach: its progress, its settings, and copies of its policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from offbeat.config.config import Config
from offbeat.config.trust import Code

if TYPE_CHECKING:
    from offbeat.api.playing.loaded_policy import LoadedPolicy
    from offbeat.core.types import Tree
    from offbeat.metrics.counters import Counters
    from offbeat.run_directory.directory import RunDirectory, RunState
    from offbeat.runtime.parts import Parts
    from offbeat.runtime.training_loop import TrainingLoop


class Source:
    """What the `RunHandle`s of all callbacks read: the run and its progress."""

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
        return self._parts.weights()

    def policy_of(self, weights: Mapping[str, Tree], counters: Counters, name: str | None) -> LoadedPolicy:
        """Return a policy with its weights, which are copied."""
        from offbeat.api.playing.load import chosen_policy, loaded_from
        from offbeat.run_directory.checkpoint import Checkpoint, SavedPolicy
        from offbeat.runtime.saving import numbers_of, policy_json

        chosen = chosen_policy(self.policies, name, str(self.directory.path))
        (policy,) = (each for each in self._parts.policies if each.name == chosen)
        saved = SavedPolicy(weights[chosen], policy_json(self.config, policy, numbers_of(counters)))
        return loaded_from(Checkpoint({chosen: saved}, None), str(self.directory.path), Code(), policy=chosen)
