"""The interface of the training loop to the callbacks of the user; `offbeat.api.callbacks.calls` implements it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offbeat.core.types import Tree
    from offbeat.metrics.counters import Counters

Numbers = Mapping[str, float]
"""Metrics that callbacks add, by name."""
NONE: Numbers = {}


class Observer:
    """Is notified of what happens in a run, in the thread of the training loop, between learning steps.

    It may ask for a stop, and add metrics. This one does nothing.
    """

    stop_reason = ""
    """Why the run is to stop at the next boundary; '' if it is not."""

    def metrics_written(self, line: Mapping[str, Any]) -> Numbers:  # noqa: ARG002
        """Take a metrics line that was written; return metrics of the next line."""
        return NONE

    def owner_of(self, metric: str) -> str:  # noqa: ARG002
        """Return who returned a metric in the last call, in words."""
        return "a callback"

    def evaluated(
        self,
        results: Mapping[str, float | None],  # noqa: ARG002
        weights: Mapping[str, Tree],  # noqa: ARG002
        counters: Counters,  # noqa: ARG002
    ) -> Numbers:
        """Take the result of an evaluation; return metrics that are written with it.

        Args:
            results: the metrics of the evaluation.
            weights: copies of the arrays that were evaluated, of each policy.
            counters: the counters of the run at these weights.
        """
        return NONE

    def checkpoint_saved(self, path: Path) -> None:
        """Take the directory of a checkpoint that was written."""

    def run_failed(self) -> None:
        """Note that the run has failed: callbacks get nothing from now on, so that what was learned can be saved."""
