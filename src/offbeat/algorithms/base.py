"""The contract of algorithms: what to record, how to learn, and what workers may ask of them.

T is the unroll's length in env steps, B the columns of a batch, M the rows of a minibatch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from offbeat.config.settings import AlgorithmSettings
from offbeat.core.errors import ConfigError
from offbeat.core.types import Array, EnvSpec, Field, Tree
from offbeat.models.collective import Collective
from offbeat.models.flat import FlatParameters
from offbeat.models.spec import PolicySpec


def policy_of(settings: AlgorithmSettings, env: EnvSpec) -> PolicySpec:
    """Return the policy that an algorithm's settings make for an env.

    Raises:
        ConfigError: the env does not suit the settings, or what they make is no `PolicySpec`.
    """
    spec = settings.policy_spec(env)
    if not isinstance(spec, PolicySpec):
        raise ConfigError(f"{type(settings).__qualname__}.policy_spec returned {spec!r}, but a PolicySpec is expected")
    return spec


NO_OUTPUTS: Mapping[str, Any] = MappingProxyType({})


class LossResult(NamedTuple):
    """What a loss returns. A loss is a pure function: it changes neither its minibatch nor the algorithm."""

    loss: torch.Tensor | float
    """A scalar to differentiate."""
    metrics: Mapping[str, torch.Tensor | float]
    """Detached scalars to report; the mean over the updates of a learning step is logged."""
    outputs: Mapping[str, Any] = NO_OUTPUTS
    """What else `Stage.after` needs, detached; not reported."""


Batch = Mapping[str, Any]
"""The unrolls of one learning step side by side: name -> [T + 1, B, ...] (per step) or [B, ...] (per unroll).

Only observations have a true row T. Arrays are views of the slots wherever possible.
"""
Minibatch = Mapping[str, Any]
"""name -> [M, ...]: valid rows only."""


@dataclass(frozen=True)
class Stage:
    """One part of an update: PPO has one, SAC has three (critic, policy, temperature)."""

    name: str
    group: str
    """The parameter group that this stage changes."""
    loss: Callable[[Minibatch], LossResult]
    """The loss; the learner differentiates it, unless there are `gradients`."""
    gradients: Callable[[Minibatch], LossResult] | None = None
    """Writes all of the group's gradients, and returns what `loss` returns, with a float as loss: a fast path."""
    after: Callable[[LossResult], None] | None = None
    """Called with the loss's result after the group has been changed: to update slow copies, or to store outputs."""
    every: int = 1
    """The stage takes part in each so many-th update."""


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that one optimizer changes."""

    parameters: FlatParameters
    max_grad_norm: float
    """Gradients are scaled down to this norm, over the whole group."""
    adam_eps: float


class Algorithm(Protocol):
    """What to record and how to learn. The learner differentiates, clips and applies; an algorithm never
    calls an optimizer, never waits and never knows which runtime it is in.

    What it learns from is said by two kinds, `OnPolicyAlgorithm` and `ReplayAlgorithm`. Both have a learning step
    that begins with `start`, makes updates stage by stage, and ends with `finish` and `write_published`.
    """

    stages: tuple[Stage, ...]
    groups: Mapping[str, ParameterGroup]
    collective: Collective
    """The learners that train it together: itself alone, unless a runtime says otherwise."""
    threads: int
    """Threads that it shares each update out to; 0 where it leaves that to torch and BLAS."""

    def fields(self) -> list[Field]:
        """Fields recorded beyond the env's own rows."""
        ...

    def start(self, progress: float) -> dict[str, float]:
        """Set the schedules for a learning step; `progress` runs from 0 to 1 over `steps`.

        Returns the learning rate of each parameter group.
        """
        ...

    def write_published(self, vector: NDArray[np.float32]) -> None:
        """Write what a policy acts with, as `published_layout` lays it out."""
        ...

    def weights(self) -> Tree:
        """Return every trained array and statistic by name, as a checkpoint keeps them."""
        ...

    def load_weights(self, weights: Mapping[str, Array]) -> None:
        """Take over the arrays of `weights()`."""
        ...

    def state(self) -> dict[str, Any]:
        """Return what else a resumed run needs: statistics in full, adapted rates."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over `state()`."""
        ...

    def restore_statistics(self, state: Mapping[str, Any]) -> None:
        """Take over only the statistics of `state()`: they belong to the weights, adapted rates to the run."""
        ...

    def close(self) -> None:
        """End what was started for it; it is not used any more."""
        ...


class OnPolicyAlgorithm(Algorithm, Protocol):
    """Learns from a batch of unrolls::

    learning_rates = algorithm.start(progress)
    batch = algorithm.prepare(batch)
    for minibatch in algorithm.minibatches(batch, random):
        for stage in algorithm.stages:
            updates.apply(stage, minibatch)
    algorithm.finish(batch)
    algorithm.write_published(weights.open(version))
    """

    def prepare(self, batch: Batch) -> Batch:
        """Compute targets and advantages, once per learning step."""
        ...

    def minibatches(self, batch: Batch, random: np.random.Generator) -> Iterator[Minibatch]:
        """Yield the minibatches of all epochs; each one is one update."""
        ...

    def finish(self, batch: Batch) -> dict[str, float]:
        """After the last update of a learning step: update normalisers; return metrics to report."""
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
        """Turn sampled transitions, name -> [M, ...], into what the stages see; `random` draws what is random in it.

        Args:
            sampled: each leaf of the observation, `next/` and its name for the one that follows, action, reward,
                discount (of the value that follows; 0 after a termination) and, if prioritised, weight. With a core
                sequences, as `SequenceReplay.sample` returns them.
            random: the stream of this learning step.
        """
        ...

    def priorities(self, minibatch: Minibatch) -> Array:
        """Return the size of the error of each transition, or sequence, that was sampled, as the stages have left it:
        how much it can still teach.
        """
        ...

    def finish(self, observations: Batch) -> dict[str, float]:
        """After the last update of a learning step: take in the observations that came with it, [M, ...] by leaf.

        Returns metrics to report.
        """
        ...
