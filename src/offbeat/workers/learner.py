"""The learner: turns the batch of a learning step into updates, and publishes what came of them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter as clock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offbeat.errors import RunFailed
from offbeat.memory.unrolls import Unrolls
from offbeat.memory.weights import Weights
from offbeat.metrics.timings import Timings
from offbeat.models.flat import FlatAdam
from offbeat.seeding import stream
from offbeat.types import Algorithm, Minibatch, Stage, Tree
from offbeat.workers.staging import Staging

REFUSED_IN_A_ROW = 100
"""Updates refused one after the other before the run is given up."""


@dataclass(frozen=True)
class Learned:
    """What one learning step did."""

    env_steps: int
    """Valid rows in the batch."""
    updates: int
    """Updates, refused ones included."""
    refused: int
    """Updates that were not applied, as their gradients were not finite."""
    metrics: dict[str, float]
    """Means over the updates."""
    episode_returns: NDArray[np.float32]
    """Of the episodes that ended in the batch, row by row."""
    episode_lengths: NDArray[np.int32]


class Learner:
    """Owns the optimizers; everything particular to an algorithm is in the algorithm."""

    def __init__(
        self,
        algorithm: Algorithm,
        unrolls: Unrolls,
        weights: Weights,
        *,
        seed: int,
        device: str,
        timings: Timings,
    ) -> None:
        self._algorithm, self._unrolls, self._weights = algorithm, unrolls, weights
        self._seed, self._staging, self._timings = seed, Staging(device), timings
        self._adam = {name: FlatAdam(group.parameters, group.adam_eps) for name, group in algorithm.groups.items()}
        self._refused_in_a_row = 0

    def valid_rows(self, step: int) -> int:
        """Return the valid rows in a committed batch: what learning step `step` adds to env_steps."""
        return int(self._unrolls.batch(step)["valid"][:-1].sum())

    def learn(self, step: int, progress: float) -> Learned:
        """Learn from batch `step` and publish version `step + 1`; `progress` runs from 0 to 1 over `steps`."""
        begun = clock()
        arrays = self._unrolls.batch(step)
        rates = self._algorithm.begin(progress)
        batch = self._algorithm.prepare(self._staging.tensors(arrays))
        prepared = clock()
        figures = _Figures()
        for minibatch in self._algorithm.minibatches(batch, stream(self._seed, "learn", step)):
            for stage in self._algorithm.stages:
                self._update(stage, minibatch, rates[stage.group], figures)
        updated = clock()
        metrics = self._algorithm.finish(batch)
        self.publish(step + 1)
        self._timings.add("learn/prepare", prepared - begun)
        self._timings.add("learn/update", updated - prepared)
        self._timings.add("learn/publish", clock() - updated)
        self._timings.add("learn", clock() - begun)
        return _learned(arrays, step, figures, metrics | {"learning_rate": max(rates.values())})

    def _update(self, stage: Stage, minibatch: Minibatch, rate: float, figures: _Figures) -> None:
        """Differentiate one stage's loss, clip, and apply: or refuse, when the gradients are not finite."""
        group = self._algorithm.groups[stage.group]
        gradients = group.parameters.gradients
        loss, metrics = _differentiate(stage, minibatch, gradients)
        norm = float(torch.linalg.vector_norm(gradients))
        figures.updates += 1
        if not (math.isfinite(norm) and math.isfinite(loss)):
            self._refuse(figures)
            return
        self._refused_in_a_row = 0
        if norm > group.max_grad_norm:
            gradients.mul_(group.max_grad_norm / (norm + 1e-6))
        self._adam[stage.group].step(rate)
        figures.add({**metrics, "grad_norm": norm})

    def _refuse(self, figures: _Figures) -> None:
        figures.refused += 1
        self._refused_in_a_row += 1
        if self._refused_in_a_row >= REFUSED_IN_A_ROW:
            raise RunFailed(
                f"the last {REFUSED_IN_A_ROW} updates had a loss or gradient that was not finite and were refused: "
                "try a lower learning_rate, normalize_observations=true, or `offbeat check ENV`; "
                "the published weights are still finite"
            )

    def publish(self, version: int) -> None:
        """Publish the policy as it is now."""
        self._algorithm.write_published(self._weights.open(version))
        self._weights.commit(version)

    def state(self) -> dict[str, Any]:
        """Return what a resumed run needs besides the weights."""
        return {
            "algorithm": self._algorithm.state(),
            "adam": {
                name: {key: tensor.cpu().numpy() for key, tensor in adam.state_tensors().items()}
                for name, adam in self._adam.items()
            },
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over `state()`."""
        self._algorithm.restore(state["algorithm"])
        for name, adam in self._adam.items():
            for key, tensor in adam.state_tensors().items():
                tensor.copy_(torch.from_numpy(state["adam"][name][key]))


def _differentiate(stage: Stage, minibatch: Minibatch, gradients: Tensor) -> tuple[float, Mapping[str, Any]]:
    """Put a stage's gradients into its group's buffer; return the loss and the figures to report."""
    if stage.gradients is not None:
        loss, metrics = stage.gradients(minibatch)
    else:
        gradients.zero_()
        loss, metrics = stage.loss(minibatch)
        if isinstance(loss, Tensor):
            loss.backward()  # type: ignore[no-untyped-call]
            loss = loss.detach()
    return float(loss), metrics


class _Figures:
    """Sums of what the updates of one learning step report; read only once, at its end."""

    def __init__(self) -> None:
        self.updates = self.refused = 0
        self._values: dict[str, list[Any]] = defaultdict(list)

    def add(self, metrics: Mapping[str, Any]) -> None:
        for name, value in metrics.items():
            self._values[name].append(value)

    def means(self) -> dict[str, float]:
        return {name: float(torch.tensor(values).mean()) for name, values in self._values.items()}


def _learned(arrays: Tree, step: int, figures: _Figures, metrics: dict[str, float]) -> Learned:
    valid = arrays["valid"][:-1]
    ended = (arrays["terminated"][:-1] | arrays["truncated"][:-1]) & valid
    lag = step - arrays["behavior_version"]
    lags = {"policy_lag_min": lag.min(), "policy_lag_mean": lag.mean(), "policy_lag_max": lag.max()}
    return Learned(
        env_steps=int(valid.sum()),
        updates=figures.updates,
        refused=figures.refused,
        metrics={**figures.means(), **metrics, **{name: float(value) for name, value in lags.items()}},
        episode_returns=arrays["episode_return"][:-1][ended],
        episode_lengths=arrays["episode_length"][:-1][ended],
    )
