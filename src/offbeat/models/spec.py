"""What a policy is, in plain data: enough to build it again from a checkpoint, without an algorithm or torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Literal

from offbeat.core.errors import ConfigError
from offbeat.core.fields import Bound, Name, Size, build
from offbeat.core.types import INFO_MASK, ActionSpec, Leaf, mask_of

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
    hidden_sizes: tuple[Annotated[int, Bound(1, 2**31 - 1)], ...]
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

    encoder: Name = "flat"
    """Of images, one of ENCODERS; flat: their bytes are numbers like any others. Or the user's own, of all leaves."""
    layer_norm: bool = False
    """Whether each hidden layer's outputs are normalised before the activation."""
    core: CoreName = "none"
    core_size: Size = 0
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
    def from_json(cls, data: object) -> PolicySpec:
        """Take what `to_json` returned; older checkpoints have fewer keys, whose defaults they mean.

        Raises:
            ConfigError: a value is not what it should be, or parts of it do not fit one another.
        """
        spec = build(cls, data, "the checkpoint's policy", _CHANGED)
        for wrong in (*_wrong_leaves(spec), *_wrong_action(spec.action), *_wrong_head(spec)):
            raise ConfigError(f"the checkpoint's policy cannot be: {wrong}. {_CHANGED[0].upper()}{_CHANGED[1:]}")
        return spec


# --- what a file says -----------------------------------------------------------------------------------------

_CHANGED = "its policy.json was changed, or is of another version of offbeat"
MOST_NUMBERS = 2**26
"""In one observation's leaf, a stack included: more than twice those of a 4K picture in colour."""


def _wrong_leaves(spec: PolicySpec) -> Iterator[str]:
    """Yield what is wrong with the leaves, in words."""
    names = [leaf.name for leaf in spec.observation]
    if not names or len(set(names)) < len(names):
        yield "it observes nothing, or two things of one name"
    if sum(leaf.is_mask for leaf in spec.observation) > 1:
        yield "it has two masks"
    for leaf in spec.observation:
        if max(leaf.size, leaf.inputs) * leaf.stack > MOST_NUMBERS:
            yield f"{leaf.name} has more than {MOST_NUMBERS} numbers"
        elif len(leaf.choices) not in (0, leaf.size) or len(leaf.start) not in (0, len(leaf.choices)):
            yield f"{leaf.name} has {leaf.size} numbers, but choices and starts of others"
        elif leaf.choices and leaf.dtype.startswith(("float", "bool")):
            yield f"{leaf.name} has choices that are no whole numbers, but {leaf.dtype}"
        elif leaf.is_mask and (leaf.dtype, leaf.shape) != ("bool", (spec.logits,)):
            yield f"{leaf.name} is no mask of {spec.logits} choices"
        elif leaf.stack > 1 and not leaf.is_image:
            yield f"{leaf.name} is stacked, but no image"


def _wrong_action(action: ActionSpec) -> Iterator[str]:
    """Yield what is wrong with an action, or with a part of it, in words."""
    numbers, mixed = len(action.nvec) + len(action.low), action.kind == "mixed"
    if action.size != numbers or not numbers or len(action.low) != len(action.high):
        yield f"a {action.kind} action of shape {list(action.shape)} has {numbers} choices and bounds"
    if len(action.shape) != {"discrete": 0, "mixed": 1}.get(action.kind, len(action.shape)):
        yield f"a {action.kind} action cannot have the shape {list(action.shape)}"
    if not mixed and (action.nvec if action.kind == "box" else action.low):
        yield f"a {action.kind} action has choices, or bounds, that do not belong to it"
    if len(action.start) not in (0, len(action.nvec)) or mixed != bool(action.parts):
        yield f"a {action.kind} action has parts or starts that do not belong to it"
    if len(action.keys) not in (0, len(action.parts)) or len(set(action.keys)) < len(action.keys):
        yield "an action's parts have names that do not belong to them"
    if mixed and any(_joined(action.parts, name) != getattr(action, name) for name in ("nvec", "low", "high")):
        yield "an action is not made of its parts"
    for part in action.parts:
        yield from _wrong_action(part)


def _joined(parts: tuple[ActionSpec, ...], name: str) -> tuple[Any, ...]:
    return tuple(number for part in parts for number in getattr(part, name))


def _wrong_head(spec: PolicySpec) -> Iterator[str]:
    """Yield what is wrong with the rest, in words."""
    discrete = spec.distribution in ("categorical", "epsilon_greedy")
    if discrete == bool(spec.box_size) or (spec.distribution == "tanh_gaussian" and spec.logits):
        yield f"a {spec.distribution} distribution does not suit {spec.action.kind} actions"
    if spec.uniform_start and spec.action.kind == "mixed":
        yield "a mixed action cannot begin uniform"
    if spec.recurrent != bool(spec.core_size):
        yield f"its core is {spec.core}, of {spec.core_size} units"
    if not (spec.inputs or spec.encoded):
        yield "it observes nothing that a network could look at"
