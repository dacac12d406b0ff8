"""The settings that all algorithms on a replay share: of the replay, of its ratio and of their networks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

from offbeat.algorithms.network import NetworkConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import ConfigError
from offbeat.core.fields import Count, Natural, Positive, Ratio, Share
from offbeat.core.pace import ReplayPace
from offbeat.core.threads import usable_cores
from offbeat.memory.replay.base import AnyReplay
from offbeat.memory.replay.priorities import Exponents
from offbeat.memory.replay.rings import Rings, RingShape
from offbeat.memory.replay.sequences import SequenceReplay, check_sequences
from offbeat.memory.replay.transitions import Replay

SEQUENCE = 16
"""Rows of a ticket with a core, unless the settings say otherwise; without one it is 1."""


@dataclass(frozen=True)
class ReplayConfig(NetworkConfig):
    """The settings of a replay, and of what learns from it."""

    learning_rate: Positive = 3e-4
    """Adam's step size, where no other is given."""
    gamma: Share = 0.99
    """Discount per env step."""
    batch_size: Count = 256
    """Transitions that an update sees. With a core rows, of whole sequences: a multiple of chunk_length."""
    utd_ratio: Ratio | None = None
    """Updates per env step, held exactly; none: 1, or what steps_per_update says."""
    steps_per_update: Ratio | None = None
    """Env steps per update: the inverse of utd_ratio, for those who think in it."""
    warmup: Count = 5_000
    """Env steps before the first update can become due; a new policy acts at random in them."""
    max_ahead: Natural = 0
    """Tickets that actors may be ahead of the updates. Default: as many as let all actors act at once, which is
    actors - 1 in serial and actors in threads and processes. Not for hogwild."""
    chunk_length: Count | None = None
    """Env steps of one column in a ticket: the piece after which the updates that it made due are done. With a core
    it is also the sequence that is learned from as one. None: 1, and 16 with a core."""
    burn_in: Natural | None = None
    """Env steps before a sequence that only bring the core's state up to date: a multiple of chunk_length; none: as
    many as that is. Only with a core."""
    capacity: Count = 1_000_000
    """Rows that the replay keeps at least, of all actors together: transitions, and the reset rows between them."""
    n_step: Count = 1
    """Env steps of reward that a target sums up before it trusts the critics; episodes are never bridged, nor with a
    core the ends of sequences. Above 1 nothing corrects for the policy that acted, nor counts the entropy of the
    steps between."""
    prioritized: bool = False
    """Sample in proportion to the last error of a transition (arXiv:1511.05952), or with a core those of a sequence;
    the critics weigh it in return."""
    priority_exponent: Share = 0.6
    """How much the error counts when sampling: 0 is uniform. Only with prioritized."""
    importance_exponent: Share = 0.4
    """How much of the bias of prioritized sampling the weights take away: 1 is all. Only with prioritized."""
    save_replay: bool = True
    """Keep the replay in checkpoints. Without it a resumed run warms up again, and counts the ratio from there."""

    learns_from: ClassVar[Literal["unrolls", "replay"]] = "replay"
    splits_updates: ClassVar[bool] = True
    lag_flag: ClassVar[str] = "max_ahead"
    topology_keys: ClassVar[tuple[str, ...]] = (
        *("utd_ratio", "steps_per_update", "warmup", "max_ahead", "chunk_length", "burn_in", "capacity", "prioritized"),
    )
    """What is kept of the replay, and of the ratio, belongs to them."""
    unsupported_keys: ClassVar[Mapping[str, str]] = {
        "unroll_length": "pass --set chunk_length=N, the env steps of a ticket",
        "unrolls_per_batch": "pass --set batch_size=N, the transitions that an update sees",
        "max_lag": "pass --set max_ahead=N, the tickets that actors may be ahead of the updates",
        "split": "pass --actors N --envs-per-actor N, and --set learner_threads=N",
        "decorrelate": "leave it out: a replay mixes the moments of all episodes",
    }

    def __post_init__(self) -> None:
        if self.utd_ratio is not None and self.steps_per_update is not None:
            raise ConfigError(
                f"utd_ratio is {self.utd_ratio} and steps_per_update is {self.steps_per_update}, but one is the "
                "inverse of the other: keep one of them"
            )
        if self.core == "none" and self.burn_in is not None:
            raise ConfigError(
                f"burn_in is {self.burn_in}, which has no effect without a core: leave it out, or pass --set core=gru"
            )
        for key in ("priority_exponent", "importance_exponent"):
            if not self.prioritized and getattr(self, key) != getattr(ReplayConfig, key):
                raise ConfigError(
                    f"{key} is {getattr(self, key):g}, which has no effect while prioritized is false: leave it out, "
                    "or pass --set prioritized=true"
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

    @property
    def updates_per_env_step(self) -> Fraction:
        """The update-to-data ratio, r."""
        if self.steps_per_update is not None:
            return 1 / self.steps_per_update
        return Fraction(1) if self.utd_ratio is None else self.utd_ratio

    @property
    def ticket_length(self) -> int:
        """Env steps of one column in a ticket."""
        return self.chunk_length or (1 if self.core == "none" else SEQUENCE)

    @property
    def rows_before(self) -> int:
        """Rows before a sequence that only bring the state up to date."""
        if self.core == "none":
            return 0
        return self.ticket_length if self.burn_in is None else self.burn_in

    def memory(self, runtime: RuntimeConfig, history: int = 0) -> RingShape:
        """Return the rings that these settings make, and the pace on them.

        Args:
            runtime: how acting is laid out.
            history: rows before a sampled one that its stack of frames may reach back to.

        Raises:
            ConfigError: they cannot work together.
        """
        before = self.rows_before * runtime.actors * runtime.envs_per_actor  # beyond them there is a sequence
        needs = max(self.batch_size, before)
        pace = ReplayPace(self.updates_per_env_step, self.warmup, self.max_ahead, sample_needs=needs)
        return RingShape(pace, runtime.actors, runtime.envs_per_actor, self.ticket_length, self.capacity, history)

    def of_worker(self, index: int, workers: int) -> Self:
        """Return the settings of one worker of a lock-free run: they share warm-up and capacity out.

        Each holds the ratio on its own transitions. The warm-ups add up to that of the run, so all workers together
        make at most, and less than `workers` fewer than, the floor(r (M - W)) updates of one, once each is past its
        own.
        """
        warmup = self.warmup // workers + (index < self.warmup % workers)
        return replace(self, warmup=warmup, capacity=-(-self.capacity // workers))

    def replay(self, rings: Rings) -> AnyReplay:
        """Return the replay of these settings on the rings of their shape."""
        shared: dict[str, Any] = {
            "batch_size": self.batch_size,
            "n_step": self.n_step,
            "gamma": self.gamma,
            "priorities": Exponents(self.priority_exponent, self.importance_exponent) if self.prioritized else None,
        }
        if self.core == "none":
            return Replay(rings, **shared)
        return SequenceReplay(rings, burn_in=self.rows_before, **shared)

    def warnings(self, steps: int) -> str:
        """Say what a run of so many env steps will not do, though one may expect it; '' for nothing."""
        if steps > self.warmup:
            return ""
        return (
            f"steps is {steps}, and the first {self.warmup} env steps are the warm-up: nothing will be learned. For "
            f"that, pass --steps {10 * self.warmup}, or --set warmup=N with a smaller N"
        )

    def check(self, runtime: RuntimeConfig) -> None:
        """Refuse settings that cannot work together.

        Raises:
            ConfigError: with the arithmetic and the remedy.
        """
        if runtime.entry.workers_learn:
            self._check_shares(runtime)
            return
        shape = self.memory(runtime)
        self._check_samples(shape)
        if runtime.actors > shape.pace.in_flight:
            raise ConfigError(
                f"actors is {runtime.actors}, but at most max_ahead + 1 = {shape.pace.in_flight} tickets can be in "
                f"flight: pass --set max_ahead={runtime.actors} to let all of them act at once, or fewer --actors"
            )

    def _check_samples(self, shape: RingShape) -> None:
        """Refuse samples that the rings cannot give."""
        if self.core != "none":
            check_sequences(shape, self.batch_size, self.rows_before, self.n_step)
        shape.check(self.batch_size, self.n_step)

    def _check_shares(self, runtime: RuntimeConfig) -> None:
        """Refuse settings of a lock-free run that cannot work together, or are not supported by it."""
        workers = runtime.workers or usable_cores()
        least, each = self.batch_size * workers, self.warmup // workers
        if self.max_ahead:
            raise ConfigError(
                f"max_ahead is {self.max_ahead}, which is not supported by the {runtime.runtime} runtime: each worker "
                "acts and learns in turn. Leave it out"
            )
        if each < self.batch_size:
            raise ConfigError(
                f"warmup is {self.warmup} transitions, {each} for each of {workers} workers, but the first sample of "
                f"each needs batch_size = {self.batch_size}: pass --set warmup={least} or more, or fewer --workers"
            )
        self.memory(runtime)  # what is wrong with the totals is told of them
        own = self.of_worker(0, workers)
        try:
            self._check_samples(own.memory(runtime))
        except ConfigError as error:
            raise ConfigError(
                f"capacity and warmup are divided among the {workers} workers, which gives each {own.capacity} and "
                f"{own.warmup}. Of one worker {error}. For the whole run pass {workers} times as much"
            ) from error
