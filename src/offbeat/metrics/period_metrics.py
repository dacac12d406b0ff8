"""The metrics of a period, the time between two lines: rates, shares of time, and averages over learning steps."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from operator import itemgetter
from statistics import fmean
from typing import Any

from offbeat.core.policy_names import policy_key, without_policy
from offbeat.metrics import timings as timed
from offbeat.metrics.bottleneck import BottleneckReport, bottleneck_report
from offbeat.metrics.counters import Counters
from offbeat.metrics.speed_model import Topology
from offbeat.metrics.timings import KINDS, Timings

_MINIMA = (
    "policy_lag_min",
    "sample_age_min",
    "gradient_staleness_min",
    "slots_filled_min",
    "learner_queue_size_min",
)
_MAXIMA = (
    "policy_lag_max",
    "sample_age_max",
    "gradient_staleness_max",
    "ratio_max_deviation_first",
    "slots_filled_max",
    "learner_queue_size_max",
)
_NEWEST = (
    "utd_ratio",
    "samples_per_insert",
    "replay_size",
    "batch_uses",
    "learning_rate",
    "epsilon",
    "league_games",
    "elo",
    "win_rate",
    "snapshots",
)
_REDUCTIONS: dict[str, Callable[[Sequence[float]], float]] = {
    **dict.fromkeys(_MINIMA, min),
    **dict.fromkeys(_MAXIMA, max),
    **dict.fromkeys(_NEWEST, itemgetter(-1)),
}
"""How the values of learning steps become one number: metric -> function. All others are averaged."""
_TOTALS_S = {
    "actor_wait_s": timed.ACTOR_WAIT,
    "learner_wait_s": timed.LEARNER_WAIT,
    "inference_wait_s": timed.INFERENCE_WAIT,
    "message_wait_s": timed.MESSAGE_WAIT,
    "publish_s": timed.PUBLISH,
}
"""Total seconds: metric -> name in `Timings`."""
_STEP_MS = {
    "learner_dequeue_time_ms": (timed.LEARNER_WAIT,),
    "learner_load_time_ms": (timed.LOAD, timed.LOADER),
    "learner_load_wait_time_ms": (timed.LOAD_WAIT,),
    "learner_prepare_time_ms": (timed.PREPARE,),
    "learner_grad_time_ms": (timed.UPDATE,),
    "learner_exchange_time_ms": (timed.EXCHANGE,),
}
"""Milliseconds of a learning step: metric -> names in `Timings`, whose sum it is."""


class PeriodMetrics:
    """Collects what happens in a period; `values` has the metrics of the last period that ended."""

    def __init__(self, topology: Topology | None) -> None:
        """Start the first period; without a topology there is no bottleneck report."""
        self._topology = topology
        self.bottleneck: BottleneckReport | None = None
        """The bottleneck report of the last period with updates; None before the first one has ended."""
        self.values: dict[str, float | None] = {}
        """Metrics of the last period."""
        self.counters = Counters()
        """Counters at the end of the last period."""
        self._metrics: defaultdict[str, list[float]] = defaultdict(list)
        """Metrics of the learning steps in this period."""
        self._timed: dict[str, float] = {}
        """Totals of the timings at the end of the last period."""
        self._seconds = dict.fromkeys(_TOTALS_S, 0.0)
        """Total seconds at the end of the last period."""

    def add_learning_step(self, metrics: Mapping[str, float], policy: str) -> None:
        """Add the metrics of one learning step of a policy."""
        for name, value in metrics.items():
            self._metrics[policy_key(policy, name)].append(value)

    def end(self, counters: Counters, timings: Timings, infos: Mapping[str, float | None]) -> None:
        """End the period: set `values` and, if it made updates, the bottleneck report. The next period starts.

        Args:
            counters: counters now.
            timings: timings of the run.
            infos: the means of `info_metrics` in this period.
        """
        before, spent = self.counters, timings.since(self._timed)
        seconds = counters.wall_time_s - before.wall_time_s
        self.values = {
            "sps": _rate(counters.env_steps - before.env_steps, seconds),
            "ups": _rate(counters.updates - before.updates, seconds),
            **{f"time_{kind}": _rate(spent.get(kind, 0.0), seconds) for kind in KINDS},
            **_step_times(spent, counters.learning_step - before.learning_step),
            **self._waits(spent, seconds, counters),
            **{name: _reduce(name, metrics) for name, metrics in self._metrics.items()},
            **infos,
        }
        self._seconds = self.total_seconds(timings)
        self.counters, self._timed = counters, timings.totals()
        self._metrics.clear()

    def total_seconds(self, timings: Timings) -> dict[str, float]:
        """Return the metrics that are total seconds, until now."""
        spent = timings.since(self._timed)
        return {name: self._seconds[name] + spent.get(path, 0.0) for name, path in _TOTALS_S.items()}

    def conclude(self, timings: Timings, seconds: float, restarts: int) -> None:
        """Set the bottleneck report to that of the whole run, which took `seconds` and restarted actors so often."""
        if self._topology:
            self.bottleneck = bottleneck_report(timings.totals(), seconds, self._topology, restarts)

    def state(self, timings: Timings) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {
            "period": dict(self.values),
            "metrics": {name: list(values) for name, values in self._metrics.items()},
            "counted": asdict(self.counters),
            "waited": dict(self._seconds),
            "spent": timings.since(self._timed),
            "bottleneck": None if self.bottleneck is None else asdict(self.bottleneck),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore `state()`. Timings start again from zero, but the unfinished period continues."""
        self.values = dict(state["period"])
        self._metrics.update({name: list(values) for name, values in state["metrics"].items()})
        self.counters = Counters.of_state(state["counted"])
        self._seconds |= state["waited"]
        bottleneck = state.get("bottleneck")
        self.bottleneck = None if bottleneck is None else BottleneckReport(**bottleneck)
        self._timed = {name: -seconds for name, seconds in state["spent"].items()}

    def _waits(self, spent: Mapping[str, float], seconds: float, counters: Counters) -> dict[str, float | None]:
        if self._topology is None:
            return {}
        before = self.counters
        report = bottleneck_report(spent, seconds, self._topology, counters.actor_restarts - before.actor_restarts)
        if counters.updates > before.updates:  # else it would be about a warm-up
            self.bottleneck = report
        return {"actor_wait_fraction": report.actor_wait, "learner_wait_fraction": report.learner_wait}


def _step_times(spent: Mapping[str, float], steps: int) -> dict[str, float | None]:
    """Return the mean milliseconds of `steps` learning steps, by metric."""
    seconds = {name: sum(spent.get(path, 0.0) for path in paths) for name, paths in _STEP_MS.items()}
    return {name: _rate(1000 * each, steps) for name, each in seconds.items()}


def _rate(amount: float, seconds: float) -> float | None:
    return amount / seconds if seconds > 0 else None


def _reduce(name: str, metrics: Sequence[float]) -> float | None:
    """Reduce values to one number. Values that are not finite (the loss of a refused update) are left out."""
    finite = [value for value in metrics if math.isfinite(value)]
    return _REDUCTIONS.get(without_policy(name), fmean)(finite) if finite else None
