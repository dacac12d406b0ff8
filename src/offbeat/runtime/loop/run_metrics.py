"""Metrics of a running run: its clock, the metrics lines and the displayed status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from math import inf
from statistics import fmean
from time import monotonic
from typing import Any

from offbeat.core.info_names import metric_of
from offbeat.core.policy_names import policy_key
from offbeat.core.process.threads import waited_for_core_s
from offbeat.metrics.counters import Counters
from offbeat.metrics.expectation import comparison, measured
from offbeat.metrics.progress.status import DataAge, FirstBatch, Phase, PolicyStatus, Status
from offbeat.metrics.timings import CORE_WAIT, Timings, acting_s
from offbeat.runtime.loop.run_services import RunServices
from offbeat.runtime.loop.time_limit_warning import TimeLimitWarning
from offbeat.runtime.parts import Parts

LINE_EVERY_S = 10.0
"""Seconds after which the next learning step writes a metrics line; the default of `log_every_s`."""
SHOW_EVERY_S = 0.1
"""Minimum seconds between two updates of the displayed status."""


class RunMetrics:
    """Writes metrics lines and shows the status of a run."""

    def __init__(self, parts: Parts, services: RunServices, spent: Callable[[], Iterable[Mapping[str, float]]]) -> None:
        """Make the metrics of a run.

        Args:
            parts: the parts of the run.
            services: have the recorder, the progress view and the callbacks.
            spent: see `Workers.spent`.
        """
        self._parts, self._spent, self._run = parts, spent, parts.config.run
        self.recorder, self._show_status = services.recorder, services.show_status
        self._signals, self._observer = services.signals, services.observer
        self._expectation = services.expectation
        self._compared = ""
        """The expectation of auto layout beside what was measured, at the end of the run."""
        self.time_limit = TimeLimitWarning(parts.env_spec, parts.config.envs, services.reporting.notify)
        self._exact = parts.config.runtime.lag == "exact"
        self._before = Counters()
        """Counters at the resume; of a new run, zeros."""
        self.start_clock()
        self._line_at = 0.0
        """`wall_time` of the last metrics line."""
        self._shown: tuple[Phase, float] = ("training", 0.0)
        """The phase in the last update of the status, and the time of that update."""
        self.line: dict[str, Any] = {}
        """The last metrics line."""
        self._known: Mapping[str, Any] = {}
        """The metrics that the status shows: those of the last line, or before the first one of the checkpoint."""

    def restore(self, state: Mapping[str, Any], counters: Counters) -> None:
        """Continue the metrics of a run that was saved with these counters."""
        self._before, self._line_at = counters, counters.wall_time_s
        self.recorder.restore(state)
        self._known = self.recorder.collected()

    # --- time -----------------------------------------------------------------------------------------------

    def start_clock(self) -> None:
        """Start the clock of the run."""
        self._started, self._core_waited_before = monotonic(), waited_for_core_s()

    @property
    def seconds(self) -> float:
        """Seconds since the clock was started."""
        return monotonic() - self._started

    @property
    def wall_time(self) -> float:
        """Seconds of training so far, including the time before a resume."""
        return self._before.wall_time_s + self.seconds

    def timings(self) -> Timings:
        """Return the seconds of this process and of all actors or workers, summed by activity. Call it in the thread
        that learns.
        """
        timings = Timings()
        if self._parts.config.runtime.learning_threads == 1:  # otherwise other threads learn
            timings.add(CORE_WAIT, waited_for_core_s() - self._core_waited_before)
        for seconds in (self._parts.timings.seconds, *self._spent()):
            timings.merge(seconds)
        return timings

    def expected_evaluation_s(self, counters: Counters) -> float:
        """Estimate the seconds of an evaluation from the time of acting so far; 0 before the first env step."""
        totals, env_steps = self.timings().totals(), counters.env_steps - self._before.env_steps
        if not env_steps:
            return 0.0
        env_step_s = acting_s(totals) / env_steps
        trials = self._parts.config.trials
        episodes = self._run.evaluation_episodes(trials) * (1 if trials is None else trials.episodes)
        return episodes * self.recorder.episode_length_mean * env_step_s

    # --- lines ----------------------------------------------------------------------------------------------

    def line_due(self, before: Counters, counters: Counters) -> bool:
        """Whether a metrics line is due: by env steps or by time. By default, exact runs do not use the time."""
        seconds = self._run.log_every_s or (inf if self._exact else LINE_EVERY_S)
        due_by_time = self.wall_time - self._line_at >= seconds
        return due_by_time or crosses(before.env_steps, counters.env_steps, self._run.log_interval)

    def write(self, counters: Counters, timings: Timings, *, ends_period: bool) -> None:
        """Write a metrics line and call the callbacks. The arguments are those of `Recorder.line`."""
        self._line_at = counters.wall_time_s
        self.line = self._known = self.recorder.line(counters, timings, ends_period=ends_period)
        self.time_limit.check(counters.env_steps, int(self.line["episodes"] or 0))
        self.recorder.add_callback_metrics(self._observer.metrics_written(self.line), self._observer.owner_of)

    def conclude(self, counters: Counters) -> None:
        """Report the bottleneck of the whole run, and compare its speed with the expectation of auto layout.

        From now on the status shows the waits of the report. If no update was made, the report of the run so far stays:
        a run that ends in its warm-up has none, and a resumed run that only evaluates keeps that of its checkpoint.
        """
        if counters.updates == self._before.updates:
            return
        timings, seconds = self.timings(), self.seconds
        self.recorder.conclude(timings, seconds, counters.actor_restarts - self._before.actor_restarts)
        if report := self.recorder.bottleneck:
            waits = {"actor_wait_fraction": report.actor_wait, "learner_wait_fraction": report.learner_wait}
            self._known = {**self._known, **waits}
        found = measured(timings.totals(), seconds, counters.env_steps - self._before.env_steps)
        if self._expectation is not None and found is not None:
            self._compared = comparison(self._expectation, found)

    # --- status ---------------------------------------------------------------------------------------------

    @property
    def bottleneck(self) -> str:
        """The sentence of the last bottleneck report, at the end with the comparison in a second line; empty before."""
        report = self.recorder.bottleneck
        return "\n".join(filter(None, (report.sentence if report else "", self._compared)))

    def show_is_due(self, phase: Phase) -> bool:
        """Whether to update the displayed status: at most once in SHOW_EVERY_S seconds, except in a new phase."""
        return self._phase_now(phase) != self._shown[0] or monotonic() >= self._shown[1] + SHOW_EVERY_S

    def _phase_now(self, phase: Phase) -> Phase:
        return "stopping" if self._signals.received else phase

    def show(self, phase: Phase, counters: Counters, bottleneck: str, first_batch: FirstBatch | None) -> None:
        """Update the displayed status."""
        phase = self._phase_now(phase)
        self._shown = (phase, monotonic())
        policies = self._policies()
        last_line: dict[str, Any] = {key: self._known.get(key) for key in _SHOWN}
        if policies:
            last_line |= _over_policies(policies)
        one_agent = counters.agent_steps == counters.env_steps
        self._show_status(
            Status(
                env_steps=counters.env_steps,
                steps=self._run.steps,
                stop_at=self._run.stop_at,
                limit_s=None if self._run.time is None else max(0.0, self._run.time - self.wall_time),
                agent_steps=None if one_agent else counters.agent_steps,
                learning_step=counters.learning_step,
                updates=counters.updates,
                updates_refused=counters.updates_refused,
                actor_restarts=counters.actor_restarts,
                env_stall_max_s=counters.env_stall_max_s,
                phase=phase,
                first_batch=first_batch,
                timings=self.timings(),
                bottleneck=bottleneck,
                policies=policies,
                losses={name: loss for name in _LOSSES if (loss := self._known.get(f"{name}_loss")) is not None},
                infos={name: self._known.get(metric_of(name)) for name in self._parts.config.env.info_metrics},
                **last_line,
            )
        )

    def _policies(self) -> tuple[PolicyStatus, ...]:
        """Return the state of each policy, as it is known; nothing for a run with one."""
        policies = self._parts.policies
        if len(policies) == 1:
            return ()
        return tuple(
            PolicyStatus(
                policy.name,
                policy.trained,
                **{key: self._known.get(policy_key(policy.name, key)) for key in _SHOWN_OF_POLICY},
            )
            for policy in policies
        )


_SHOWN = (
    *("episode_return_mean", "episode_return_min", "episode_return_max", "episode_length_mean"),
    *("eval_return_mean", "best_eval_return_mean"),
    *("policy_lag_min", "policy_lag_mean", "policy_lag_max", "utd_ratio", "replay_size"),
    *("sample_age_min", "sample_age_mean", "sample_age_max"),
    *("actor_wait_fraction", "learner_wait_fraction", "slots_filled"),
    *("gradient_staleness_min", "gradient_staleness_mean", "gradient_staleness_max"),
    *("memory_main_mb", "memory_children_mb"),
    *("elo", "snapshots", "approx_kl", "entropy"),
)
"""Metrics of the last line that the status shows."""
_LOSSES = ("policy", "value", "critic")
"""Losses that the status shows; an algorithm has some of them."""
_SHOWN_OF_POLICY = [field.name for field in fields(PolicyStatus) if field.name not in ("name", "trained")]
"""Metrics of each policy that the status shows, in a run with several."""
_COMBINED: dict[str, Callable[[Iterable[float]], float]] = {"min": min, "max": max, "size": max}
"""How the status combines a metric of all policies, by the last word of its name; others are averaged."""


def _over_policies(policies: Iterable[PolicyStatus]) -> dict[str, float | None]:
    """Combine the metrics that a line has for each policy only, of all policies for which they are known."""
    combined: dict[str, float | None] = {}
    for name in (field.name for field in fields(DataAge)):
        known = [value for policy in policies if (value := getattr(policy, name)) is not None]
        combined[name] = _COMBINED.get(name.rpartition("_")[2], fmean)(known) if known else None
    return combined


def crosses(before: int, after: int, interval: int) -> bool:
    """Whether a multiple of `interval` is in (before, after]; False for interval 0."""
    return interval > 0 and before // interval != after // interval
