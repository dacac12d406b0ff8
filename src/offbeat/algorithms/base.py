"""The interface of algorithms: the fields to record, the stages of an update, and the methods that workers call.

T is the unroll's length in env steps, B the columns of a batch, M the rows of a minibatch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from offbeat.core.types import Array, Field, Tree
from offbeat.models.collective import Collective
from offbeat.models.flat import FlatParameters

Batch = Mapping[str, Any]
"""The unrolls of one learning step side by side: name -> [T + 1, B, ...] (per step) or [B, ...] (per unroll).

Row T is defined only for observations. Arrays are views of the slots wherever possible.
"""
Minibatch = Mapping[str, Any]
"""The inputs of a loss, name -> [M, ...]: rows of a batch (`rows.py`) or sampled transitions."""
Rows = slice | torch.Tensor
"""A range of rows, or the indices of rows."""
NO_OUTPUTS: Mapping[str, Any] = MappingProxyType({})


class LossResult(NamedTuple):
    """The result of a loss. A loss is a pure function: it changes neither its minibatch nor the algorithm."""

    loss: torch.Tensor | float
    """A scalar to differentiate."""
    metrics: Mapping[str, torch.Tensor | float]
    """Detached scalars to report; the mean over the updates of a learning step is logged."""
    outputs: Mapping[str, Any] = NO_OUTPUTS
    """Other values that `Stage.after` or `Stage.pass_on` needs, detached; not reported. With shards only scalars, and
    tensors with a value for each row of the minibatch."""


@dataclass(frozen=True)
class Shard:
    """A part of a minibatch, whose gradients are computed apart from those of the other parts."""

    rows: Rows
    """Its rows among the M rows of the minibatch."""
    size: int
    """Number of its rows; may be 0."""
    minibatch: Callable[[], Minibatch]
    """Makes the part of the minibatch; called only by the learner that computes the shard."""


@dataclass(frozen=True)
class Stage:
    """One part of an update: PPO has one, SAC has three (critic, policy, temperature)."""

    name: str
    group: str
    """Name of the parameter group that this stage changes."""
    loss: Callable[[Minibatch], LossResult]
    """Computes the loss. The learner differentiates it, unless `gradients` is given."""
    gradients: Callable[[Minibatch], LossResult] | None = None
    """A fast path: writes all gradients of the group, and returns the result of `loss`, with a float as the loss."""
    after: Callable[[LossResult], None] | None = None
    """Called with the result of the loss at the end of an update in which the stage was applied, in the order of the
    stages: to update ema copies, or to store outputs. Metrics are then on the host, so reading them costs nothing."""
    every: int = 1
    """n: the stage is applied in every n-th update, the first one included. With a replay these are the updates of the
    run, with unrolls those of each learning step."""
    pass_on: Callable[[LossResult], None] | None = None
    """Called with the result of the loss before the next stage: to store outputs that later stages of the same update
    need. It must not read a tensor on the host, and must not change anything that is learned, because it may not be
    known yet whether the result is finite. If it is not finite, later stages are not applied."""
    maxima: frozenset[str] = frozenset()
    """Names of outputs that are maxima over the rows. Other scalars are means over the rows. With shards the results of
    all shards are combined accordingly."""


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters with their own optimizer."""

    parameters: FlatParameters
    max_grad_norm: float
    """Largest norm of all gradients of the group together; larger gradients are scaled down to it."""
    adam_eps: float
    """Adam's epsilon."""
    adam_beta1: float = 0.9
    """Adam's decay of the mean gradient."""


class Algorithm(Protocol):
    """What to record and how to learn.

    The learner computes gradients, clips them and applies them. An algorithm never calls an optimizer, never waits and
    does not depend on the runtime.

    There are two kinds: `OnPolicyAlgorithm` learns from unrolls, `ReplayAlgorithm` from a replay. In both, a learning
    step starts with `start`, makes updates stage by stage, and ends with `finish` and `write_published`.
    """

    stages: tuple[Stage, ...]
    groups: Mapping[str, ParameterGroup]
    collective: Collective
    """The learners that compute the shards of each update together; by default only this one."""
    threads: int
    """Number of threads of the algorithm's own among which it divides each update. 0: it has none, and torch and BLAS
    use their configured numbers of threads."""

    def fields(self) -> list[Field]:
        """Return the fields to record in addition to the env's rows."""
        ...

    def cut(self, minibatch: Minibatch, shards: int) -> Sequence[Shard]:
        """Cut a minibatch into shards, more than one.

        The losses of shards, weighted by their numbers of rows, must have the loss of the minibatch as their mean. The
        rows of a shard must not depend on who computes it. Shards without rows are allowed. Only called if
        `AlgorithmSettings.supports_shards` is set.
        """
        ...

    def start(self, progress: float) -> dict[str, float]:
        """Set the schedules for a learning step; `progress` goes from 0 to 1 over the run's `steps`.

        Returns:
            The learning rate of each parameter group, by name.
        """
        ...

    def write_published(self, vector: NDArray[np.float32]) -> None:
        """Write the arrays that a policy needs to act, in the layout of `published_layout`."""
        ...

    def weights(self) -> Tree:
        """Return all trained arrays and statistics by name, for a checkpoint."""
        ...

    def load_weights(self, weights: Mapping[str, Array]) -> None:
        """Load the arrays of `weights()`."""
        ...

    def state(self) -> dict[str, Any]:
        """Return the state that a resumed run needs in addition to `weights()`: statistics, adapted learning rates."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state()`."""
        ...

    def restore_statistics(self, state: Mapping[str, Any]) -> None:
        """Restore only the statistics of `state()`, which belong to the weights, and not adapted learning rates, which
        belong to the run.
        """
        ...

    def close(self) -> None:
        """Stop the algorithm's threads. The algorithm is not used afterwards."""
        ...


class OnPolicyAlgorithm(Algorithm, Protocol):
    """Learns from a batch of unrolls::

    learning_rates = algorithm.start(progress)
    batch = algorithm.prepare(batch)
    for minibatch in algorithm.minibatches(batch, random):
        for stage in algorithm.stages:
            updates.apply(stage, minibatch)
    algorithm.update_statistics(batch)
    algorithm.finish(batch)
    algorithm.write_published(weights.open(version))
    """

    def prepare(self, batch: Batch) -> Batch:
        """Compute targets and advantages, once per learning step."""
        ...

    def minibatches(self, batch: Batch, random: np.random.Generator) -> Iterator[Minibatch]:
        """Yield the minibatches of all epochs; each one is one update."""
        ...

    def update_statistics(self, batch: Batch) -> None:
        """Update the running statistics, after the last update of the first learning step that uses a batch."""
        ...

    def finish(self, batch: Batch) -> dict[str, float]:
        """Return metrics to report, at the end of a learning step."""
        ...


class ReplayAlgorithm(Algorithm, Protocol):
    """Learns from transitions that are sampled anew for each update::

    learning_rates = algorithm.start(progress)
    for _ in range(updates that are due):
        minibatch = algorithm.minibatch(sampled, random)
        for stage in algorithm.stages:
            updates.apply(stage, minibatch)
    algorithm.finish(observations)
    algorithm.write_published(weights.open(version))
    """

    def minibatch(self, sampled: Batch, random: np.random.Generator) -> Minibatch:
        """Convert sampled transitions, name -> [M, ...], to the minibatch for the stages.

        Args:
            sampled: <leaf> and next/<leaf> for each leaf of the observation and of the next observation; action,
                reward, discount (factor of the next value, 0 after a termination); with priorities weight. With a core
                it has sequences, as `SequenceReplay.sample` returns them.
            random: the random stream of this learning step, for noise in the minibatch.

        With `load_ahead` it is called in another thread, while updates are made. So it must not read the parameters or
        anything else that an update changes; running statistics change only in `finish`.
        """
        ...

    def priorities(self, minibatch: Minibatch) -> Array:
        """Return the absolute error of each sampled transition or sequence. Called after the stages of the update."""
        ...

    def finish(self, observations: Batch) -> dict[str, float]:
        """Update the running statistics after the last update of a learning step; return metrics to report.

        Args:
            observations: leaf -> [M, ...], the observations that this learning step has taken in.
        """
        ...
