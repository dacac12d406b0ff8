"""The base class of algorithms on a replay: minibatches from sampled rows, priorities, and published arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offbeat.algorithms.base import Batch, LossResult, Minibatch, ParameterGroup, Stage
from offbeat.algorithms.checkpointed import Checkpointed
from offbeat.algorithms.replay_config import ReplayConfig
from offbeat.algorithms.sequences import Network, forward_sequences, sequence_errors, transitions_of
from offbeat.algorithms.statistics import Statistics
from offbeat.config.config import Config
from offbeat.core.seeding import derive_seed
from offbeat.core.types import Array, Field
from offbeat.memory.replay.sequences import STATE
from offbeat.models.collective import ALONE, Collective
from offbeat.models.flat import FlatParameters
from offbeat.models.published import published_layout
from offbeat.models.spec import PolicySpec
from offbeat.models.storage import PrivateStorage, Storage
from offbeat.models.tensor_inputs import flatten_tensors

Settings = TypeVar("Settings", bound=ReplayConfig)


class OffPolicy(Checkpointed, Generic[Settings]):
    """All of `base.ReplayAlgorithm` but `start` and what an algorithm makes in `build`.

    An algorithm may replace any public method. M is the number of transitions in a minibatch.
    """

    config_class: type[Settings]
    """The class of its settings."""
    groups: Mapping[str, ParameterGroup]
    stages: tuple[Stage, ...]
    threads: int = 0
    collective: Collective = ALONE

    policy: FlatParameters
    """The network that acts, with the names and the order of `published.parameter_shapes`; set by `build`."""
    flags: dict[str, Tensor]
    """Other published tensors, by their names in `published.published_layout`; set by `build`."""
    errors: Tensor
    """[M]: absolute errors of the values of the last minibatch, before its update; see `store_errors`."""

    def __init__(
        self, config: Settings, spec: PolicySpec, *, seed: int, device: str = "cpu", storage: Storage | None = None
    ) -> None:
        """Make new networks.

        Args:
            config: the settings.
            spec: the policy, from `config.policy_spec`.
            seed: of the initial weights.
            device: where the learner's tensors are.
            storage: holds what is learned; None: in this process.
        """
        self.config, self.spec, self.device = config, spec, device
        storage = storage or PrivateStorage()
        self.errors = torch.zeros(0)
        self._layout = published_layout(spec)
        self._statistics = Statistics(spec, storage, returns=False, device=device)
        self.build(torch.Generator().manual_seed(derive_seed(seed, "init")), storage)

    def build(self, generator: torch.Generator, storage: Storage) -> None:
        """Make the networks, and set `policy`, `flags`, `groups` and `stages`.

        Args:
            generator: of the initial weights.
            storage: must have all tensors that learning changes: networks by `FlatParameters`, others by `register`.
        """
        raise NotImplementedError

    @classmethod
    def for_run(cls, config: Config, spec: PolicySpec, device: str, storage: Storage | None = None) -> Self:
        """Make the algorithm of a run."""
        settings = config.settings_as(cls.config_class)
        return cls(settings, spec, seed=config.run.seed, device=device, storage=storage)

    def fields(self) -> list[Field]:
        return [Field(STATE, (self.spec.state_size,), "float32", per="unroll")] if self.spec.recurrent else []

    # --- minibatches ----------------------------------------------------------------------------------------

    def minibatch(self, sampled: Batch, random: np.random.Generator) -> Minibatch:  # noqa: ARG002
        """Return the minibatch of an update, the input of `forward` and the losses.

        Args:
            sampled: as `base.ReplayAlgorithm.minibatch` is given it.
            random: draws what is random in the minibatch.

        Returns:
            action [M, ...], reward and discount [M]; with prioritized, weight [M]; with a mask, mask and next_mask
            [M, logits]; and the observations, which `forward` reads.
        """
        return self._of_sequences(sampled) if self.spec.recurrent else self._of_rows(sampled)

    @torch.no_grad()
    def _of_rows(self, sampled: Batch) -> dict[str, Any]:
        """Flatten and normalise observations to [M, inputs]; images, and the rest, stay as they were sampled."""
        names = ("action", "reward", "discount", *(("weight",) if self.config.prioritized else ()))
        rows = {name: sampled[name] for name in names}
        for name, prefix in (("observation", ""), ("next_observation", "next/")):
            rows[name] = self._statistics.normalized(flatten_tensors(self.spec.vectors, sampled, prefix))
            rows |= {f"{name}/{leaf.name}": sampled[prefix + leaf.name] for leaf in self.spec.encoded}
        if self.spec.mask:
            rows["mask"], rows["next_mask"] = sampled[self.spec.mask], sampled["next/" + self.spec.mask]
        return rows

    @torch.no_grad()
    def _of_sequences(self, sampled: Batch) -> dict[str, Any]:
        """Do the same with all rows of the sequences, [(L + 1) * B, ...], and add where the M transitions are."""
        resets, spec = sampled["resets"], self.spec
        found: dict[str, Any] = transitions_of(sampled, weighted=self.config.prioritized)
        leaves = {leaf.name: sampled[leaf.name].flatten(0, 1) for leaf in spec.observation}
        vector = flatten_tensors(spec.vectors, {**leaves, "reward": resets.flatten()})  # as long as these
        if spec.mask:
            allowed = leaves[spec.mask][self.config.rows_before * resets.shape[1] :]
            found["mask"], found["next_mask"] = allowed[found["rows"]], allowed[found["next_rows"]]
        return {
            **found,
            "observation": self._statistics.normalized(vector),
            "encoded": {leaf.name: leaves[leaf.name] for leaf in spec.encoded},
            "resets": resets,
            "state": sampled[STATE],
        }

    def forward(self, network: Network, minibatch: Minibatch, name: str, *, stored: bool = True) -> Tensor:
        """Return the output of a network for the 'observation' or 'next_observation' of each transition, [M, ...].

        Args:
            network: `Body.forward` or `PolicyNetwork.forward_with_state`.
            minibatch: as `minibatch` returns it.
            name: which of the two.
            stored: whether a core starts with the stored state, which is that of the policy; else with zeros.
        """
        if not self.spec.recurrent:
            encoded = {leaf.name: minibatch[f"{name}/{leaf.name}"] for leaf in self.spec.encoded}
            return network(minibatch[name], encoded, None)[0]
        state = minibatch["state"] if stored else torch.zeros_like(minibatch["state"])
        outputs = forward_sequences(network, minibatch, state, self.config.rows_before)
        return outputs[minibatch["rows" if name == "observation" else "next_rows"]]

    def weight_of(self, minibatch: Minibatch) -> Tensor | None:
        """Return the weight of each transition in the loss of values, [M]; None where all weigh the same."""
        weight: Tensor | None = minibatch["weight"] if self.config.prioritized else None
        return weight

    # --- priorities -----------------------------------------------------------------------------------------

    def store_errors(self, result: LossResult) -> None:
        """Store `outputs["errors"]` of a loss, [M] and not negative, in `errors`; nothing without prioritized.

        To be called by the `Stage.after` of the loss that values are learned with.
        """
        if self.config.prioritized:
            self.errors = result.outputs["errors"]

    def priorities(self, minibatch: Minibatch) -> Array:
        return self.priorities_of(self.errors, minibatch)

    def priorities_of(self, errors: Tensor, minibatch: Minibatch) -> Array:
        """Return one priority for each item that was sampled: a transition, [M], or with a core a sequence, [B].

        Args:
            errors: of the transitions, [M], not negative.
            minibatch: which they are of.
        """
        if self.spec.recurrent:
            errors = sequence_errors(errors, minibatch["column"], len(minibatch["state"]))
        # On another device the host waits a second time here. The errors are outputs, which stay on the device; but the
        # update has ended, and nothing else is waited for.
        priorities: Array = errors.cpu().numpy()
        return priorities

    # --- after the updates ----------------------------------------------------------------------------------

    def finish(self, observations: Batch) -> dict[str, float]:
        if self.spec.normalize:
            rows = flatten_tensors(self.spec.vectors, observations)
            self._statistics.update(rows, rows.new_empty(0), self.collective)
        return {}

    def write_published(self, vector: NDArray[np.float32]) -> None:
        vector[: self.policy.layout.size] = self.policy.values.cpu().numpy()
        arrays = self._layout.views(vector)
        for name, values in self._statistics.published.items():
            arrays[name][:] = values
        for name, flag in self.flags.items():
            arrays[name][:] = flag.cpu().numpy()
