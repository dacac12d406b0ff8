"""The recorder collects metrics and writes them as lines.

Every key of a line is named and described in `METRICS`, and explained in docs/reference/metrics.md.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from offbeat.core.messages import ignore
from offbeat.core.policy_names import DEFAULT_POLICY, policy_key
from offbeat.core.types import Array
from offbeat.metrics.bottleneck import BottleneckReport
from offbeat.metrics.checks import refused_name
from offbeat.metrics.counters import Counters
from offbeat.metrics.episode_window import EpisodeWindow, metrics_of_all
from offbeat.metrics.info_metrics import InfoMetrics
from offbeat.metrics.names import METRICS, is_of_run, tag_of
from offbeat.metrics.period_metrics import PeriodMetrics
from offbeat.metrics.sinks import Line, Sink
from offbeat.metrics.speed_model import Topology
from offbeat.metrics.timings import Timings

OwnerOf = Callable[[str], str]
"""Returns who gave a metric of this name, in words."""

EPISODES_TO_REPORT = 20
"""Number of episodes after which a name of `info_metrics` without any value causes a warning."""


class Recorder:
    """Collects metrics and writes them, one line at a time, to all sinks.

    In a run with several policies, metrics of one policy are named policies/<policy>/<metric>; those of episodes are
    written for all policies together too.

    Args:
        sinks: receive the lines.
        topology: the layout of the run; without it there is no bottleneck report.
        notify: shows a warning to the user.
        episodes_window: number of last training episodes over which returns and lengths are averaged.
        info: names of `info_metrics`, whose values since the last line are averaged.
        memory: returns the memory of the processes, by metric.

    Rates, shares of time and the metrics of learning steps are those of a period: the time since the last line. If no
    learning step has finished since then, the line repeats the values of the last period, and the current period
    continues. So the last line of a run has its state at the end.
    """

    def __init__(
        self,
        sinks: Sequence[Sink],
        topology: Topology | None = None,
        notify: Callable[[str], None] = ignore,
        *,
        episodes_window: int = 100,
        info: Sequence[str] = (),
        memory: Callable[[], Mapping[str, float | None]] = dict,
    ) -> None:
        self._sinks, self._memory = tuple(sinks), memory
        self._period = PeriodMetrics(topology)
        self._infos = InfoMetrics(info, notify)
        self._episodes = EpisodeWindow(episodes_window)
        """Episodes of the only policy of a run."""
        self._of_policies = defaultdict[str, EpisodeWindow](lambda: EpisodeWindow(episodes_window))
        """Episodes of each policy, in a run with several."""
        self._agent_steps = defaultdict[str, int](int)
        """Decisions that each policy has learned from, in a run with several."""
        self._totals: dict[str, int] = {"evaluations": 0, "evaluations_failed": 0}
        self._evaluation: dict[str, float | None] = {}
        """The results of the last evaluation."""
        self._given: dict[str, float] = {}
        """The numbers that callbacks have returned for the next line."""

    @property
    def bottleneck(self) -> BottleneckReport | None:
        """The bottleneck report of the last period with updates; None before the first one."""
        return self._period.bottleneck

    def add_episodes(self, returns: Array, lengths: Array, policy: str = DEFAULT_POLICY) -> None:
        """Add the episodes that ended in the batch of a policy: [n] returns and [n] lengths in env steps."""
        window = self._episodes if policy == DEFAULT_POLICY else self._of_policies[policy]
        window.add(returns, lengths)

    def add_agent_steps(self, count: int, policy: str) -> None:
        """Add the decisions that a policy has learned from in a learning step; with one policy, counters have them."""
        if policy != DEFAULT_POLICY:
            self._agent_steps[policy] += count

    @property
    def episode_length_mean(self) -> float:
        """Mean length of the last training episodes, in env steps; 0 before one has ended."""
        return metrics_of_all(self._windows)["episode_length_mean"] or 0.0

    @property
    def _windows(self) -> tuple[EpisodeWindow, ...]:
        """The episodes of each policy."""
        return tuple(self._of_policies.values()) or (self._episodes,)

    @property
    def _episode_count(self) -> int:
        return sum(window.count for window in self._windows)

    def add_learning_step(self, metrics: Mapping[str, float], policy: str = DEFAULT_POLICY) -> None:
        """Add the metrics of one learning step of a policy. Names that are not in `METRICS` are written too."""
        self._period.add_learning_step(metrics, policy)

    def add_infos(self, info: Array, policy: str = DEFAULT_POLICY) -> None:
        """Add values of `info_metrics` of a policy: the sum and the number of values of each name, [2, K]."""
        self._infos.add(info, policy)

    def add_callback_metrics(self, numbers: Mapping[str, float], owner_of: OwnerOf) -> None:
        """Add the numbers that callbacks have returned to the next line.

        Args:
            numbers: numbers by name.
            owner_of: returns who gave a number of this name, in words.

        Raises:
            RunFailed: a name is already the name of another metric.
        """
        self._refuse_taken(numbers, owner_of)
        self._given |= numbers

    def add_evaluation(self, results: Mapping[str, float | None]) -> None:
        """Add the results of an evaluation, by metric: eval_return_mean and the other eval_ metrics."""
        means = (self._evaluation.get("best_eval_return_mean"), results["eval_return_mean"])
        best = max((mean for mean in means if mean is not None), default=None)
        self._evaluation = {**results, "best_eval_return_mean": best}
        self._totals["evaluations"] += 1

    def add_to_evaluation(self, numbers: Mapping[str, float], owner_of: OwnerOf) -> None:
        """Add the numbers that callbacks have returned to the results of the last evaluation.

        Args:
            numbers: numbers by name.
            owner_of: as for `add_callback_metrics`.

        Raises:
            RunFailed: a name is already the name of another metric.
        """
        self._refuse_taken(numbers, owner_of)
        self._evaluation |= numbers

    def _refuse_taken(self, names: Iterable[str], owner_of: OwnerOf) -> None:
        """Refuse a name that a callback has given to a metric, if another metric of the run has it or its tag."""
        known = (METRICS, self._given, self._evaluation, self._period.values)
        taken = {tag_of(name) for metrics in known for name in metrics}
        for name in names:
            if tag_of(name) in taken or not name or is_of_run(name):
                raise refused_name(owner_of(name), name)
            taken.add(tag_of(name))

    def evaluation_failed(self) -> None:
        """Count an evaluation without a result."""
        self._totals["evaluations_failed"] += 1

    def line(self, counters: Counters, timings: Timings, *, ends_period: bool = True) -> Line:
        """Build the current line, write it to all sinks and return it.

        Args:
            counters: counters now.
            timings: timings of the run.
            ends_period: whether the period ends, if a learning step has finished in it.
        """
        if ends_period and counters.learning_step > self._period.counters.learning_step:
            self._period.end(counters, timings, self._infos.take_means())
        if self._episode_count >= EPISODES_TO_REPORT:
            self._infos.warn_of_unreported(self._episode_count)
        given, self._given = self._given, {}
        measured = {**self._period.total_seconds(timings), **asdict(counters), **self._memory()}
        values = {**self.collected(), **measured, **given}
        line = {name: _finite(values.get(name)) for name in {**METRICS, **values}}
        for sink in self._sinks:
            sink.write(line)
        return line

    def collected(self) -> dict[str, float | None]:
        """Return the metrics of the last period, of evaluations and of episodes. A checkpoint has all of them."""
        return {
            **self._period.values,
            **self._totals,
            **self._evaluation,
            **metrics_of_all(self._windows),
            **{
                policy_key(policy, name): value
                for policy, window in self._of_policies.items()
                for name, value in window.metrics().items()
            },
            **{policy_key(policy, "agent_steps"): count for policy, count in self._agent_steps.items()},
        }

    def conclude(self, timings: Timings, seconds: float, restarts: int) -> None:
        """Set the bottleneck report to that of the whole run, which took `seconds` and restarted actors so often."""
        self._infos.warn_of_unreported(self._episode_count)
        self._period.conclude(timings, seconds, restarts)

    def close(self) -> None:
        """Close all sinks."""
        for sink in self._sinks:
            with suppress(OSError):  # the disk is full: a warning has been shown
                sink.close()

    def state(self, timings: Timings) -> dict[str, Any]:
        """Return the state for a checkpoint: plain lists, dicts and numbers."""
        episodes = self._episodes.state()
        return {
            **episodes,
            "policies": {policy: window.state() for policy, window in self._of_policies.items()},
            "agent_steps": dict(self._agent_steps),
            "totals": {**episodes["totals"], **self._totals},
            "evaluation": dict(self._evaluation),
            "given": dict(self._given),
            **self._period.state(timings),
            **self._infos.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned. Timings start again from zero, but the unfinished period continues."""
        self._episodes.restore(state)
        for policy, own in state["policies"].items():
            self._of_policies[policy].restore(own)
        self._agent_steps.update(state["agent_steps"])
        self._totals |= {name: state["totals"][name] for name in self._totals}
        self._evaluation = dict(state["evaluation"])
        self._given = dict(state["given"])
        self._period.restore(state)
        self._infos.restore(state)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
