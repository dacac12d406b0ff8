"""The gradients of a stage: of a whole minibatch, or of its shards.

With K shards, each learner of the collective computes the gradients of its own shards. One collective operation gathers
those of all K, with the results of the loss. Each learner adds them in a fixed tree. So the bits depend on K, but not
on the number of learners.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from offbeat.algorithms.base import Algorithm, LossResult, Minibatch, Shard, Stage
from offbeat.algorithms.returned import require_gradients, require_loss_result
from offbeat.workers.shard_vectors import VectorLayout

Differentiate = Callable[[Stage], LossResult]
"""Writes a stage's gradients into the buffer of its group; returns the result of its loss, detached."""


class OwnShard(NamedTuple):
    """A shard that this learner computes."""

    rows: int
    """Number of its rows; may be 0."""
    minibatch: Minibatch
    """Its part of the minibatch. Without rows it is that of another shard, for the names of the results."""


class Gradients:
    """Computes the gradients of an algorithm's stages."""

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm = algorithm
        self._buffers: dict[str, Tensor] = {}
        """By stage: the vectors of this learner's shards. Kept, because new large buffers cause page faults."""

    def of(self, minibatch: Minibatch) -> Differentiate:
        """Return the function that differentiates each stage of one update."""
        collective = self._algorithm.collective
        if collective.shards == 1:
            return partial(self._of_whole, minibatch)
        shards = self._algorithm.cut(minibatch, collective.shards)
        largest = max(shards, key=lambda shard: shard.size)
        own = [shards[index] for index in collective.own]
        return partial(
            self._of_shards,
            shards,
            [OwnShard(shard.size, (shard if shard.size else largest).minibatch()) for shard in own],
        )

    def _of_whole(self, minibatch: Minibatch, stage: Stage) -> LossResult:
        return differentiate(stage, minibatch, self._of_group(stage))

    def _of_shards(self, shards: Sequence[Shard], own: Sequence[OwnShard], stage: Stage) -> LossResult:
        gradients, most_rows = self._of_group(stage), max(shard.size for shard in shards)
        first, vectors = None, gradients[:0]
        for index, shard in enumerate(own):
            result = differentiate(stage, shard.minibatch, gradients)
            layout = VectorLayout.of(stage, result, len(gradients))
            if first is None:
                first, vectors = layout, self._vectors(stage, len(own), layout.width(most_rows))
            layout.require_same(first)
            if shard.rows:
                layout.write(vectors[index], gradients, result, shard.rows)
            else:
                layout.write_empty(vectors[index])
        assert first is not None  # each learner has a shard of its own
        return first.combined(self._algorithm.collective.gather(vectors), gradients, shards)

    def _of_group(self, stage: Stage) -> Tensor:
        """Return the buffer for the gradients of a stage."""
        return self._algorithm.groups[stage.group].parameters.gradients

    def _vectors(self, stage: Stage, count: int, width: int) -> Tensor:
        """Return an array for the vectors of a learner's shards, [count, width], contiguous."""
        size, buffer = count * width, self._buffers.get(stage.name)
        if buffer is None or len(buffer) < size:
            buffer = self._buffers[stage.name] = self._of_group(stage).new_zeros(size)
        return buffer[:size].view(count, width)


def differentiate(stage: Stage, minibatch: Minibatch, gradients: Tensor) -> LossResult:
    """Write a stage's gradients into `gradients`, the buffer of its group; return its result, detached."""
    if stage.gradients is not None:
        return stage.gradients(minibatch)
    gradients.zero_()
    result = require_loss_result(stage.loss(minibatch), stage.loss)
    loss = require_gradients(result.loss, stage.loss)
    loss.backward()  # type: ignore[no-untyped-call]
    return LossResult(loss.detach(), _detached(result.metrics), _detached(result.outputs))


def _detached(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.detach() if isinstance(value, Tensor) else value for name, value in values.items()}
