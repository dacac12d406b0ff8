"""What the progress views of a running training show: the properties of the run, and its current state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from offbeat.config.runtimes import RuntimeEntry
from offbeat.metrics.timings import Timings

Phase = Literal["training", "evaluating", "saving", "stopping", "ended"]


@dataclass(frozen=True)
class About:
    """The properties of a run that do not change."""

    title: str
    """The algorithm, the env and the preset."""
    topology: str
    """The runtime with its actors or workers, the bound on the lag, and the devices."""
    runtime: RuntimeEntry
    run_dir: Path


class FirstBatch(NamedTuple):
    """The batch of the first learning step since the run was started or resumed, while it is collected."""

    unrolls: int
    """Unrolls that are collected."""
    needed: int
    """Unrolls in the batch."""
    env_steps: int
    """Env steps in the batch at most: rows of resets are none."""


@dataclass(frozen=True, kw_only=True)
class DataAge:
    """How old the data is that is learned from. None: not known yet."""

    policy_lag_min: float | None = None
    policy_lag_mean: float | None = None
    policy_lag_max: float | None = None
    utd_ratio: float | None = None
    """Updates per env step so far; with several agents, per agent step. None without a replay and in its warm-up."""
    replay_size: float | None = None
    """Transitions in the replay; None without a replay."""
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
    stop_at: int | None = None
    """Env steps at which this part of the run ends; None: at `steps`."""
    limit_s: float | None = None
    """Seconds after which this part of the run ends in any case; None: there is no limit."""
    agent_steps: int | None = None
    """Decisions of agents in these env steps; None if no env has several agents."""
    learning_step: int = 0
    updates: int = 0
    phase: Phase = "training"
    first_batch: FirstBatch | None = None
    """None once the run has learned from it, and with a replay, whose first learning step needs one ticket."""
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
    """The sentence of the bottleneck report, at the end with others in further lines; empty if it is not known yet."""
    timings: Timings = field(default_factory=Timings)
    losses: Mapping[str, float] = field(default_factory=dict)
    """Losses of the last update by what they train: policy, value, critic."""
    approx_kl: float | None = None
    """KL divergence between the policies before and after an update, in nats; None for algorithms without it."""
    entropy: float | None = None
    """Entropy of the policy, in nats; None for algorithms without it."""
    infos: Mapping[str, float | None] = field(default_factory=dict)
    """Means of the numbers in the env's infos that the run logs, by their name in `info_metrics`."""
    elo: float | None = None
    """Rating in the league of a run with one policy; None without a league."""
    snapshots: float | None = None
    """Snapshots taken so far, in such a league."""
    policies: tuple[PolicyStatus, ...] = ()
    """The policies of a run with several, in the order of their names."""

    @property
    def ends_at(self) -> int:
        """Env steps at which this part of the run ends."""
        return min(self.steps, self.stop_at or self.steps)

    @property
    def fraction(self) -> float:
        """Fraction of the run that is finished, in [0, 1]."""
        return min(1.0, self.env_steps / self.steps) if self.steps > 0 else 0.0
