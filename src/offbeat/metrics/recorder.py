"""The recorder collects metrics and writes them as lines.

Every key of a line is named and described in `METRICS`, and explained in docs/reference/metrics.md.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from operator import itemgetter
from statistics import fmean
from typing import Any

from offbeat.core.errors import RunFailed
from offbeat.core.fields import Counter, NonNegative, build
from offbeat.core.types import DEFAULT_POLICY, Array, policy_key
from offbeat.metrics.bottleneck import BottleneckReport, bottleneck_report
from offbeat.metrics.names import ADAPTATION, METRICS
from offbeat.metrics.process_memory import PREFIX as MEMORY
from offbeat.metrics.sinks import Line, Sink
from offbeat.metrics.speed_model import Topology
from offbeat.metrics.text import counted
from offbeat.metrics.timings import KINDS, Timings

__all__ = ["METRICS", "Counters", "Recorder"]

_REDUCTIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "policy_lag_min": min,
    **dict.fromkeys(("sample_age_min", "gradient_staleness_min"), min),
    **dict.fromkeys(("sample_age_max", "gradient_staleness_max"), max),
    **dict.fromkeys(("utd_ratio", "samples_per_insert", "replay_size", "batch_uses"), itemgetter(-1)),
    **dict.fromkeys(("league_games", "elo", "win_rate", "snapshots"), itemgetter(-1)),
    "policy_lag_max": max,
    "ratio_max_deviation_first": max,
    **dict.fromkeys(("slots_filled_min", "learner_queue_size_min"), min),
    **dict.fromkeys(("slots_filled_max", "learner_queue_size_max"), max),
}
_TOTALS_S = {
    "actor_wait_s": "wait/actor",
    "learner_wait_s": "wait/learner",
    "inference_wait_s": "wait/inference",
    "message_wait_s": "wait/messages",
    "publish_s": "learn/publish",
}
"""Total seconds: metric -> name in `Timings`."""
_STEP_MS = {
    "learner_dequeue_time_ms": ("wait/learner",),
    "learner_load_time_ms": ("learn/load", "load"),
    "learner_load_wait_time_ms": ("learn/load_wait",),
    "learner_prepare_time_ms": ("learn/prepare",),
    "learner_grad_time_ms": ("learn/update",),
    "learner_exchange_time_ms": ("learn/exchange",),
}
"""Milliseconds of a learning step: metric -> names in `Timings`, whose sum it is."""
OwnerOf = Callable[[str], str]
"""Returns who gave a metric of this name, in words."""


def _some_callback(_metric: str) -> str:
    return "a callback"


_RESERVED = ("info/", ADAPTATION, MEMORY)
"""Prefixes that the names of a callback's metrics must not have."""
EPISODES_TO_REPORT = 20
"""Number of episodes after which a name of `info_metrics` without any value causes a warning."""


@dataclass(frozen=True)
class Counters:
    """The progress of a run. All counters start at the start of the run and continue through every resume."""

    env_steps: Counter = 0
    agent_steps: Counter = 0
    """Decisions of agents in these env steps; with one agent per env, the env steps."""
    frames: Counter = 0
    learning_step: Counter = 0
    updates: Counter = 0
    updates_refused: Counter = 0
    actor_restarts: Counter = 0
    wall_time_s: NonNegative = 0.0
    acted_beyond: Counter = 0
    """Env steps acted but not learned from when the run ended."""
    env_stall_max_s: NonNegative = 0.0
    """Seconds of the longest single call of an env so far."""
    evaluator_restarts: Counter = 0
    evaluation_s: NonNegative = 0.0
    """Seconds that evaluations have taken."""

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Counters:
        """Return the counters of a checkpoint. Older ones have no `agent_steps`: each env had one agent."""
        return build(cls, {"agent_steps": state["env_steps"], **state}, "the counters of a checkpoint")


class EpisodeWindow:
    """The last training episodes, of a run or of one of its policies."""

    def __init__(self, size: int) -> None:
        self._returns: deque[float] = deque(maxlen=size)
        self._lengths: deque[int] = deque(maxlen=size)
        self.count = 0
        """All episodes that have ended so far."""

    def add(self, returns: Array, lengths: Array) -> None:
        """Add episodes: [n] returns and [n] lengths in env steps."""
        self._returns.extend(returns.tolist())
        self._lengths.extend(lengths.tolist())
        self.count += len(returns)

    @property
    def length_mean(self) -> float | None:
        """Mean length in env steps; None before an episode has ended."""
        return fmean(self._lengths) if self._lengths else None

    def metrics(self) -> dict[str, float | None]:
        """Return the metrics of these episodes."""
        return {
            "episodes": self.count,
            "episode_return_mean": fmean(self._returns) if self._returns else None,
            "episode_return_min": min(self._returns, default=None),
            "episode_return_max": max(self._returns, default=None),
            "episode_length_mean": self.length_mean,
        }

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"returns": list(self._returns), "lengths": list(self._lengths), "totals": {"episodes": self.count}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore `state()`."""
        self._returns.extend(state["returns"])
        self._lengths.extend(state["lengths"])
        self.count = state["totals"]["episodes"]


class Recorder:
    """Collects metrics and writes them, one line at a time, to all sinks.

    In a run with several policies, metrics of one policy are named policies/<policy>/<metric>; those of episodes are
    written for all policies together too.

    Args:
        sinks: receive the lines.
        topology: the layout of the run; without it there is no bottleneck report.
        notify: shows a warning to the user.
        episodes_window: number of last training episodes over which returns and lengths are averaged.
        info: names of `info_metrics`; `info/<name>_mean` is the mean of the values since the last line.
        memory: returns the memory of the processes, by metric.

    Rates, shares of time and the metrics of learning steps are those of a period: the time since the last line. If no
    learning step has finished since then, the line repeats the values of the last period, and the current period
    continues. So the last line of a run has its state at the end.
    """

    def __init__(
        self,
        sinks: Sequence[Sink],
        topology: Topology | None = None,
        notify: Callable[[str], None] = lambda _text: None,
        *,
        episodes_window: int = 100,
        info: Sequence[str] = (),
        memory: Callable[[], Mapping[str, float | None]] = dict,
    ) -> None:
        self._sinks, self._notify, self._memory = tuple(sinks), notify, memory
        self._topology = topology
        self.bottleneck: BottleneckReport | None = None
        """The bottleneck report of the period of the last line; None before the first one."""
        self._episodes = EpisodeWindow(episodes_window)
        self._of_policies = defaultdict[str, EpisodeWindow](lambda: EpisodeWindow(episodes_window))
        """Episodes of each policy, in a run with several."""
        self._agent_steps = defaultdict[str, int](int)
        """Decisions that each policy has learned from, in a run with several."""
        self._totals: dict[str, int] = {"evaluations": 0, "evaluations_failed": 0}
        self._evaluation: dict[str, float | None] = {}
        self._metrics: defaultdict[str, list[float]] = defaultdict(list)
        self._info = dict.fromkeys(info, (0.0, 0.0))
        """name -> sum and count since the last line."""
        self._never_reported = set(info)
        """Names without a value so far, and without a warning."""
        self._given: dict[str, float] = {}
        """The numbers that callbacks have returned for the next line."""
        self._period: dict[str, float | None] = {}
        """Metrics of the last period that ended."""
        self.counted = Counters()
        """Counters at the end of the last period."""
        self._timed: dict[str, float] = {}
        """Totals of the timings at the end of the last period."""
        self._seconds = dict.fromkeys(_TOTALS_S, 0.0)
        """Total seconds at the end of the last period."""

    def add_episodes(self, returns: Array, lengths: Array, policy: str = DEFAULT_POLICY) -> None:
        """Add the episodes that ended in the batch of a policy: [n] returns and [n] lengths in env steps."""
        self._episodes.add(returns, lengths)
        if policy != DEFAULT_POLICY:
            self._of_policies[policy].add(returns, lengths)

    def add_agent_steps(self, count: int, policy: str = DEFAULT_POLICY) -> None:
        """Add the decisions that a policy has learned from in a learning step; with one policy, counters have them."""
        if policy != DEFAULT_POLICY:
            self._agent_steps[policy] += count

    @property
    def episode_length_mean(self) -> float:
        """Mean length of the last training episodes, in env steps; 0 before one has ended."""
        return self._episodes.length_mean or 0.0

    def add_learning_step(self, metrics: Mapping[str, float], policy: str = DEFAULT_POLICY) -> None:
        """Add the metrics of one learning step of a policy. Names that are not in `METRICS` are written too."""
        for name, value in metrics.items():
            self._metrics[policy_key(policy, name)].append(float(value))

    def add_infos(self, info: Array) -> None:
        """Add values of `info_metrics`: the sum and the number of values of each name, [2, K]."""
        for name, total, count in zip(self._info, *info.tolist(), strict=True):
            before = self._info[name]
            self._info[name] = (before[0] + total, before[1] + count)
            if count:
                self._never_reported.discard(name)

    def add_callback_metrics(self, numbers: Mapping[str, float], owner_of: OwnerOf = _some_callback) -> None:
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

    def add_to_evaluation(self, numbers: Mapping[str, float], owner_of: OwnerOf = _some_callback) -> None:
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
        """Refuse a name that a callback has given to a metric, if another metric of the run has it."""
        for name in names:
            taken = any(name in metrics for metrics in (self._given, self._evaluation, METRICS, self._period))
            if taken or name.startswith(_RESERVED):
                raise RunFailed(
                    f"{owner_of(name)} returned {name!r}, which is the name of another metric: use another name"
                )

    def evaluation_failed(self) -> None:
        """Count an evaluation without a result."""
        self._totals["evaluations_failed"] += 1

    def line(self, counters: Counters, timings: Timings) -> Line:
        """Build the current line, write it to all sinks and return it."""
        if counters.learning_step > self.counted.learning_step:
            self._end_period(counters, timings)
        if self._episodes.count >= EPISODES_TO_REPORT:
            self._warn_of_unreported()
        given, self._given = self._given, {}
        values = {
            **self._period,
            **self._total_seconds(timings),
            **self._totals,
            **self._evaluation,
            **self._episodes.metrics(),
            **{
                policy_key(policy, name): value
                for policy, window in self._of_policies.items()
                for name, value in window.metrics().items()
            },
            **{policy_key(policy, "agent_steps"): count for policy, count in self._agent_steps.items()},
            **asdict(counters),
            **self._memory(),
            **given,
        }
        line = {name: _finite(values.get(name)) for name in {**METRICS, **values}}
        for sink in self._sinks:
            sink.write(line)
        return line

    def conclude(self, timings: Timings, seconds: float) -> None:
        """Set the bottleneck report to that of the whole run, which took `seconds`."""
        self._warn_of_unreported()
        if self._topology:
            restarts = self.counted.actor_restarts
            self.bottleneck = bottleneck_report(timings.totals(), seconds, self._topology, restarts)

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
            "period": dict(self._period),
            "metrics": {name: list(values) for name, values in self._metrics.items()},
            "info": {name: list(sum_and_count) for name, sum_and_count in self._info.items()},
            "silent": sorted(self._never_reported),
            "given": dict(self._given),
            "counted": asdict(self.counted),
            "waited": dict(self._seconds),
            "spent": timings.since(self._timed),
            "bottleneck": None if self.bottleneck is None else asdict(self.bottleneck),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned. Timings start again from zero, but the unfinished period continues."""
        self._episodes.restore(state)
        for policy, own in state.get("policies", {}).items():
            self._of_policies[policy].restore(own)
        self._agent_steps.update(state.get("agent_steps", {}))
        self._totals |= {name: state["totals"][name] for name in self._totals}
        self._evaluation = dict(state["evaluation"])
        self._period = dict(state["period"])
        self._metrics.update({name: list(values) for name, values in state["metrics"].items()})
        for name in self._info.keys() & state["info"].keys():
            self._info[name] = tuple(state["info"][name])
        self._never_reported -= state["info"].keys() - set(state["silent"])
        self._given = dict(state.get("given", {}))
        self.counted = Counters.of_state(state["counted"])
        self._seconds |= state["waited"]
        bottleneck = state.get("bottleneck")
        self.bottleneck = None if bottleneck is None else BottleneckReport(**bottleneck)
        self._timed = {name: -seconds for name, seconds in state.get("spent", {}).items()}

    def _end_period(self, counters: Counters, timings: Timings) -> None:
        seconds = counters.wall_time_s - self.counted.wall_time_s
        steps = counters.learning_step - self.counted.learning_step
        spent = timings.since(self._timed)
        self._period = {
            "sps": _rate(counters.env_steps - self.counted.env_steps, seconds),
            "ups": _rate(counters.updates - self.counted.updates, seconds),
            **{f"time_{kind}": _rate(spent.get(kind, 0.0), seconds) for kind in KINDS},
            **{
                name: _rate(1000 * sum(spent.get(path, 0.0) for path in paths), steps)
                for name, paths in _STEP_MS.items()
            },
            **self._waits(spent, seconds, counters.actor_restarts - self.counted.actor_restarts),
            **{name: _reduce(name, metrics) for name, metrics in self._metrics.items()},
            **{f"info/{name}_mean": _rate(total, count) for name, (total, count) in self._info.items()},
        }
        self._info = dict.fromkeys(self._info, (0.0, 0.0))
        self._seconds = self._total_seconds(timings)
        self.counted, self._timed = counters, timings.totals()
        self._metrics.clear()

    def _warn_of_unreported(self) -> None:
        """Warn once about each name of `info_metrics` that no info has had: it may be misspelled."""
        for name in sorted(self._never_reported):
            self._notify(
                f"info_metrics contains {name}, but no info of a step had this key in "
                f"{counted(self._episodes.count, 'episode')}: check the infos that the env's step() returns"
            )
        self._never_reported.clear()

    def _waits(self, spent: Mapping[str, float], seconds: float, restarts: int) -> dict[str, float | None]:
        if self._topology is None:
            return {}
        self.bottleneck = bottleneck_report(spent, seconds, self._topology, restarts)
        return {
            "actor_wait_fraction": self.bottleneck.actor_wait,
            "learner_wait_fraction": self.bottleneck.learner_wait,
        }

    def _total_seconds(self, timings: Timings) -> dict[str, float]:
        spent = timings.since(self._timed)
        return {name: self._seconds[name] + spent.get(path, 0.0) for name, path in _TOTALS_S.items()}


def _rate(amount: float, seconds: float) -> float | None:
    return amount / seconds if seconds > 0 else None


def _reduce(name: str, metrics: Sequence[float]) -> float | None:
    """Reduce values to one number. Values that are not finite (the loss of a refused update) are left out."""
    finite = [value for value in metrics if math.isfinite(value)]
    return _REDUCTIONS.get(name.rpartition("/")[2], fmean)(finite) if finite else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
