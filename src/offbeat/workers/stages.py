"""The stages of one update: differentiate, refuse what is not finite, clip, Adam.

A stage is applied if its loss and its gradients are finite, and those of the earlier stages of the update too. There
are two ways to decide that, with the same bits. `HostStages` reads two numbers per stage: on a CPU reading is free. On
another device the host waits at each read until the device has finished all its work. `DeviceStages` therefore leaves
the decision on the device and reads once, at the end of the update.

This is about the update itself. Making a minibatch may read: with a core, the number of its rows is not known before.
The update before has then ended, so the host waits for little. `Stage.after` and the priorities of a replay come after
the read of the update.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from offbeat.algorithms.base import Algorithm, LossResult, Minibatch, ParameterGroup, Stage
from offbeat.models.flat import FlatAdam


class AppliedStage(NamedTuple):
    """A stage that has changed its parameters."""

    stage: Stage
    result: LossResult
    """What its loss returned. Metrics are on the host."""
    norm: float
    """Norm of the gradients before they were clipped."""


class Stages(Protocol):
    """Applies the stages of an update."""

    def apply(self, stages: Sequence[Stage], minibatch: Minibatch, rates: Mapping[str, float]) -> list[AppliedStage]:
        """Change the group of each stage, in order, with the learning rate of the group.

        Returns:
            The stages that were applied: all, or those before the first that is not finite.
        """
        ...


def make_stages(algorithm: Algorithm, adam: Mapping[str, FlatAdam]) -> Stages:
    """Return what applies the stages of an algorithm, with one optimizer for each group."""
    on_host = all(group.parameters.values.is_cpu for group in algorithm.groups.values())
    return HostStages(algorithm, adam) if on_host else DeviceStages(algorithm, adam)


class HostStages:
    """Reads the norm and the loss of each stage before it is applied."""

    def __init__(self, algorithm: Algorithm, adam: Mapping[str, FlatAdam]) -> None:
        self._algorithm, self._adam = algorithm, adam

    def apply(self, stages: Sequence[Stage], minibatch: Minibatch, rates: Mapping[str, float]) -> list[AppliedStage]:
        collective, applied = self._algorithm.collective, []
        for stage in stages:
            group = self._algorithm.groups[stage.group]
            gradients = group.parameters.gradients
            result = differentiate(stage, minibatch, gradients)
            norm = float(torch.linalg.vector_norm(collective.sum_(gradients)))
            if not collective.all_(math.isfinite(norm) and math.isfinite(result.loss)):
                break
            if norm > group.max_grad_norm:
                gradients.mul_(group.max_grad_norm / (norm + 1e-6))
            self._adam[stage.group].step(rates[stage.group])
            if stage.pass_on is not None:
                stage.pass_on(result)
            applied.append(AppliedStage(stage, result, norm))
        return applied


class DeviceStages:
    """Computes all stages before anything is read. A stage that is refused changes nothing.

    Only `fetched` may read a tensor. In a loss too, `float(tensor)`, `if tensor`, indexing with a boolean mask and
    copies between host and device make the host wait.
    """

    def __init__(self, algorithm: Algorithm, adam: Mapping[str, FlatAdam]) -> None:
        self._algorithm, self._adam = algorithm, adam
        self._zero = _number(0.0, next(iter(algorithm.groups.values())))
        self._largest_norm = {name: _number(group.max_grad_norm, group) for name, group in algorithm.groups.items()}

    def apply(self, stages: Sequence[Stage], minibatch: Minibatch, rates: Mapping[str, float]) -> list[AppliedStage]:
        collective, results, checks = self._algorithm.collective, [], []
        total = self._zero
        for stage in stages:
            gradients = self._algorithm.groups[stage.group].parameters.gradients
            result = differentiate(stage, minibatch, gradients)
            norm = torch.linalg.vector_norm(collective.sum_(gradients))
            # A sum of numbers is finite if all of them are: those of all learners, and of the stages so far. In
            # float64 it does not overflow.
            total = collective.sum_(total + norm + result.loss)
            finite = torch.isfinite(total)
            self._clip(stage.group, norm)
            self._adam[stage.group].step(rates[stage.group], refused=~finite)
            if stage.pass_on is not None:
                stage.pass_on(result)
            results.append((stage, result))
            checks += [finite, norm]
        return _applied(results, checks)

    def _clip(self, name: str, norm: Tensor) -> None:
        """Scale the gradients of a group, with the arithmetic of `HostStages`: in float64, then rounded."""
        group = self._algorithm.groups[name]
        if math.isinf(group.max_grad_norm):
            return
        norm, largest = norm.double(), self._largest_norm[name]
        scale = torch.where(norm > largest, largest / (norm + 1e-6), 1.0)
        gradients = group.parameters.gradients
        gradients.mul_(scale.to(gradients.dtype))


def _number(value: float, group: ParameterGroup) -> Tensor:
    """Return a float64 on the device of a group."""
    return torch.tensor(value, dtype=torch.float64, device=group.parameters.values.device)


def _applied(results: Sequence[tuple[Stage, LossResult]], checks: list[Tensor]) -> list[AppliedStage]:
    """Read whether each stage was applied, with its norm and its metrics.

    Args:
        results: what the loss of each stage returned.
        checks: for each stage whether all was finite, and the norm.
    """
    if not results:
        return []
    device = checks[0].device
    metrics = [
        {name: value for name, value in result.metrics.items() if isinstance(value, Tensor) and value.device == device}
        for _, result in results
    ]
    host = iter(fetched([*checks, *(value for of_stage in metrics for value in of_stage.values())]))
    verdicts = [(bool(next(host)), float(next(host))) for _ in results]
    applied = []
    for (stage, result), (finite, norm), of_stage in zip(results, verdicts, metrics, strict=True):
        if not finite:
            break
        on_host = {name: next(host) for name in of_stage}
        applied.append(AppliedStage(stage, result._replace(metrics={**result.metrics, **on_host}), norm))
    return applied


def fetched(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return copies of tensors of one device in the memory of the host, in one transfer, bit for bit."""
    parts = [tensor.detach().reshape(-1).view(torch.uint8) for tensor in tensors]
    copies = torch.split(torch.cat(parts).cpu(), [len(part) for part in parts])
    # Each copy is cloned, as the bytes of a number must lie at a multiple of its size.
    return [copy.clone().view(tensor.dtype).reshape(tensor.shape) for copy, tensor in zip(copies, tensors, strict=True)]


def differentiate(stage: Stage, minibatch: Minibatch, gradients: Tensor) -> LossResult:
    """Put a stage's gradients into its group's buffer; return the loss, detached, and what came with it."""
    if stage.gradients is not None:
        return stage.gradients(minibatch)
    gradients.zero_()
    result = stage.loss(minibatch)
    if not isinstance(result.loss, Tensor):
        return result
    result.loss.backward()  # type: ignore[no-untyped-call]
    return result._replace(loss=result.loss.detach())
