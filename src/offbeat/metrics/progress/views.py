"""Progress views of a running training: the protocol, and the views `Lines` and `Silent`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, Protocol, TextIO

from offbeat.core.argument_notation import as_shown
from offbeat.core.printing import print_text
from offbeat.metrics.progress.rates import Rates
from offbeat.metrics.progress.status import About, FirstBatch, PolicyStatus, Status
from offbeat.metrics.text import compact, counted, done, duration, percentage, rounded

ProgressKind = Literal["dashboard", "lines", "none"]
"""The kinds of progress views that users can choose."""


class View(Protocol):
    """A progress view of a run.

    `start` is called first, `close` last, also after a failure; `update` may be called often.
    """

    def start(self, about: About) -> None:
        """Show the properties of the run."""
        ...

    def update(self, status: Status) -> None:
        """Show the status. Return at once if another one was shown a moment ago."""
        ...

    def message(self, text: str) -> None:
        """Show a message permanently."""
        ...

    def close(self, summary: str) -> None:
        """Show the last status and the summary, and restore the terminal."""
        ...


class Silent:
    """Shows nothing."""

    def start(self, about: About) -> None:
        """Do nothing."""

    def update(self, status: Status) -> None:
        """Do nothing."""

    def message(self, text: str) -> None:
        """Do nothing."""

    def close(self, summary: str) -> None:
        """Do nothing."""


class Lines:
    """Prints a compact line every few seconds: for log files and simple terminals."""

    def __init__(self, stream: TextIO, *, every_s: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._every_s = every_s
        self._clock = clock
        self._rates = Rates()
        self._next_s = float("-inf")
        self._unshown: Status | None = None
        self._bottleneck = ""

    def start(self, about: About) -> None:
        """Print the properties of the run."""
        self.message(f"{about.title}: {about.topology}, {about.run_dir}")

    def update(self, status: Status) -> None:
        """Print a line if the last one is a few seconds old."""
        now = self._clock()
        self._unshown, self._bottleneck = status, status.bottleneck
        if now >= self._next_s:
            self._next_s = now + self._every_s
            self._show(status, now)

    def message(self, text: str) -> None:
        """Print ``text`` as a line of its own; log.txt has the messages too."""
        print_text(as_shown(text), self._stream)

    def replace_line(self, text: str) -> None:
        """Print ``text``, the newest status, below the ones before: a stream cannot replace them."""
        self.message(text)

    def close(self, summary: str) -> None:
        """Print the last status unless it is already shown, the bottleneck, and the summary."""
        if self._unshown is not None:
            self.message(self._text(replace(self._unshown, phase="training"), self._clock()))
        for text in filter(None, (self._bottleneck, summary)):
            self.message(text)

    def _show(self, status: Status, now: float) -> None:
        self._unshown = None
        self.replace_line(self._text(status, now))

    def _text(self, status: Status, now: float) -> str:
        self._rates.add(now, status.env_steps, status.updates)
        return _line(status, self._rates)


def _line(status: Status, rates: Rates) -> str:
    """Return the status as a line. What matters most is first: a terminal may cut or wrap the end."""
    sps, ups = rates.over(rates.windows_s[0])
    parts = [
        f"{done(status.fraction):>4} {steps_of(status, '/')}",
        *([] if status.first_batch is None else [collecting(status.first_batch)]),
        f"return {rounded(status.episode_return_mean)}{_returns(status.policies)}",
        f"eval {rounded(status.eval_return_mean)} (best {rounded(status.best_eval_return_mean)})",
        f"ETA {duration(rates.end_s(status))}",
        f"SPS {compact(sps)} UPS {compact(ups)}",
        *([] if status.elo is None else [f"Elo {status.elo:.0f}"]),
        *_lags(status),
    ]
    if status.actor_wait_fraction is not None:
        parts.append(
            f"waits actors {percentage(status.actor_wait_fraction)} learner {percentage(status.learner_wait_fraction)}"
        )
    if status.actor_restarts:
        parts.append(counted(status.actor_restarts, "restart"))
    if status.updates_refused:
        parts.append(f"{counted(status.updates_refused, 'update')} refused")
    if status.phase != "training":
        parts.append(status.phase)
    return "  ".join(parts)


def _returns(policies: tuple[PolicyStatus, ...]) -> str:
    """Return the mean return of each policy as text; of more than four, the lowest and the highest."""
    if len(policies) > 4:
        known = [policy for policy in policies if policy.episode_return_mean is not None]
        known.sort(key=lambda policy: policy.episode_return_mean or 0.0)
        policies = (known[0], known[-1]) if known else ()
    each = ", ".join(f"{policy.name} {rounded(policy.episode_return_mean)}" for policy in policies)
    return f" ({each})" if each else ""


def _lags(status: Status) -> list[str]:
    """Return the lag, or the update ratio and the sample age, and the gradient staleness, as text."""
    staleness = status.gradient_staleness_min, status.gradient_staleness_mean, status.gradient_staleness_max
    parts = [] if staleness[1] is None else [f"gradient staleness {_range(*staleness)} updates"]
    if status.utd_ratio is not None:
        age = _range(status.sample_age_min, status.sample_age_mean, status.sample_age_max)
        return [f"{rounded(status.utd_ratio)} updates per {transition_of(status)}", f"sample age {age} updates", *parts]
    if status.replay_size is not None:
        return [f"warm-up: {compact(status.replay_size)} transitions", *parts]
    lag = _range(status.policy_lag_min, status.policy_lag_mean, status.policy_lag_max)
    return parts or ([] if lag == "-" else [f"policy lag {lag} learning steps"])


def _range(low: float | None, mean: float | None, high: float | None) -> str:
    """Return a range and its mean as text: 3 if all are equal, else 0 to 3 (mean 1.5)."""
    if low is None or mean is None or high is None:
        return "-"
    return compact(low) if low == high else f"{compact(low)} to {compact(high)} (mean {compact(mean)})"


def steps_of(status: Status, separator: str) -> str:
    """Return the env steps so far and at the end as text; with several agents in an env, also the agent steps."""
    text = f"{compact(status.env_steps)}{separator}{compact(status.steps)} env steps"
    return text if status.agent_steps is None else f"{text}, {compact(status.agent_steps)} agent steps"


def transition_of(status: Status) -> str:
    """Return what is counted for the update ratio: each transition is a decision of one agent."""
    return "env step" if status.agent_steps is None else "agent step"


def collecting(batch: FirstBatch) -> str:
    """Return what is collected of the first batch as text. Until it is complete, the run has learned from nothing."""
    unrolls = f"{batch.unrolls} of {counted(batch.needed, 'unroll')}"
    return f"collecting the first batch of up to {batch.env_steps:,} env steps ({unrolls})"


def lag_of(status: Status | PolicyStatus) -> str:
    """Policy lag as min/mean/max, in learning steps."""
    return _joined(status.policy_lag_min, status.policy_lag_mean, status.policy_lag_max)


def gradient_staleness_of(status: Status) -> str:
    """Updates of other workers between reading the parameters and changing them, as min/mean/max."""
    return _joined(status.gradient_staleness_min, status.gradient_staleness_mean, status.gradient_staleness_max)


def age_of(status: Status | PolicyStatus) -> str:
    """Age of the transitions sampled from the replay as min/mean/max, in updates."""
    return _joined(status.sample_age_min, status.sample_age_mean, status.sample_age_max)


def _joined(*values: float | None) -> str:
    return "-" if None in values else "/".join(compact(value) for value in values)
