"""What a policy is, in plain data: enough to build it again from a checkpoint, without an algorithm or torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import prod
from typing import Any, Literal

from offbeat.models.layout import Layout
from offbeat.types import ActionSpec, Leaf

Activation = Literal["tanh", "relu"]
Distribution = Literal["categorical", "gaussian", "squashed", "tanh_gaussian", "epsilon_greedy"]
LOG_STD_RANGE = (-20.0, 2.0)
"""What a tanh_gaussian's log standard deviations are clipped to: else exp would overflow, or the density vanish."""


@dataclass(frozen=True)
class PolicySpec:
    """A multi-layer perceptron from observation leaves to the parameters of an action distribution."""

    observation: tuple[Leaf, ...]
    action: ActionSpec
    hidden_sizes: tuple[int, ...]
    activation: Activation
    distribution: Distribution
    """squashed: a Gaussian through tanh, so that actions keep within bounds smoothly, and recorded before it;
    tanh_gaussian: one whose deviations are outputs of the network as its means are, and recorded after it;
    epsilon_greedy: the choice of the highest value, but with the published probability epsilon any choice."""
    normalize: bool
    """Whether observations are normalised by published statistics."""
    uniform_start: bool = False
    """Whether a flag is published with the weights: while it is 1, sampled actions are uniform over all there are."""

    @property
    def inputs(self) -> int:
        """Numbers in one observation, all leaves flattened and joined."""
        return sum(leaf.size for leaf in self.observation)

    @property
    def outputs(self) -> int:
        """Numbers that the last layer gives: logits, values, or means (tanh_gaussian: then as many log deviations)."""
        if self.action.kind != "box":
            return sum(self.action.nvec)
        return 2 * self.action_size if self.distribution == "tanh_gaussian" else self.action_size

    @property
    def action_size(self) -> int:
        """Numbers in one action: 1 for discrete."""
        return prod(self.action.shape)

    @property
    def records_log_prob(self) -> bool:
        """Whether log-probabilities are recorded: not of actions after a tanh, nor of what may be uniform."""
        return not self.uniform_start and self.distribution not in ("tanh_gaussian", "epsilon_greedy")

    def layer_names(self) -> list[str]:
        """Return the names of the linear layers, the head last."""
        return [*(f"policy_body.{i}" for i in range(len(self.hidden_sizes))), "policy_head"]

    def layer_sizes(self) -> list[tuple[int, int]]:
        """Return (inputs, outputs) of each linear layer, the head last."""
        sizes = (self.inputs, *self.hidden_sizes, self.outputs)
        return list(pairwise(sizes))

    def parameter_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return name and shape of each trained array, in the order of the flat buffer."""
        shapes: list[tuple[str, tuple[int, ...]]] = []
        for name, (inputs, outputs) in zip(self.layer_names(), self.layer_sizes(), strict=True):
            shapes += [(f"{name}.weight", (outputs, inputs)), (f"{name}.bias", (outputs,))]
        if self.distribution in ("gaussian", "squashed"):
            shapes.append(("log_std", (self.outputs,)))
        return shapes

    def layout(self) -> Layout:
        """Return the layout of what is published: the policy's parameters, the observation statistics, the flags."""
        shapes = self.parameter_shapes()
        if self.normalize:
            shapes += [("observation_mean", (self.inputs,)), ("observation_scale", (self.inputs,))]
        if self.uniform_start:
            shapes.append(("uniform", (1,)))
        if self.distribution == "epsilon_greedy":
            shapes.append(("epsilon", (1,)))
        return Layout.of(shapes)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PolicySpec:
        action: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data["action"].items()}
        return cls(
            observation=tuple(Leaf(leaf["name"], tuple(leaf["shape"]), leaf["dtype"]) for leaf in data["observation"]),
            action=ActionSpec(**action),
            hidden_sizes=tuple(data["hidden_sizes"]),
            activation=data["activation"],
            distribution=data["distribution"],
            normalize=data["normalize"],
            uniform_start=data.get("uniform_start", False),  # older checkpoints have no word of it
        )
