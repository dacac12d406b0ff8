"""Restores the parts of a run from a checkpoint, and says what was restored."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offbeat.api.running.run_context import StartMessages
from offbeat.api.running.start_warnings import resume_warnings
from offbeat.config.changes import Changed
from offbeat.config.config import Config
from offbeat.core.process.threads import blas_kernels

if TYPE_CHECKING:
    from offbeat.metrics.counters import Counters
    from offbeat.run_directory.checkpoint import Checkpoint
    from offbeat.runtime.loop.training_loop import TrainingLoop
    from offbeat.runtime.parts import Parts


@dataclass
class Continuation:
    """The checkpoint from which a run is resumed. It is released once it is restored: this frees its arrays, and closes
    the file of its replay.
    """

    run: Path
    saved: Checkpoint | None
    """The checkpoint; None once it is restored."""
    changed: Changed
    """The settings that differ from those of the run so far."""

    def start_acting(self, parts: Parts, loop: TrainingLoop) -> StartMessages:
        """Restore the parts and start acting."""
        from offbeat.runtime.loop.saving import score_of
        from offbeat.runtime.loop.state_checks import refuse_mismatches

        saved, self.saved = self.saved, None
        assert saved is not None
        assert saved.state is not None
        with refuse_mismatches(self.run):
            parts.require_like(saved.state)
            parts.load_weights(saved.weights_by_policy)
            continued, memory = loop.restore(saved.state, saved.replay, score_of(saved))
        warnings = resume_warnings(
            parts, self.changed, env_steps=loop.counters.env_steps, counts_anew=saved.replay is None
        )
        dropped = "only the newest checkpoint has its replay" if saved.replay_dropped else ""
        resumed = _resumed(loop.counters, "; ".join(filter(None, (memory, dropped))), continues_episodes=continued)
        return StartMessages(f"{resumed}{self._changes(parts.config)}{_kernels(saved.state)}", warnings)

    def _changes(self, config: Config) -> str:
        """Return a message about the changed settings, and about policies that have their own values of them."""
        changes = ", ".join(f"{key} from {old} to {new}" for key, (old, new) in self.changed.items())
        own = (
            f"; the policy {name} keeps its own {key} of {policy.settings[key]}"
            for name, policy in config.policies.items()
            for key in self.changed
            if key in policy.settings
        )
        return f"; settings changed: {changes}{''.join(own)}" if self.changed else ""


def _resumed(counters: Counters, memory: str, *, continues_episodes: bool) -> str:
    """Return where the run continues, and what was restored.

    Args:
        counters: the restored counters.
        memory: the message about the memory.
        continues_episodes: whether the unfinished episodes were restored.
    """
    if not counters.learning_step:
        return "resumed from the start: nothing had been learned"
    episodes = (
        "unfinished episodes continue"
        if continues_episodes
        else "unfinished episodes were not saved: they are cut, and new episodes start"
    )
    restored = "weights, optimizer, normalisation, schedules and random streams restored"
    details = "; ".join(filter(None, (restored, memory, episodes)))
    return f"resumed at {counters.env_steps} env steps: {details}"


def _kernels(state: dict[str, Any]) -> str:
    """Return a note if BLAS has other kernels here than on the machine where the run was saved."""
    before, now = state.get("blas_kernels"), blas_kernels()
    return f"; OpenBLAS uses the kernels {now}, not {before}: results differ by rounding" * (before != now)
