"""The stages of one update. Each stage: compute gradients, check that they are finite, clip them, apply Adam.

A stage is applied if its loss and gradients are finite, and those of all earlier stages of the update. There are two
implementations with the same bits. `HostApplier` reads two numbers per stage, which costs nothing on a CPU. On a GPU
each read makes the host wait until the GPU has finished all its work. `DeviceApplier` therefore decides on the device,
and reads once, at the end of the update.

Other code may read before or after the update. With a recurrent core, making a minibatch reads its number of rows; the
previous update has then finished, so the host does not wait long. `Stage.after` and the priorities of a replay are
computed after the read of the update.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from offbeat.algorithms.base import Algorithm, LossResult, Minibatch, ParameterGroup, Stage
from offbeat.models.flat import FlatAdam
from offbeat.workers.gradients import Gradients


class AppliedStage(NamedTuple):
    """A stage that was applied."""

    stage: Stage
    result: LossResult
    """The result of its loss, with the metrics on the host."""
    norm: float
    """Norm of its gradients before clipping."""


class StageApplier(Protocol):
    """Applies the stages of an update."""

    def apply(self, stages: Sequence[Stage], minibatch: Minibatch, rates: Mapping[str, float]) -> list[AppliedStage]:
        """Apply stages in order, each to its parameter group with the learning rate of the group.

        Returns:
            The stages that were applied: those before the first whose loss or gradients are not finite.
        """
        ...


def make_applier(algorithm: Algorithm, adam: Mapping[str, FlatAdam]) -> StageApplier:
    """Return the implementation for the device of an algorithm; `adam`: one optimizer for each group."""
    on_host = all(group.parameters.values.is_cpu for group in algorithm.groups.values())
    return HostApplier(algorithm, adam) if on_host else DeviceApplier(algorithm, adam)


class HostApplier:
    """For a CPU: reads the loss and the gradient norm of each stage before it applies the stage."""

    def __init__(self, algorithm: Algorithm, adam: Mapping[str, FlatAdam]) -> None:
        self._algorithm, self._adam = algorithm, adam
        self._gradients = Gradients(algorithm)

    def apply(self, stages: Sequence[Stage], minibatch: Minibatch, rates: Mapping[str, float]) -> list[AppliedStage]:
        differentiate, applied = self._gradients.of(minibatch), []
        for stage in stages:
            group = self._algorithm.groups[stage.group]
            gradients, result = group.parameters.gradients, differentiate(stage)
            norm = float(torch.linalg.vector_norm(gradients))
            if not (math.isfinite(norm) and math.isfinite(result.loss)):
                break
            if norm > group.max_grad_norm:
                gradients.mul_(group.max_grad_norm / (norm + 1e-6))
            self._adam[stage.group].step(rates[stage.group])
            if stage.pass_on is not None:
                stage.pass_on(result)
            applied.append(AppliedStage(stage, result, norm))
        return applied


class DeviceApplier:
    """For a GPU: computes all stages, then reads all results at once. A refused stage changes no parameter.

    Only `fetched` may read a tensor: `float(tensor)`, `if tensor`, indexing with a boolean mask and copies between host
    and device make the host wait, also inside a loss.
    """

    def __init__(self, algorithm: Algorithm, adam: Mapping[str, FlatAdam]) -> None:
        self._algorithm, self._adam = algorithm, adam
        self._gradients = Gradients(algorithm)
        self._zero = _number(0.0, next(iter(algorithm.groups.values())))
        self._largest_norm = {name: _number(group.max_grad_norm, group) for name, group in algorithm.groups.items()}

    def apply(self, stages: Sequence[Stage], minibatch: Minibatch, rates: Mapping[str, float]) -> list[AppliedStage]:
        differentiate, results, checks = self._gradients.of(minibatch), [], []
        total = self._zero
        for stage in stages:
            result = differentiate(stage)
            norm = torch.linalg.vector_norm(self._algorithm.groups[stage.group].parameters.gradients)
            # The sum over all stages so far is finite only if each number is. In float64 a sum of
            # finite float32 numbers does not overflow.
            total = total + norm + result.loss
            finite = torch.isfinite(total)
            self._clip(stage.group, norm)
            self._adam[stage.group].step(rates[stage.group], refused=~finite)
            if stage.pass_on is not None:
                stage.pass_on(result)
            results.append((stage, result))
            checks += [finite, norm]
        return _applied(results, checks)

    def _clip(self, name: str, norm: Tensor) -> None:
        """Clip the gradients of a group with the same arithmetic as `HostApplier`: in float64, then rounded."""
        group = self._algorithm.groups[name]
        if math.isinf(group.max_grad_norm):
            return
        norm, largest = norm.double(), self._largest_norm[name]
        scale = torch.where(norm > largest, largest / (norm + 1e-6), 1.0)
        gradients = group.parameters.gradients
        gradients.mul_(scale.to(gradients.dtype))


def _number(value: float, group: ParameterGroup) -> Tensor:
    """Return a float64 tensor on the device of a group."""
    return torch.tensor(value, dtype=torch.float64, device=group.parameters.values.device)


def _applied(results: Sequence[tuple[Stage, LossResult]], checks: list[Tensor]) -> list[AppliedStage]:
    """Read from the device which stages were applied, with their norms and metrics.

    Args:
        results: each stage with the result of its loss.
        checks: for each stage two scalars: whether it is finite, and its gradient norm.
    """
    if not results:
        return []
    device = checks[0].device
    metrics = [
        {name: value for name, value in result.metrics.items() if isinstance(value, Tensor) and value.device == device}
        for _, result in results
    ]
    host = iter(fetched([*checks, *(value for stage_metrics in metrics for value in stage_metrics.values())]))
    read_checks = [(bool(next(host)), float(next(host))) for _ in results]
    applied = []
    for (stage, result), (finite, norm), stage_metrics in zip(results, read_checks, metrics, strict=True):
        if not finite:
            break
        on_host = {name: next(host) for name in stage_metrics}
        applied.append(AppliedStage(stage, result._replace(metrics={**result.metrics, **on_host}), norm))
    return applied


def fetched(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copy tensors of one device to the host in one transfer, bit for bit."""
    parts = [tensor.detach().reshape(-1).view(torch.uint8) for tensor in tensors]
    copies = torch.split(torch.cat(parts).cpu(), [len(part) for part in parts])
    # Each part is cloned because a view as another dtype needs aligned memory.
    return [copy.clone().view(tensor.dtype).reshape(tensor.shape) for copy, tensor in zip(copies, tensors, strict=True)]
