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
Distribution = Literal["categorical", "gaussian", "squashed"]


@dataclass(frozen=True)
class PolicySpec:
    """A multi-layer perceptron from observation leaves to the parameters of an action distribution."""

    observation: tuple[Leaf, ...]
    action: ActionSpec
    hidden_sizes: tuple[int, ...]
    activation: Activation
    distribution: Distribution
    """squashed: a Gaussian through tanh, so that actions keep within bounds smoothly."""
    normalize: bool
    """Whether observations are normalised by published statistics."""

    @property
    def inputs(self) -> int:
        """Numbers in one observation, all leaves flattened and joined."""
        return sum(leaf.size for leaf in self.observation)

    @property
    def outputs(self) -> int:
        """Numbers that the last layer gives: logits, or means."""
        return sum(self.action.nvec) if self.action.kind != "box" else self.action_size

    @property
    def action_size(self) -> int:
        """Numbers in one action: 1 for discrete."""
        return prod(self.action.shape)

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
        if self.distribution != "categorical":
            shapes.append(("log_std", (self.outputs,)))
        return shapes

    def layout(self) -> Layout:
        """Return the layout of what is published: the policy's parameters, then the observation statistics."""
        statistics: list[tuple[str, tuple[int, ...]]] = [
            ("observation_mean", (self.inputs,)),
            ("observation_scale", (self.inputs,)),
        ]
        return Layout.of(self.parameter_shapes() + (statistics if self.normalize else []))

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
        )
