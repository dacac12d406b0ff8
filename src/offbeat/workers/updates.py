"""Updates: apply the stages of an algorithm to a minibatch, collect metrics, count refused updates."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from offbeat.algorithms.base import Algorithm, Minibatch, Stage
from offbeat.algorithms.returned import name_of, require_metrics
from offbeat.core.errors import RunFailed
from offbeat.core.types import Array
from offbeat.metrics.checks import metric_value, refused_name
from offbeat.metrics.names import is_of_run
from offbeat.models.acting import IF_NOT_FINITE
from offbeat.models.flat import FlatAdam
from offbeat.workers.stages import make_applier

Source = Callable[..., Any] | None
REFUSED_IN_A_ROW = 100
"""Number of refused updates, without one between them in which all stages were applied, at which the run fails."""


class UpdateMetrics:
    """Metrics of the updates of one learning step, and those that are reported beside them.

    Each name belongs to one source: a method that may be the user's, or None, which is the learner. Tensors are read
    only in `summary`, at the end of the step.
    """

    def __init__(self) -> None:
        self.refused = 0
        """Updates that were not applied because the loss or a gradient was not finite."""
        self._sources: dict[str, Source] = {}
        self._values: dict[str, list[Any]] = defaultdict(list)
        self._minima: dict[str, float] = {}
        self._maxima: dict[str, float] = {}

    def add(self, metrics: Mapping[str, Any], source: Source = None) -> None:
        """Add a value of each metric.

        Raises:
            RunFailed: `metrics` is no dict by name, or a name is also that of a metric of another source or of the
                run, where one of the values would be lost.
        """
        if source is not None:
            require_metrics(metrics, source)
        for name, value in metrics.items():
            self._claim(name, source)
            self._values[name].append(value)

    def add_spread(self, name: str, values: Array) -> None:
        """Add values, [M]; the summary has their minimum, mean and maximum, under `name` with a suffix."""
        min_name, max_name = f"{name}_min", f"{name}_max"
        self._values[f"{name}_mean"].append(float(values.mean()))
        self._minima[min_name] = min(self._minima.get(min_name, math.inf), float(values.min()))
        self._maxima[max_name] = max(self._maxima.get(max_name, -math.inf), float(values.max()))

    def _claim(self, name: str, source: Source) -> None:
        if name not in self._sources:
            if source is not None and (not name or is_of_run(name)):
                raise refused_name(name_of(source), name)
            self._sources[name] = source
        elif self._sources[name] != source:
            owners = [name_of(each) for each in (self._sources[name], source) if each is not None]
            raise refused_name(" and ".join(owners), name)

    def summary(self) -> dict[str, float]:
        """Return the mean of each metric over the updates, and the minima and maxima of those from `add_spread`."""
        return {name: _mean(name, values) for name, values in self._values.items()} | self._minima | self._maxima


def _mean(name: str, values: list[Any]) -> float:
    """Return the mean of a metric's values, which are numbers, or tensors with one element each.

    Raises:
        RunFailed: one of them is something else.
    """
    try:
        if not isinstance(values[0], Tensor):
            return float(sum(values) / len(values))
        stacked = torch.stack(values)
        if stacked.numel() == len(values):
            return float(stacked.mean())
    except (TypeError, ValueError, RuntimeError):  # they are not of one kind
        pass
    return sum(metric_value(name, value) for value in values) / len(values)  # converts each, which is slower


class UpdateCounter(Protocol):
    """Counts the updates of several learners that share their parameters (Hogwild); each learner has one."""

    def others(self) -> int:
        """Return the number of updates that the other learners have made."""
        ...

    def count(self, *, refused: bool) -> None:
        """Count an update of this learner."""
        ...


class Updates:
    """Makes updates of an algorithm's parameters. It has the optimizers."""

    def __init__(self, algorithm: Algorithm, counter: UpdateCounter | None = None) -> None:
        """Make the optimizers of an algorithm.

        Args:
            algorithm: the algorithm to update.
            counter: counts the updates of all learners, if other learners change the same parameters (Hogwild).
        """
        self._algorithm, self._counter = algorithm, counter
        self._adam = {
            name: FlatAdam(group.parameters, group.adam_eps, group.adam_beta1)
            for name, group in algorithm.groups.items()
        }
        self._on_copy = any(group.parameters.is_copy for group in algorithm.groups.values())
        """Whether gradients are computed on this learner's own copy of the parameters."""
        self._applier = make_applier(algorithm, self._adam)
        self.made = 0
        """Updates made by this object, refused ones included."""
        self._refused_in_a_row = 0
        self._others_at_read = 0
        """Updates that the other learners had made when this learner last read the parameters."""

    def pull(self) -> None:
        """Copy the shared parameters, if this learner computes gradients on its own copy of them."""
        for group in self._algorithm.groups.values():
            group.parameters.pull()
        self._note_read()

    def _note_read(self) -> None:
        if self._counter:
            self._others_at_read = self._counter.others()

    def apply(
        self, number: int, minibatch: Minibatch, rates: Mapping[str, float], update_metrics: UpdateMetrics
    ) -> bool:
        """Make an update, stage by stage.

        If the loss or a gradient of a stage is not finite, this stage and those after it are not applied: the update
        is refused.

        Args:
            number: of the update, in the run or in its learning step; decides which stages are due (`Stage.every`).
            minibatch: the data.
            rates: learning rate by parameter group.
            update_metrics: metrics are added here.

        Returns:
            Whether all stages that are due were applied.

        Raises:
            RunFailed: too many consecutive updates were refused.
        """
        if self._counter and not self._on_copy:
            self._note_read()
        due = [stage for stage in self._algorithm.stages if number % stage.every == 0]
        all_applied = self._apply_stages(due, minibatch, rates, update_metrics)
        self.made += 1
        if self._counter:
            update_metrics.add_spread("gradient_staleness", np.array([self._counter.others() - self._others_at_read]))
            self._counter.count(refused=not all_applied)
            self._note_read()  # a learner's own copy was updated after the step
        if not all_applied:
            self._refuse(update_metrics)
        elif len(due) == len(self._algorithm.stages):  # else a stage that is not due may still be refused each time
            self._refused_in_a_row = 0
        return all_applied

    def _apply_stages(
        self, stages: list[Stage], minibatch: Minibatch, rates: Mapping[str, float], update_metrics: UpdateMetrics
    ) -> bool:
        applied = self._applier.apply(stages, minibatch, rates)
        for stage, result, norm in applied:
            if stage.after is not None:
                stage.after(result)
            update_metrics.add({_norm_name(stage, self._algorithm): norm})
            update_metrics.add(result.metrics, stage.loss)
        return len(applied) == len(stages)

    def _refuse(self, update_metrics: UpdateMetrics) -> None:
        update_metrics.refused += 1
        self._refused_in_a_row += 1
        if self._refused_in_a_row >= REFUSED_IN_A_ROW:
            raise RunFailed(
                f"the last {REFUSED_IN_A_ROW} updates of the policy were refused, because its loss or a gradient was "
                f"NaN or infinity. {IF_NOT_FINITE}. `offbeat check ENV` looks for the cause in the env. The published "
                "weights are still finite"
            )

    def state(self) -> dict[str, Any]:
        """Return Adam's moments and step count as arrays, by group and name."""
        return {
            name: {key: tensor.cpu().numpy() for key, tensor in adam.state_tensors().items()}
            for name, adam in self._adam.items()
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned. Groups that are not in it keep their values (Hogwild: shared moments)."""
        for name in state:
            for key, tensor in self._adam[name].state_tensors().items():
                tensor.copy_(torch.from_numpy(state[name][key]))


def _norm_name(stage: Stage, algorithm: Algorithm) -> str:
    """Return the name of the metric for a stage's gradient norm."""
    return "grad_norm" if len(algorithm.stages) == 1 else f"grad_norm_{stage.name}"
