"""The vector that a learner gives to the collective for each of its shards: gradients and the result of the loss.

    gradients | loss, metrics, outputs that are means | outputs that are maxima | outputs with a value for each row

Gradients and means are multiplied by the number of rows M_k of the shard, so that their sums over the shards, divided
by M, are those of the minibatch. The values of rows are padded to the largest shard. Nothing here waits for a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from offbeat.algorithms.base import LossResult, Shard, Stage
from offbeat.core.errors import RunFailed
from offbeat.metrics.checks import metric_value
from offbeat.models.collective import tree_sum


@dataclass(frozen=True)
class VectorLayout:
    """The parts of the vectors of a stage. It is the same for all shards."""

    stage: str
    gradients: int
    """Number of parameters of the stage's group."""
    metrics: tuple[str, ...]
    means: tuple[str, ...]
    """Outputs that are means over the rows."""
    maxima: tuple[str, ...]
    """Outputs that are maxima over the rows."""
    by_row: tuple[str, ...]
    """Outputs with a value for each row."""

    @classmethod
    def of(cls, stage: Stage, result: LossResult, gradients: int) -> Self:
        """Return the layout for the results of a stage."""
        by_row = tuple(name for name, value in result.outputs.items() if not _is_scalar(value))
        scalars = [name for name in result.outputs if name not in by_row]
        means = tuple(name for name in scalars if name not in stage.maxima)
        maxima = tuple(name for name in scalars if name in stage.maxima)
        return cls(stage.name, gradients, tuple(result.metrics), means, maxima, by_row)

    def require_same(self, other: Self) -> None:
        """Refuse results of another kind than those of another shard.

        Raises:
            RunFailed: they have other names.
        """
        if self != other:
            raise RunFailed(
                f"the loss of the stage {self.stage} returns {self._names} for a shard, but {other._names} for "
                "another: return the same metrics and outputs for all, or pass --set shards=1"
            )

    @property
    def _names(self) -> str:
        return ", ".join((*self.metrics, *self.means, *self.maxima, *self.by_row)) or "no metrics"

    @property
    def added(self) -> int:
        """Number of the first entries, which are added over the shards."""
        return self.gradients + 1 + len(self.metrics) + len(self.means)

    def width(self, most_rows: int) -> int:
        """Return the number of entries, for shards of at most `most_rows` rows."""
        return self.added + len(self.maxima) + len(self.by_row) * most_rows

    # --- of one shard ---------------------------------------------------------------------------------------

    def write(self, vector: Tensor, gradients: Tensor, result: LossResult, rows: int) -> None:
        """Write a shard with `rows` rows into its vector."""
        outputs = result.outputs
        torch.mul(gradients, rows, out=vector[: self.gradients])
        means = [("loss", result.loss), *result.metrics.items(), *((name, outputs[name]) for name in self.means)]
        _fill(vector[self.gradients : self.added], means)
        vector[self.gradients : self.added].mul_(rows)
        _fill(vector[self.added :], [(name, outputs[name]) for name in self.maxima])
        for place, name in zip(self._places(len(vector)), self.by_row, strict=True):
            vector[place][:rows] = self._checked(name, outputs[name], rows)

    def write_empty(self, vector: Tensor) -> None:
        """Write a shard without rows: it adds nothing to any result."""
        vector[: self.added] = 0
        vector[self.added : self.added + len(self.maxima)] = -math.inf

    def _places(self, width: int) -> list[slice]:
        """Return the places of the outputs by row in a vector."""
        first, count = self.added + len(self.maxima), len(self.by_row)
        most = (width - first) // max(1, count)
        return [slice(first + index * most, first + (index + 1) * most) for index in range(count)]

    def _checked(self, name: str, values: Any, rows: int) -> Tensor:
        if not isinstance(values, Tensor) or values.shape != (rows,):
            shape = list(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise RunFailed(
                f"the output {name} of the stage {self.stage} is {shape} for a shard of {rows} rows, but with shards "
                f"only scalars and tensors [{rows}] can be combined: pass --set shards=1, or change the loss"
            )
        return values

    # --- of all shards --------------------------------------------------------------------------------------

    def combined(self, vectors: Tensor, gradients: Tensor, shards: Sequence[Shard]) -> LossResult:
        """Write the gradients of the whole minibatch into `gradients`, and return the result of its loss.

        Args:
            vectors: those of all shards, [K, width].
            gradients: the buffer of the stage's group.
            shards: the shards of the minibatch.
        """
        sums, total = tree_sum(vectors[:, : self.added]), sum(shard.size for shard in shards)
        torch.div(sums[: self.gradients], total, out=gradients)
        loss, *means = (sums[self.gradients :] / total).unbind()
        maxima = vectors[:, self.added : self.added + len(self.maxima)].amax(dim=0).unbind()
        metrics, outputs = means[: len(self.metrics)], means[len(self.metrics) :]
        return LossResult(
            loss,
            dict(zip(self.metrics, metrics, strict=True)),
            {
                **dict(zip(self.means, outputs, strict=True)),
                **dict(zip(self.maxima, maxima, strict=True)),
                **{
                    name: _joined(vectors[:, place], shards, total)
                    for name, place in zip(self.by_row, self._places(vectors.shape[1]), strict=True)
                },
            },
        )


def _is_scalar(value: Any) -> bool:
    return isinstance(value, Real) or (isinstance(value, Tensor | np.ndarray) and not value.ndim)


def _fill(vector: Tensor, values: Sequence[tuple[str, Any]]) -> None:
    """Write scalars, with their names, into the first entries of a vector."""
    for index, (name, value) in enumerate(values):
        if isinstance(value, Tensor) and value.numel() == 1:
            vector[index].copy_(value.reshape(()), non_blocking=True)
        else:
            vector[index].fill_(metric_value(name, value))


def _joined(values: Tensor, shards: Sequence[Shard], rows: int) -> Tensor:
    """Return the values of all rows in the order of the minibatch, [M], from those of each shard, [K, most rows]."""
    joined = values.new_empty(rows)
    for of_shard, shard in zip(values, shards, strict=True):
        joined[shard.rows] = of_shard[: shard.size]
    return joined
