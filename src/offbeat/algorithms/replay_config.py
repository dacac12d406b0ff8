"""The settings that all algorithms on a replay have: of sampling, of the update-to-data ratio and of the replay."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, Self

from offbeat.algorithms.network_config import NetworkConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.checks import Example
from offbeat.core.errors import ConfigError
from offbeat.core.fields import Count, Natural, Positive, Ratio, Share
from offbeat.core.pace import ReplayPace
from offbeat.core.process.threads import usable_cores
from offbeat.core.types import EnvSpec
from offbeat.memory.replay.base import Replay
from offbeat.memory.replay.priorities import Exponents
from offbeat.memory.replay.rings import Rings, RingShape
from offbeat.memory.replay.sequences import SequenceReplay, check_sequences
from offbeat.memory.replay.transitions import TransitionReplay

CHUNK_WITH_CORE = 16
"""Default of chunk_length with a core. Without a core it is 1."""


@dataclass(frozen=True)
class ReplayConfig(NetworkConfig):
    """The settings of algorithms that learn from a replay."""

    learning_rate: Positive = 3e-4
    """Adam's step size, also for a part of the algorithm without its own setting."""
    gamma: Share = 0.99
    """Discount per env step; in envs with rows without a decision, per decision."""
    batch_size: Count = 256
    """Transitions per update. With a core: rows per update, in whole sequences, so a multiple of chunk_length."""
    utd_ratio: Ratio | None = None
    """Updates per env step; with several agents, per agent step of the policy. The run keeps this ratio exactly.
    None: 1, or the inverse of steps_per_update."""
    steps_per_update: Ratio | None = None
    """Env steps per update; with several agents, agent steps of the policy. The inverse of utd_ratio: set only one of
    them."""
    warmup: Count = 5_000
    """Env steps for which no update is made; with several agents, agent steps of the policy. A new policy selects
    random actions in them."""
    max_ahead: Natural = 0
    """Tickets that actors may be ahead of the updates. Default: the number with which all actors can act at the same
    time, actors - 1 in serial, actors in threads, processes and ray. Not for hogwild."""
    chunk_length: Annotated[Count | None, Example("16")] = None
    """Env steps of one column in a ticket. After each ticket the updates that are due are made. With a core it is also
    the length of the sequences that are sampled. None: 1, or 16 with a core."""
    burn_in: Annotated[Natural | None, Example("16")] = None
    """Env steps before a sequence that only update the core's state: a multiple of chunk_length; none: chunk_length.
    Only with a core."""
    capacity: Count = 1_000_000
    """Smallest number of rows in a full replay, of all actors together: transitions and reset rows."""
    n_step: Count = 1
    """Env steps whose rewards are summed in a target, before the critic's value of the next state; in envs with rows
    without a decision, the number of decisions. The sum stops at the end of an episode, and with a core at the end of a
    sequence. With more than 1, targets are not corrected for older policies, and in SAC and CrossQ they do not include
    the entropy of the steps between."""
    prioritized: bool = False
    """Sample transitions in proportion to their last errors (arXiv:1511.05952), with a core sequences. The loss of the
    values is weighted to correct the bias."""
    priority_exponent: Share = 0.6
    """Exponent of the error in a priority (alpha of the paper): 0 samples uniformly. Only with prioritized."""
    importance_exponent: Share = 0.4
    """Exponent of the importance weights (beta of the paper): 0 does not correct the bias of prioritized sampling, 1
    corrects it fully. Only with prioritized."""
    priority_delay: Natural = 0
    """Updates that are sampled without the priorities of an update, before these are used; in the next learning step
    they are used in any case. At least load_ahead. Only with prioritized."""
    save_replay: bool = True
    """Save the replay in checkpoints. Without it a resumed run makes its warm-up again, and keeps the ratio from
    there."""

    learns_from: ClassVar[Literal["unrolls", "replay"]] = "replay"
    default_hidden_sizes: ClassVar[tuple[int, ...]] = (256, 256)
    supports_shards: ClassVar[bool] = True
    lag_flag: ClassVar[str] = "max_ahead"
    topology_keys: ClassVar[tuple[str, ...]] = (
        *("utd_ratio", "steps_per_update", "warmup", "max_ahead", "chunk_length", "burn_in", "capacity", "prioritized"),
        "priority_exponent",
    )
    """Settings that a resumed run cannot change, because the saved replay and update counts depend on them."""
    default_texts: ClassVar[Mapping[str, str]] = {
        "max_ahead": "actors - 1 in serial, actors in threads, processes and ray",
    }
    unsupported_runtime_keys: ClassVar[Mapping[str, str]] = {
        "unroll_length": "pass --set chunk_length=N, the env steps of a ticket",
        "unrolls_per_batch": "pass --set batch_size=N, the transitions per update",
        "max_lag": "pass --set max_ahead=N, the tickets that actors may be ahead of the updates",
        "split": "pass --actors N --envs-per-actor N, and --set learner_threads=N",
        "decorrelate": "leave it out: samples from a replay are from all phases of episodes",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.utd_ratio is not None and self.steps_per_update is not None:
            raise ConfigError(
                f"utd_ratio is {self.utd_ratio} and steps_per_update is {self.steps_per_update}, but one is the "
                "inverse of the other: pass only one of them"
            )

    @classmethod
    def with_defaults(
        cls, table: Mapping[str, object], given: Collection[str], runtime: RuntimeConfig
    ) -> dict[str, object]:
        """Return the table with a `max_ahead` with which all actors can act at once, and without the unused ratio."""
        values, entry = dict(table), runtime.entry
        ratios = {"utd_ratio", "steps_per_update"}
        if len(left := ratios.difference(given)) == 1:  # the one that is given replaces that of a preset
            values.pop(left.pop(), None)
        if not entry.workers_learn:
            values.setdefault("max_ahead", runtime.actors - (not entry.overlaps))
        elif "max_ahead" not in given:
            values.pop("max_ahead", None)
        return values

    def without_effect(self, env: EnvSpec, runtime: RuntimeConfig) -> dict[str, str]:
        unused = super().without_effect(env, runtime)
        if self.core == "none":
            unused["burn_in"] = "without a core: pass --set core=gru or --set core=lstm, or leave it out"
        if not self.prioritized:
            uniform = "while prioritized is false: pass --set prioritized=true, or leave it out"
            unused |= dict.fromkeys(("priority_exponent", "importance_exponent", "priority_delay"), uniform)
        return unused

    @property
    def updates_per_env_step(self) -> Fraction:
        """The update-to-data ratio, r."""
        if self.steps_per_update is not None:
            return 1 / self.steps_per_update
        return Fraction(1) if self.utd_ratio is None else self.utd_ratio

    @property
    def ticket_length(self) -> int:
        """Env steps of one column in a ticket."""
        return self.chunk_length or (1 if self.core == "none" else CHUNK_WITH_CORE)

    @property
    def rows_before(self) -> int:
        """Rows before a sequence that only update the core's state (burn_in)."""
        if self.core == "none":
            return 0
        return self.ticket_length if self.burn_in is None else self.burn_in

    def most_shards(self, runtime: RuntimeConfig, columns: int) -> tuple[int, str]:  # noqa: ARG002
        size, length = self.batch_size, self.ticket_length
        if self.core == "none":
            return size, f"batch_size is {size} transitions"
        sequences = size // length
        return sequences, f"batch_size / chunk_length is {size} / {length} = {sequences} sequences"

    def memory(self, runtime: RuntimeConfig, history: int = 0) -> RingShape:
        """Return the shape of the replay's rings, with their pace.

        Args:
            runtime: with the number of actors and of envs per actor.
            history: number of earlier rows whose frames the frame stack of a row may contain.

        Raises:
            ConfigError: the settings contradict each other.
        """
        needs = self.sample_needs(runtime)
        pace = ReplayPace(self.updates_per_env_step, self.warmup, self.max_ahead, sample_needs=needs)
        return RingShape(pace, runtime.actors, runtime.envs_per_actor, self.ticket_length, self.capacity, history)

    def sample_needs(self, runtime: RuntimeConfig) -> int:
        """Return how many transitions must have been taken in before the first sample."""
        return max(self.batch_size, self.rows_before * runtime.actors * runtime.envs_per_actor)

    def of_worker(self, index: int, workers: int) -> Self:
        """Return the settings of one worker of a lock-free run, with its part of warm-up and capacity.

        Each worker keeps the ratio r on its own transitions, and the warm-ups of all workers add up to W, that of the
        run. So after M transitions, when all warm-ups have ended, the workers have made floor(r (M - W)) updates
        together, or fewer by less than the number of workers.
        """
        warmup = self.warmup // workers + (index < self.warmup % workers)
        return replace(self, warmup=warmup, capacity=-(-self.capacity // workers))

    @property
    def most_load_ahead(self) -> int:
        """Largest number of minibatches that may be sampled ahead of their updates; without priorities unlimited."""
        return self.priority_delay if self.prioritized else sys.maxsize

    def replay(self, rings: Rings, buffers: int = 2) -> Replay:
        """Return a new replay with these settings on rings of the shape of `memory`.

        `buffers`: see `TransitionReplay`.
        """
        shared: dict[str, Any] = {
            "batch_size": self.batch_size,
            "n_step": self.n_step,
            "gamma": self.gamma,
            "exponents": Exponents(self.priority_exponent, self.importance_exponent) if self.prioritized else None,
        }
        if self.core == "none":
            return TransitionReplay(rings, buffers=buffers, **shared)
        return SequenceReplay(rings, burn_in=self.rows_before, **shared)

    def next_update(self, counted: int = 0) -> int:
        made = ReplayPace(self.updates_per_env_step, self.warmup, 0).due(counted)
        return self.warmup + math.ceil((made + 1) / self.updates_per_env_step)

    def remedy_without_updates(self, *, resumed: bool) -> str:
        more = f"the warm-up (warmup) is {self.warmup}. Pass --steps {10 * self.warmup}"
        return more if resumed else f"{more}, or --set warmup=N with a smaller N"

    def check(self, runtime: RuntimeConfig) -> None:
        """Check that the settings do not contradict each other.

        Raises:
            ConfigError: they do; the message has the arithmetic and the remedy.
        """
        if runtime.entry.workers_learn:
            self._check_workers(runtime)
            return
        self._check_load_ahead(runtime)
        shape = self.memory(runtime)
        self._check_samples(shape)
        if runtime.actors > shape.pace.in_flight:
            raise ConfigError(
                f"actors is {runtime.actors}, but at most max_ahead + 1 = {shape.pace.in_flight} tickets can be acted "
                f"at one time: pass --set max_ahead={runtime.actors} to let all of them act, or fewer --actors"
            )

    def _check_samples(self, shape: RingShape) -> None:
        """Check that the rings are large enough for a batch of samples."""
        if self.core != "none":
            check_sequences(shape, self.batch_size, self.rows_before, self.n_step)
        shape.check(self.batch_size, self.n_step)

    def _check_load_ahead(self, runtime: RuntimeConfig) -> None:
        """Refuse to sample further ahead than the priorities of an update may be delayed."""
        ahead = runtime.load_ahead or 0
        if ahead > self.most_load_ahead:
            raise ConfigError(
                f"load_ahead is {ahead}, but with prioritized and priority_delay = {self.priority_delay} only "
                f"{self.most_load_ahead} minibatches can be sampled before the priorities of an update are known: pass "
                f"--set priority_delay={ahead}, which changes the result, or leave load_ahead out"
            )

    def _check_workers(self, runtime: RuntimeConfig) -> None:
        """Check the settings of a lock-free run: those of the run, and the part of each worker."""
        workers = runtime.workers or usable_cores()
        smallest, each = self.batch_size * workers, self.warmup // workers
        if self.max_ahead:
            raise ConfigError(
                f"max_ahead is {self.max_ahead}, which is not supported by the {runtime.runtime} runtime: each worker "
                "acts and learns in turn. Leave it out"
            )
        if each < self.batch_size:
            raise ConfigError(
                f"warmup is {self.warmup} transitions, {each} for each of {workers} workers, but the first sample of "
                f"each needs batch_size = {self.batch_size}: pass --set warmup={smallest} or more, a smaller "
                "batch_size, or fewer --workers"
            )
        self.memory(runtime)  # first, so that an error in the settings of the run is not reported as one of a worker
        own = self.of_worker(workers - 1, workers)  # the last one has the smallest part of warmup
        try:
            self._check_samples(own.memory(runtime))
        except ConfigError as error:
            raise ConfigError(
                f"capacity and warmup are divided among the {workers} workers, so each has capacity {own.capacity} "
                f"and warmup {own.warmup}. For one worker: {error}. For the whole run pass {workers} times as much"
            ) from error
