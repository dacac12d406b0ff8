"""One update after the other: differentiate, refuse what is not finite, clip, Adam. The same for every algorithm."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from offbeat.algorithms.base import Algorithm, Minibatch, Stage
from offbeat.core.errors import RunFailed
from offbeat.core.types import Array
from offbeat.models.flat import FlatAdam
from offbeat.workers.stages import make_stages

REFUSED_IN_A_ROW = 100
"""Updates refused one after the other before the run is given up."""


class UpdateMetrics:
    """What the updates of one learning step report; read only once, at its end."""

    def __init__(self) -> None:
        self.refused = 0
        """Updates that were not applied, as their gradients were not finite."""
        self._values: dict[str, list[Any]] = defaultdict(list)
        self._least: dict[str, float] = {}
        self._most: dict[str, float] = {}

    def add(self, metrics: Mapping[str, Any]) -> None:
        for name, value in metrics.items():
            self._values[name].append(value)

    def add_spread(self, name: str, values: Array) -> None:
        """Add values [M] of which the least, the mean and the most are reported."""
        least, most = f"{name}_min", f"{name}_max"
        self._values[f"{name}_mean"].append(float(values.mean()))
        self._least[least] = min(self._least.get(least, math.inf), float(values.min()))
        self._most[most] = max(self._most.get(most, -math.inf), float(values.max()))

    def summed_up(self) -> dict[str, float]:
        """Return the mean of each metric over the updates, and the least and the most where these were asked for."""
        return {name: _mean(values) for name, values in self._values.items()} | self._least | self._most


def _mean(values: list[Any]) -> float:
    """Return the mean of numbers, or of tensors of one element, which are read here and no sooner."""
    return float(torch.stack(values).mean()) if isinstance(values[0], Tensor) else sum(values) / len(values)


class UpdateCounter(Protocol):
    """Counts the updates of several learners that share their parameters (Hogwild)."""

    separate: bool
    """Whether this one differentiates on a copy of the parameters."""

    def others(self) -> int:
        """Return how many updates the others have made."""
        ...

    def count(self, *, refused: bool) -> None:
        """Count an update of this one."""
        ...


class Updates:
    """Owns the optimizers; everything particular to an algorithm is in the algorithm."""

    def __init__(self, algorithm: Algorithm, counter: UpdateCounter | None = None) -> None:
        """Make the optimizers of an algorithm, whose gradients are summed over its collective.

        Args:
            algorithm: what is to learn.
            counter: of all learners, where others change the parameters too (Hogwild).
        """
        self._algorithm, self._counter = algorithm, counter
        self._adam = {name: FlatAdam(group.parameters, group.adam_eps) for name, group in algorithm.groups.items()}
        self._stages = make_stages(algorithm, self._adam)
        self._refused_in_a_row = 0
        self._seen = 0
        """Updates that the others had made when this learner last read the parameters."""

    def pull(self) -> None:
        """Read the parameters as others have left them, where this learner differentiates on a copy."""
        for group in self._algorithm.groups.values():
            group.parameters.pull()
        self._note_read()

    def _note_read(self) -> None:
        if self._counter:
            self._seen = self._counter.others()

    def apply(self, number: int, minibatch: Minibatch, rates: Mapping[str, float], collected: UpdateMetrics) -> bool:
        """Make update `number` of the run, stage by stage, with the learning rate of each group.

        Returns:
            Whether it was applied: at a gradient that is not finite, this stage and those after it are left out.

        Raises:
            RunFailed: too many updates were refused one after the other.
        """
        if self._counter and not self._counter.separate:
            self._note_read()
        applied = self._apply_stages(number, minibatch, rates, collected)
        if self._counter:
            collected.add_spread("gradient_staleness", np.array([self._counter.others() - self._seen]))
            self._counter.count(refused=not applied)
            self._note_read()  # a copy was renewed when it had been changed
        if applied:
            self._refused_in_a_row = 0
        else:
            self._refuse(collected)
        return applied

    def _apply_stages(
        self, number: int, minibatch: Minibatch, rates: Mapping[str, float], collected: UpdateMetrics
    ) -> bool:
        stages = [stage for stage in self._algorithm.stages if number % stage.every == 0]
        applied = self._stages.apply(stages, minibatch, rates)
        for stage, result, norm in applied:
            if stage.after is not None:
                stage.after(result)
            collected.add({**result.metrics, _norm_of(stage, self._algorithm): norm})
        return len(applied) == len(stages)

    def _refuse(self, collected: UpdateMetrics) -> None:
        collected.refused += 1
        self._refused_in_a_row += 1
        if self._refused_in_a_row >= REFUSED_IN_A_ROW:
            raise RunFailed(
                f"the last {REFUSED_IN_A_ROW} updates had a loss or gradient that was not finite and were refused: "
                "try a lower learning_rate, normalize_observations=true, or `offbeat check ENV`; "
                "the published weights are still finite"
            )

    def state(self) -> dict[str, Any]:
        """Return the optimizers' moments, by group."""
        return {
            name: {key: tensor.cpu().numpy() for key, tensor in adam.state_tensors().items()}
            for name, adam in self._adam.items()
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over `state()`, as far as it goes: moments that are shared are not in it."""
        for name in state:
            for key, tensor in self._adam[name].state_tensors().items():
                tensor.copy_(torch.from_numpy(state[name][key]))


def _norm_of(stage: Stage, algorithm: Algorithm) -> str:
    """Return the name under which a stage's gradient norm is reported."""
    return "grad_norm" if len(algorithm.stages) == 1 else f"grad_norm_{stage.name}"
