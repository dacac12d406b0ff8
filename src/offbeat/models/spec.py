"""What a policy is, in plain data: enough to build it again from a checkpoint, without an algorithm or torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

from offbeat.types import INFO_MASK, ActionSpec, Leaf, mask_of

Activation = Literal["tanh", "relu"]
Distribution = Literal["categorical", "gaussian", "squashed", "tanh_gaussian", "epsilon_greedy"]
CoreName = Literal["none", "gru", "lstm"]
Precision = Literal["fp32", "bf16"]
ENCODERS = ("flat", "nature_cnn", "impala_resnet")
LOG_STD_RANGE = (-20.0, 2.0)
"""What a tanh_gaussian's log standard deviations are clipped to: else exp would overflow, or the density vanish."""
MASKED_LOGIT = -1e9
"""What stands for the logit of a choice that is not allowed: its probability is exactly 0, and times its logarithm too,
where minus infinity would give NaN."""


@dataclass(frozen=True)
class PolicySpec:
    """From observation leaves to the parameters of an action distribution: encoders, hidden layers, a core, a head."""

    observation: tuple[Leaf, ...]
    action: ActionSpec
    hidden_sizes: tuple[int, ...]
    activation: Activation
    distribution: Distribution
    """Of boxes, as choices are categorical. squashed: a Gaussian through tanh, so that actions keep within bounds
    smoothly, and recorded before it; tanh_gaussian: one whose deviations are outputs of the network as its means are,
    and recorded after it. epsilon_greedy: the choice of the highest value, but with the published probability epsilon
    any choice."""
    normalize: bool
    """Whether observations are normalised by published statistics."""
    uniform_start: bool = False
    """Whether a flag is published with the weights: while it is 1, sampled actions are uniform over all there are."""

    encoder: str = "flat"
    """Of images, one of ENCODERS; flat: their bytes are numbers like any others. Or the user's own, of all leaves."""
    layer_norm: bool = False
    """Whether each hidden layer's outputs are normalised before the activation."""
    core: CoreName = "none"
    core_size: int = 0
    """Units of the recurrent core."""
    precision: Precision = "fp32"
    """What matrix products and convolutions are computed in; parameters are float32."""

    @property
    def plain(self) -> bool:
        """Whether it is a multi-layer perceptron and nothing else: these act in NumPy, without torch."""
        return not (self.encoded or self.layer_norm or self.recurrent) and self.precision == "fp32"

    @property
    def recurrent(self) -> bool:
        return self.core != "none"

    @property
    def state_size(self) -> int:
        """Numbers that the core remembers of a column; an LSTM its output and its cell."""
        return {"none": 0, "gru": 1, "lstm": 2}[self.core] * self.core_size

    @cached_property
    def encoded(self) -> tuple[Leaf, ...]:
        """The leaves that go through an encoder."""
        own = self.encoder not in ENCODERS
        every = (leaf for leaf in self.observation if self.encoder != "flat" and not leaf.is_mask)
        return tuple(leaf for leaf in every if own or leaf.is_image)

    @cached_property
    def vectors(self) -> tuple[Leaf, ...]:
        """The others, which are flattened and joined; a mask is no input."""
        return tuple(leaf for leaf in self.observation if leaf not in self.encoded and not leaf.is_mask)

    @property
    def inputs(self) -> int:
        """Numbers in one observation that no encoder sees: all these leaves flattened and joined."""
        return sum(leaf.inputs for leaf in self.vectors)

    @property
    def mask(self) -> str | None:
        """The leaf that says which choices are allowed, [N, sum(nvec)] bool; None where all always are."""
        return mask_of(self.observation)

    @property
    def info_mask(self) -> bool:
        """Whether that leaf comes from the env's infos."""
        return self.mask == INFO_MASK

    @property
    def outputs(self) -> int:
        """Numbers that the last layer gives: logits or values of all choices, then means of boxes' numbers
        (tanh_gaussian: and as many log deviations after).
        """
        means = self.box_size
        return self.logits + (2 * means if self.distribution == "tanh_gaussian" else means)

    @property
    def logits(self) -> int:
        """Choices of all components of an action together."""
        return sum(self.action.nvec)

    @property
    def box_size(self) -> int:
        """Numbers of boxes in one action."""
        return len(self.action.low)

    @property
    def action_size(self) -> int:
        """Numbers in one action: 1 for discrete."""
        return self.action.size

    @property
    def records_log_prob(self) -> bool:
        """Whether log-probabilities are recorded: not of actions after a tanh, nor of what may be uniform."""
        return not self.uniform_start and self.distribution not in ("tanh_gaussian", "epsilon_greedy")

    @property
    def has_log_std(self) -> bool:
        """Whether the log standard deviations of boxes are parameters, whatever is observed."""
        return self.distribution in ("gaussian", "squashed")

    def layer_names(self) -> list[str]:
        """Return the names of the linear layers, the head last."""
        return [*(f"policy_body.{i}" for i in range(len(self.hidden_sizes))), "policy_head"]

    def layer_sizes(self) -> list[tuple[int, int]]:
        """Return (inputs, outputs) of each linear layer, the head last."""
        sizes = (self.inputs, *self.hidden_sizes, self.outputs)
        return list(pairwise(sizes))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PolicySpec:
        """Take what `to_json` returned; older checkpoints have fewer keys, whose defaults they mean."""
        given = {key: _as_tuple(value) for key, value in data.items() if key in {field.name for field in fields(cls)}}
        leaves = tuple(Leaf(**_with_tuples(leaf)) for leaf in data["observation"])
        return cls(**{**given, "observation": leaves, "action": _action(data["action"])})


def _action(data: Mapping[str, Any]) -> ActionSpec:
    parts = tuple(_action(part) for part in data.get("parts", ()))
    return ActionSpec(**{**_with_tuples(data), "parts": parts})


def _with_tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _as_tuple(value) for name, value in data.items()}


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value
