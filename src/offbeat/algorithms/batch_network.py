"""Runs an actor-critic's network on prepared batches and on minibatches.

T is the unroll's length, B the columns of a batch. A minibatch has M rows with a decision and m rows without one, from
which only the critic learns.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from offbeat.algorithms.base import Batch, LossResult, Minibatch
from offbeat.algorithms.encoded import encoded_of
from offbeat.algorithms.minibatch_types import EvaluatedMinibatch, Outputs
from offbeat.algorithms.rows import (
    columns_of,
    network_inputs,
    no_decision_of,
    padded,
    row_ranges,
    valid_rows,
    value_rows,
)
from offbeat.algorithms.shards import even_ranges
from offbeat.core.types import INITIAL_STATE, NO_DECISION
from offbeat.models.actor_critic import ActorCritic
from offbeat.models.collective import ALONE, Collective
from offbeat.models.distributions import ActionDistribution
from offbeat.models.policy_network import CoreState
from offbeat.models.spec import PolicySpec


class FastOutputs(NamedTuple):
    """The outputs of a fast path for a batch, without gradients."""

    log_prob: Tensor
    """[M], of the recorded actions."""
    values: Tensor
    """[N], in units of the normalised return."""
    forwarded: object
    """Stands for this forward pass: `gradients` can use its activations again if the networks have not run since."""


class OnPolicyFastPath(Protocol):
    """The fast path of an on-policy algorithm (`fast_paths.register`). A call may overwrite the values of the last."""

    @abstractmethod
    def values(self, observation: Tensor) -> Tensor:
        """Return the critic's values, [M], of observations [M, inputs]."""
        ...

    @abstractmethod
    def evaluate(self, observation: Tensor, action: Tensor) -> FastOutputs:
        """Run policy and critic on observations [N, inputs]; the first M have recorded actions [M, ...]."""
        ...

    @abstractmethod
    def gradients(self, minibatch: Minibatch) -> LossResult:
        """Write all gradients of `OnPolicy.loss` for a minibatch; return the same result, with a float as the loss."""
        ...


class BatchNetwork:
    """A network that runs on prepared batches and minibatches, by its fast path where there is one.

    Values are in units of the normalised return.
    """

    def __init__(self, spec: PolicySpec, network: ActorCritic, fast: OnPolicyFastPath | None) -> None:
        self._spec, self._network, self._fast = spec, network, fast

    def log_prob_and_values(self, batch: Batch, collective: Collective = ALONE) -> tuple[Tensor, Tensor]:
        """Return the current policy's log-probabilities of the recorded actions, [T, B], and values, [T + 1, B].

        With shards, each learner of the collective computes those of some columns.
        """
        shape, action = batch["reward"].shape, batch["action"]
        if collective.shards > 1:
            lengths = (len(batch["reward"]), len(batch["observation"]))
            of_batch = self._by_columns(batch, lengths, self.log_prob_and_values, collective)
            return of_batch[0], of_batch[1]
        if self._fast:
            log_prob, fast_values, _ = self.evaluate_fast(batch)
            return log_prob, fast_values
        actions, masks = padded(action), padded(batch["mask"]) if self._spec.mask else None
        log_probs, values = [], []
        for rows in row_ranges(self._spec, batch):
            mask = None if masks is None else masks[rows]
            distribution, row_values = self._network.distribution_and_values(
                *network_inputs(self._spec, batch, rows),
                mask=mask,
                no_decision=no_decision_of(self._spec, batch, rows),
            )
            log_probs.append(distribution.log_prob(actions[rows]))
            values.append(row_values)
        return torch.cat(log_probs)[: shape.numel()].reshape(shape), _by_time(batch, values)

    def values(self, batch: Batch, collective: Collective = ALONE) -> Tensor:
        """Return the critic's values of a prepared batch, [T + 1, B]; with shards as `log_prob_and_values`."""
        if collective.shards > 1:
            lengths = (len(batch["observation"]),)
            [of_batch] = self._by_columns(batch, lengths, lambda part: [self.values(part)], collective)
            return of_batch
        if self._fast:
            return _by_time(batch, [self._fast.values(batch["observation"].flatten(0, 1))])
        values = [
            self._network.value(
                *network_inputs(self._spec, batch, rows), no_decision=no_decision_of(self._spec, batch, rows)
            )
            for rows in row_ranges(self._spec, batch)
        ]
        return _by_time(batch, values)

    def _by_columns(
        self,
        batch: Batch,
        lengths: Sequence[int],
        compute: Callable[[Batch], Sequence[Tensor]],
        collective: Collective,
    ) -> list[Tensor]:
        """Return tensors [length, B] for a prepared batch, from those that learners compute for their own columns.

        Args:
            batch: the batch.
            lengths: length of each tensor.
            compute: returns the tensors for a batch of some columns.
            collective: the learners. Each of the K shards is a range of columns; it may be empty.
        """
        cuts = even_ranges(batch["observation"].shape[1], collective.shards)
        vectors = batch["observation"].new_zeros(len(collective.own), sum(lengths) * len(cuts[0]), dtype=torch.float32)
        for vector, index in zip(vectors, collective.own, strict=True):
            if cuts[index]:
                parts = compute(columns_of(self._spec, batch, cuts[index]))
                torch.cat([part.flatten() for part in parts], out=vector[: sum(lengths) * len(cuts[index])])
        gathered = zip(collective.gather(vectors), cuts, strict=True)
        by_shard = [_unpacked(vector, lengths, len(cut)) for vector, cut in gathered if cut]
        return [torch.cat(parts, dim=1) for parts in zip(*by_shard, strict=True)]

    def evaluate_fast(self, batch: Batch) -> tuple[Tensor, Tensor, object]:
        """Run the fast path once on a prepared batch. Return log-probabilities [T, B], values [T + 1, B], and
        `FastOutputs.forwarded`.
        """
        assert self._fast is not None
        observation, action = (batch[name].flatten(0, 1) for name in ("observation", "action"))
        log_prob, values, forwarded = self._fast.evaluate(observation, action)
        return log_prob.reshape(batch["reward"].shape), _by_time(batch, [values]), forwarded

    def evaluate(self, batch: Batch) -> tuple[Outputs, Tensor]:
        """Run the network once on a prepared batch. Return the outputs for the valid rows, with gradients, and the
        values of all rows, [T + 1, B], without.
        """
        all_rows, valid = slice(0, batch["observation"].shape[:2].numel()), valid_rows(batch)
        mask = batch["mask"].flatten(0, 1)[valid] if self._spec.mask else None
        distribution, values = self._network.distribution_and_values(
            *network_inputs(self._spec, batch, all_rows),
            rows=valid,
            mask=mask,
            no_decision=no_decision_of(self._spec, batch, all_rows),
        )
        return Outputs(distribution, values[value_rows(batch, valid)]), _by_time(batch, [values.detach()])

    def outputs(self, minibatch: Minibatch) -> Outputs:
        """Return the outputs for a minibatch; an `EvaluatedMinibatch` already has them."""
        if isinstance(minibatch, EvaluatedMinibatch):
            return minibatch.outputs
        encoded, rows = encoded_of(self._spec, minibatch), minibatch["rows"]
        mask = minibatch["mask"] if self._spec.mask else None
        no_decision = minibatch[NO_DECISION] if self._spec.no_decision else None
        core_state = CoreState(minibatch[INITIAL_STATE], minibatch["resets"]) if self._spec.recurrent else None
        distribution, values = self._network.distribution_and_values(
            minibatch["observation"], encoded, core_state, rows=rows, mask=mask, no_decision=no_decision
        )
        return Outputs(distribution, values[minibatch["valued"]] if self._spec.recurrent else values)


def recomputed_log_prob(distribution: ActionDistribution, batch: Batch) -> Tensor:
    """Return log-probabilities of the recorded actions, [T, B], without gradients; in invalid rows behavior_log_prob.

    Args:
        distribution: action distribution of the valid rows.
        batch: with action, valid and behavior_log_prob.
    """
    valid, behavior = valid_rows(batch), batch["behavior_log_prob"]
    log_prob = distribution.log_prob(batch["action"].flatten(0, 1)[valid]).detach()
    recomputed: Tensor = behavior.flatten().clone().index_copy_(0, valid, log_prob).reshape(behavior.shape)
    return recomputed


def _by_time(batch: Batch, values: list[Tensor]) -> Tensor:
    """Return a copy of values of consecutive rows, [T + 1, B]."""
    return torch.cat(values).reshape(batch["observation"].shape[:2])


def _unpacked(vector: Tensor, lengths: Sequence[int], columns: int) -> list[Tensor]:
    """Return the tensors [length, columns] that lie one after the other in a vector, which may be longer."""
    sizes = [length * columns for length in lengths]
    return [part.view(-1, columns) for part in torch.split(vector[: sum(sizes)], sizes)]
