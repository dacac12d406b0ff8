"""Views of a running training: the protocol, and the views `Lines` and `Silent`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TextIO

from offbeat.config.runtimes import RuntimeEntry
from offbeat.metrics.text import compact, duration, percentage, rounded
from offbeat.metrics.timings import Timings

Phase = Literal["training", "evaluating", "saving", "stopping"]


@dataclass(frozen=True)
class About:
    """The properties of a run that do not change."""

    algorithm: str
    env: str
    runtime: RuntimeEntry
    actors: int
    envs_per_actor: int
    lag_label: str
    """The bound on the lag, such as 'max_lag 1' (learning steps) or 'max_ahead 4' (tickets); in lock-free runs, what
    the workers share."""
    device: str
    """Device of the learner; several learners have a comma-separated list."""
    run_dir: Path
    lag: Literal["bounded", "exact"] = "bounded"
    inference_workers: int = 0


@dataclass(frozen=True, kw_only=True)
class DataAge:
    """How old the data is that is learned from. None: not known yet."""

    policy_lag_min: float | None = None
    policy_lag_mean: float | None = None
    policy_lag_max: float | None = None
    utd_ratio: float | None = None
    """Updates per env step so far; None without a replay, and during its warm-up."""
    sample_age_min: float | None = None
    sample_age_mean: float | None = None
    """Mean age in updates, as are the minimum and the maximum; None without a replay."""
    sample_age_max: float | None = None


@dataclass(frozen=True)
class PolicyStatus(DataAge):
    """The current state of one policy, in a run with several. None: not known yet."""

    name: str
    trained: bool = True
    """Whether it learns; else it acts with its initial weights."""
    agent_steps: int | None = None
    episode_return_mean: float | None = None
    learning_rate: float | None = None
    policy_loss: float | None = None
    critic_loss: float | None = None
    elo: float | None = None
    """Rating in the league; None without a league."""
    snapshots: float | None = None
    """Snapshots taken so far; None without a league."""

    @property
    def loss(self) -> float | None:
        """Loss of the policy; for an algorithm without one, as DQN, that of the values."""
        return self.critic_loss if self.policy_loss is None else self.policy_loss


@dataclass(frozen=True)
class Status(DataAge):
    """The current state of a run. None: not known yet."""

    env_steps: int
    steps: int
    """Env steps at which the run ends."""
    agent_steps: int | None = None
    """Decisions of agents in these env steps; None if no env has several agents."""
    learning_step: int = 0
    updates: int = 0
    phase: Phase = "training"
    episode_return_mean: float | None = None
    episode_return_min: float | None = None
    episode_return_max: float | None = None
    episode_length_mean: float | None = None
    eval_return_mean: float | None = None
    best_eval_return_mean: float | None = None
    gradient_staleness_min: float | None = None
    gradient_staleness_mean: float | None = None
    """Mean number of updates, as are the minimum and the maximum; None with one learner."""
    gradient_staleness_max: float | None = None
    updates_refused: int = 0
    actor_wait_fraction: float | None = None
    """Fraction of their time that the actors waited; None in serial too."""
    learner_wait_fraction: float | None = None
    slots_filled: float | None = None
    env_stall_max_s: float = 0.0
    memory_main_mb: float | None = None
    memory_children_mb: float | None = None
    """In MB, like that of the main process; None if there are no children."""
    actor_restarts: int = 0
    bottleneck: str = ""
    """The sentence of the bottleneck report; empty if it is not known yet."""
    timings: Timings = field(default_factory=Timings)
    elo: float | None = None
    """Rating in the league of a run with one policy; None without a league."""
    snapshots: float | None = None
    """Snapshots taken so far, in such a league."""
    policies: tuple[PolicyStatus, ...] = ()
    """The policies of a run with several, in the order of their names."""

    @property
    def fraction(self) -> float:
        """Fraction of the run that is finished, in [0, 1]."""
        return min(1.0, self.env_steps / self.steps) if self.steps > 0 else 0.0


class Progress(Protocol):
    """A view of a run. `start` is called first, `close` last, also after a failure; `update` may be called often."""

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


class Rates:
    """SPS and UPS over windows of time, from samples that are at least half a second apart."""

    def __init__(self, windows_s: tuple[float, ...] = (10.0, 60.0, 300.0)) -> None:
        self.windows_s = windows_s
        self._samples: deque[tuple[float, int, int]] = deque()
        self._now = (0.0, 0, 0)

    def add(self, now: float, env_steps: int, updates: int) -> None:
        """Add a sample. The two counters need not start at 0: those of a resumed run do not."""
        self._now = (now, env_steps, updates)
        if not self._samples or now - self._samples[-1][0] >= 0.5:
            self._samples.append(self._now)
        while len(self._samples) > 2 and self._samples[1][0] <= now - self.windows_s[-1]:
            self._samples.popleft()

    @property
    def elapsed_s(self) -> float:
        """Seconds between the oldest and the newest sample."""
        return self._now[0] - self._samples[0][0] if self._samples else 0.0

    def over(self, window_s: float) -> tuple[float | None, float | None]:
        """(SPS, UPS) over the last ``window_s`` seconds, or over the whole run if it is shorter."""
        if not self._samples:
            return None, None
        now, env_steps, updates = self._now
        before = (sample for sample in self._samples if sample[0] <= now - window_s)
        since, env_steps_then, updates_then = max(before, default=self._samples[0])
        if now <= since:
            return None, None
        return (env_steps - env_steps_then) / (now - since), (updates - updates_then) / (now - since)

    def eta_s(self, steps: int) -> float | None:
        """Seconds until ``steps`` env steps at the SPS of the last minute; None while that is not known."""
        sps, _ = self.over(60.0)
        return max(0, steps - self._now[1]) / sps if sps else None


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
        self.message(f"{title_of(about)}: {topology_of(about)}, {about.run_dir}")

    def update(self, status: Status) -> None:
        """Print a line if the last one is a few seconds old."""
        now = self._clock()
        self._unshown, self._bottleneck = status, status.bottleneck
        if now >= self._next_s:
            self._next_s = now + self._every_s
            self._show(status, now)

    def message(self, text: str) -> None:
        """Print ``text`` as a line of its own."""
        self._stream.write(text + "\n")
        self._stream.flush()

    def replace_line(self, text: str) -> None:
        """Print ``text``, the newest status, below the ones before: a stream cannot replace them."""
        self.message(text)

    def close(self, summary: str) -> None:
        """Print the last status unless it is already shown, the bottleneck, and the summary."""
        if self._unshown is not None:
            self._show(self._unshown, self._clock())
        for text in filter(None, (self._bottleneck, summary)):
            self.message(text)

    def _show(self, status: Status, now: float) -> None:
        self._rates.add(now, status.env_steps, status.updates)
        self._unshown = None
        self.replace_line(_line(status, self._rates))


def _line(status: Status, rates: Rates) -> str:
    sps, ups = rates.over(rates.windows_s[0])
    parts = [
        f"{status.fraction:4.0%} {steps_of(status, '/')}",
        f"return {rounded(status.episode_return_mean)}{_returns(status.policies)}",
        f"eval {rounded(status.eval_return_mean)} (best {rounded(status.best_eval_return_mean)})",
        f"SPS {compact(sps)} UPS {compact(ups)}",
        *_lags(status),
        *([] if status.elo is None else [f"Elo {status.elo:.0f}"]),
        f"ETA {duration(rates.eta_s(status.steps))}",
    ]
    if status.actor_wait_fraction is not None:
        parts.append(
            f"waits actors {percentage(status.actor_wait_fraction)} learner {percentage(status.learner_wait_fraction)}"
        )
    if status.actor_restarts:
        parts.append(f"{status.actor_restarts} restarts")
    if status.updates_refused:
        parts.append(f"{status.updates_refused} updates refused")
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
    staleness = (
        [] if status.gradient_staleness_mean is None else [f"gradient staleness {gradient_staleness_of(status)}"]
    )
    if status.utd_ratio is not None:
        return [*ratio_of(status), *staleness]
    return staleness or [f"lag {lag_of(status)}"]


def title_of(about: About) -> str:
    """Return the algorithm and the env as text."""
    return f"{about.algorithm} on {about.env}"


def topology_of(about: About) -> str:
    """Return the runtime and its layout as text."""
    workers = [f"{_counted(about.actors, about.runtime.role)} x {about.envs_per_actor} envs"]
    if about.inference_workers:
        workers.append(_counted(about.inference_workers, "inference worker"))
    lag = about.lag_label + (" (exact)" if about.lag == "exact" else "")
    return ", ".join((about.runtime.name, *workers, lag, about.device))


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def steps_of(status: Status, separator: str) -> str:
    """Return the env steps so far and at the end as text; with several agents in an env, also the agent steps."""
    text = f"{compact(status.env_steps)}{separator}{compact(status.steps)} env steps"
    return text if status.agent_steps is None else f"{text}, {compact(status.agent_steps)} agent steps"


def lag_of(status: Status | PolicyStatus) -> str:
    """Policy lag as min/mean/max, in learning steps."""
    return _joined(status.policy_lag_min, status.policy_lag_mean, status.policy_lag_max)


def gradient_staleness_of(status: Status) -> str:
    """Updates of other workers between reading the parameters and changing them, as min/mean/max."""
    return _joined(status.gradient_staleness_min, status.gradient_staleness_mean, status.gradient_staleness_max)


def age_of(status: Status | PolicyStatus) -> str:
    """Age of the transitions sampled from the replay as min/mean/max, in updates."""
    return _joined(status.sample_age_min, status.sample_age_mean, status.sample_age_max)


def ratio_of(status: Status) -> list[str]:
    """Return the update ratio and the sample age as text."""
    return [f"ratio {rounded(status.utd_ratio)}", f"age {age_of(status)}"]


def _joined(*values: float | None) -> str:
    return "-" if None in values else "/".join(compact(value) for value in values)
