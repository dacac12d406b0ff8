"""The base class of algorithms on a replay: minibatches of samples, priorities, and published arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from offbeat.algorithms.base import Batch, LossResult, Minibatch, ParameterGroup, Shard, Stage
from offbeat.algorithms.checkpointed import Checkpointed
from offbeat.algorithms.encoded import encoded_of
from offbeat.algorithms.replay_config import ReplayConfig
from offbeat.algorithms.sequences import cut_sequences, forward_sequences, sequence_errors, transitions_of
from offbeat.algorithms.shards import cut_rows
from offbeat.algorithms.statistics import Statistics
from offbeat.config.config import Config
from offbeat.core.errors import ConfigError, RunFailed
from offbeat.core.seeding import derive_seed
from offbeat.core.types import INITIAL_STATE, Array, Field
from offbeat.models.collective import ALONE, Collective
from offbeat.models.flat import FlatParameters
from offbeat.models.network_arrays import ENCODED
from offbeat.models.published import extra_shapes, published_layout, require_published
from offbeat.models.spec import PolicySpec
from offbeat.models.storage import PrivateStorage, Storage
from offbeat.models.tensor_inputs import flatten_tensors

NO_ERRORS = torch.zeros(0)
Settings = TypeVar("Settings", bound=ReplayConfig)


class OffPolicy(Checkpointed, Generic[Settings]):
    """Implements `base.ReplayAlgorithm`, except for `start` and `build`.

    A subclass may override any public method. M is the number of transitions in a minibatch.
    """

    config_class: type[Settings]
    """The class of the algorithm's settings."""
    groups: Mapping[str, ParameterGroup]
    stages: tuple[Stage, ...]
    threads: int = 0
    collective: Collective = ALONE

    policy: FlatParameters
    """Parameters of the network that acts, named and ordered as in `published.parameter_shapes`; set by `build`."""
    published_extras: dict[str, Tensor]
    """Tensors that are published besides the policy and the observation statistics, by their names in
    `published.extra_shapes`; set by `build`.
    """
    errors: Tensor
    """[M]: absolute errors of the values of the last minibatch, before its update. Set by `store_errors`."""

    def __init__(
        self, config: Settings, spec: PolicySpec, *, seed: int, device: str = "cpu", storage: Storage | None = None
    ) -> None:
        """Make new networks.

        Args:
            config: the settings.
            spec: the policy, from `config.policy_spec`.
            seed: seed of the initial weights.
            device: device of the learner's tensors.
            storage: registers the tensors that learning changes; None: private to this process.

        Raises:
            ConfigError: the subclass lacks a method, or what `build` has set is incomplete or contradicts the spec.
        """
        _require_methods(type(self))
        self.config, self.spec, self.device = config, spec, device
        self._storage = storage = storage or PrivateStorage()
        self.errors = NO_ERRORS
        self._layout = published_layout(spec)
        self._statistics = Statistics(spec, storage, returns=False, device=device)
        self.build(torch.Generator().manual_seed(derive_seed(seed, "init")), storage)
        _require_built(self)
        require_published(self.policy.layout, spec, type(self))

    def build(self, generator: torch.Generator, storage: Storage) -> None:
        """Make the networks, and set `policy`, `published_extras`, `groups` and `stages`.

        Args:
            generator: generator of the initial weights.
            storage: all tensors that learning changes must be registered here: networks with `FlatParameters`, other
                tensors with `storage.register`.
        """
        raise NotImplementedError  # `_require_methods` has refused a subclass without it

    @classmethod
    def for_run(cls, config: Config, spec: PolicySpec, device: str, storage: Storage | None = None) -> Self:
        """Make the algorithm of a run."""
        settings = config.settings_as(cls.config_class)
        return cls(settings, spec, seed=config.run.seed, device=device, storage=storage)

    def fields(self) -> list[Field]:
        return [Field(INITIAL_STATE, (self.spec.state_size,), "float32", per="unroll")] if self.spec.recurrent else []

    # --- minibatches ----------------------------------------------------------------------------------------

    def minibatch(self, sampled: Batch, random: np.random.Generator) -> Minibatch:  # noqa: ARG002
        """Return the minibatch of an update, the input of `forward` and the losses.

        Args:
            sampled: see `base.ReplayAlgorithm.minibatch`.
            random: the random stream of this learning step, for noise in the minibatch.

        Returns:
            action [M, ...], reward and discount [M]; with prioritized, weight [M]; with a mask, mask and next_mask
            [M, logits]; and the observations, which `forward` reads.
        """
        return self._minibatch_of_sequences(sampled) if self.spec.recurrent else self._minibatch_of_rows(sampled)

    @torch.no_grad()
    def _minibatch_of_rows(self, sampled: Batch) -> dict[str, Any]:
        """Flatten and normalise observations to [M, inputs]. Encoded leaves and all other arrays are not changed."""
        names = ("action", "reward", "discount", *(("weight",) if self.config.prioritized else ()))
        rows = {name: sampled[name] for name in names}
        for name, prefix in (("observation", ""), ("next_observation", "next/")):
            rows[name] = self._statistics.normalized(flatten_tensors(self.spec.observed_vectors, sampled, prefix))
            rows |= {f"{name}/{leaf.name}": sampled[prefix + leaf.name] for leaf in self.spec.encoded}
        if self.spec.mask:
            rows["mask"], rows["next_mask"] = sampled[self.spec.mask], sampled["next/" + self.spec.mask]
        return rows

    @torch.no_grad()
    def _minibatch_of_sequences(self, sampled: Batch) -> dict[str, Any]:
        """Flatten and normalise the observations of all rows of the sequences, [(L + 1) * B, ...].

        The minibatch also has the row indices of the M transitions after the burn-in, see `sequences.transitions_of`.
        """
        resets, spec = sampled["resets"], self.spec
        transitions: dict[str, Any] = transitions_of(sampled, weighted=self.config.prioritized)
        leaves = {leaf.name: sampled[leaf.name].flatten(0, 1) for leaf in spec.observation}
        # Without leaves to flatten, `flatten_tensors` gets the number of rows from "reward".
        vector = flatten_tensors(spec.vectors, {**leaves, "reward": resets.flatten()})
        if spec.mask:
            allowed = leaves[spec.mask][self.config.rows_before * resets.shape[1] :]
            transitions["mask"] = allowed[transitions["rows"]]
            transitions["next_mask"] = allowed[transitions["next_rows"]]
        return {
            **transitions,
            "observation": self._statistics.normalized(vector),
            **{ENCODED + leaf.name: leaves[leaf.name] for leaf in spec.encoded},
            "resets": resets,
            INITIAL_STATE: sampled[INITIAL_STATE],
        }

    def cut(self, minibatch: Minibatch, shards: int) -> Sequence[Shard]:
        if self.spec.recurrent:
            return cut_sequences(minibatch, shards)
        return cut_rows(minibatch, len(minibatch["reward"]), shards)

    def forward(self, network: nn.Module, minibatch: Minibatch, name: str, *, stored: bool = True) -> Tensor:
        """Return the output of a network for the 'observation' or 'next_observation' of each transition, [M, ...].

        Args:
            network: a `PolicyNetwork`, or a `Body`.
            minibatch: as `minibatch` returns it.
            name: 'observation' or 'next_observation'.
            stored: whether a core starts with the stored state, which is that of the policy; otherwise with zeros.
        """
        if not self.spec.recurrent:
            encoded = {leaf.name: minibatch[f"{name}/{leaf.name}"] for leaf in self.spec.encoded}
            output: Tensor = network(minibatch[name], encoded, None)[0]
            return output
        state = minibatch[INITIAL_STATE] if stored else torch.zeros_like(minibatch[INITIAL_STATE])
        encoded = encoded_of(self.spec, minibatch)
        outputs = forward_sequences(network, minibatch, encoded, state, self.config.rows_before)
        return outputs[minibatch["rows" if name == "observation" else "next_rows"]]

    def weight_of(self, minibatch: Minibatch) -> Tensor | None:
        """Return the weight of each transition in the loss of the values, [M]; None if all weights are 1."""
        weight: Tensor | None = minibatch["weight"] if self.config.prioritized else None
        return weight

    # --- priorities -----------------------------------------------------------------------------------------

    def store_errors(self, result: LossResult) -> None:
        """With prioritized, store `outputs["errors"]` of a loss, [M] and not negative, in `errors`.

        Call it in `Stage.after` of the stage that learns the values.
        """
        if self.config.prioritized:
            self.errors = result.outputs.get("errors", NO_ERRORS)

    def priorities(self, minibatch: Minibatch) -> Array:
        shape, expected = list(self.errors.shape), len(minibatch["reward"])
        if shape != [expected]:
            raise RunFailed(
                f"{type(self).__qualname__} has errors of shape {shape} for the {expected} transitions of a minibatch: "
                'prioritized needs the absolute error of each: let the loss of the values return outputs["errors"], '
                "[M], and call store_errors(result) in Stage.after of its stage, or pass --set prioritized=false"
            )
        return self.priorities_of(self.errors, minibatch)

    def priorities_of(self, errors: Tensor, minibatch: Minibatch) -> Array:
        """Return one priority for each sampled item: for each transition, [M], or with a core for each sequence, [B].

        Args:
            errors: errors of the transitions, [M], not negative.
            minibatch: the minibatch of these transitions.
        """
        if self.spec.recurrent:
            errors = sequence_errors(errors, minibatch["column"], len(minibatch[INITIAL_STATE]))
        # On a GPU the host waits for this copy, in addition to its one wait at the end of the update.
        priorities: Array = errors.cpu().numpy()
        return priorities

    # --- after the updates ----------------------------------------------------------------------------------

    def finish(self, observations: Batch) -> dict[str, float]:
        if self.spec.normalize and self.spec.vectors:  # images for an encoder are not normalised
            rows = flatten_tensors(self.spec.vectors, observations)
            self._statistics.update(rows, rows.new_empty(0))
        return {}

    def write_published(self, vector: NDArray[np.float32]) -> None:
        vector[: self.policy.layout.size] = self.policy.values.cpu().numpy()
        arrays = self._layout.views(vector)
        for name, values in self._statistics.published.items():
            arrays[name][:] = values
        for name, extra in self.published_extras.items():
            arrays[name][:] = extra.cpu().numpy()


# --- checks of a subclass -------------------------------------------------------------------------------------

_OWN_METHODS = {
    "build": "build(generator, storage), which makes the networks and sets policy, published_extras, groups and stages",
    "start": "start(progress), which returns the learning rate of each parameter group",
    "arrays": "arrays(), which returns all that is learned, by name",
}


def _require_methods(owner: type[OffPolicy[Any]]) -> None:
    """Refuse a subclass without a method that only it can define."""
    for name, purpose in _OWN_METHODS.items():
        method = getattr(owner, name, None)
        if method is None or method is getattr(OffPolicy, name, None):
            raise ConfigError(f"{owner.__qualname__} does not define {purpose}")


def _require_built(algorithm: OffPolicy[Any]) -> None:
    """Refuse what `build` has not set, stages of groups that do not exist, and extras other than those of the spec."""
    build = f"{type(algorithm).__qualname__}.build"
    missing = [name for name in ("policy", "published_extras", "groups", "stages") if not hasattr(algorithm, name)]
    if missing:
        raise ConfigError(f"{build} does not set {', '.join(f'self.{name}' for name in missing)}")
    for stage in algorithm.stages:
        if stage.group not in algorithm.groups:
            raise ConfigError(
                f"{build} sets a stage {stage.name!r} of the group {stage.group!r}, but the groups are "
                f"{', '.join(algorithm.groups) or 'none'}"
            )
    expected, given = {name for name, _ in extra_shapes(algorithm.spec)}, set(algorithm.published_extras)
    if expected != given:
        raise ConfigError(
            f"{build} sets {_named(given)} in self.published_extras, but a policy with this PolicySpec acts with "
            f"{_named(expected)}: enter each as storage.register(name, tensor), and leave all others out. `uniform` is "
            "of uniform_start, `epsilon` of the distribution epsilon_greedy, `exploration_noise` of deterministic"
        )


def _named(extras: set[str]) -> str:
    return ", ".join(sorted(extras)) or "no extras"
