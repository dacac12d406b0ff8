"""The description of a policy as plain data: enough to rebuild it from a checkpoint, without an algorithm or torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Literal

from offbeat.config.registry import OUR_ENCODERS
from offbeat.core.fields import Bound, Name, Size
from offbeat.core.frozen_table import EMPTY, PlainTable, thawed
from offbeat.core.types import INFO_MASK, ActionSpec, Leaf, mask_of

Activation = Literal["tanh", "relu"]
Distribution = Literal["categorical", "gaussian", "squashed", "tanh_gaussian", "deterministic", "epsilon_greedy"]
CoreName = Literal["none", "gru", "lstm"]
Precision = Literal["fp32", "bf16"]
LOG_STD_RANGE = (-20.0, 2.0)
"""Clip range of a tanh_gaussian's log standard deviations; outside of it exp overflows or the density vanishes."""
TASK_VARIABLE = "task_variable"
"""Name of the leaf with the latent task variable z, the input that a policy with a context encoder gets in addition to
the observation."""
MASKED_LOGIT = -1e30
"""The logit or value of a choice that is not allowed: below any that a network learns. Its probability p is exactly 0,
and so is p log p, also times a temperature, where minus infinity would give NaN."""


@dataclass(frozen=True)
class ContextEncoderSpec:
    """A context encoder: the network from a transition to a Gaussian factor of the task variable's posterior.

    It is a multi-layer perceptron with ReLU on (observation, action, reward), for example of PEARL, arXiv:1903.08254.
    """

    latent_size: Annotated[int, Bound(1, 2**31 - 1)]
    """Size of the latent task variable z."""
    hidden_sizes: tuple[Annotated[int, Bound(1, 2**31 - 1)], ...]
    """Units of each hidden layer."""
    next_observation: bool = False
    """Whether the next observation is an input too."""

    def layer_names(self) -> list[str]:
        """Return the names of the linear layers."""
        return [f"context_encoder.{i}" for i in range(len(self.hidden_sizes) + 1)]


def goes_through_encoder(leaf: Leaf, encoder: str) -> bool:
    """Whether an encoder reads a leaf: one of OUR_ENCODERS reads images, a user's all that the env observes."""
    of_its_kind = leaf.is_image or encoder not in OUR_ENCODERS
    return encoder != "flat" and of_its_kind and not (leaf.is_mask or leaf.is_previous)


@dataclass(frozen=True)
class PolicySpec:
    """A policy's network, from observation leaves to the parameters of an action distribution.

    Its parts are encoders, hidden layers, a recurrent core and a head, the last linear layer.
    """

    observation: tuple[Leaf, ...]
    action: ActionSpec
    hidden_sizes: tuple[Annotated[int, Bound(1, 2**31 - 1)], ...]
    activation: Activation
    distribution: Distribution
    """The action distribution. categorical: for choices. gaussian, squashed: for continuous numbers; in mixed actions
    choices are categorical. squashed: tanh of a Gaussian, recorded before the tanh.
    tanh_gaussian: tanh of a Gaussian whose standard deviations are network outputs, recorded after the tanh.
    deterministic: tanh of the network's output, to which a sampled action has Gaussian noise added, with the published
    standard deviation exploration_noise; it is clipped to [-1, 1] and recorded after that.
    epsilon_greedy: the choice with the highest value, or with the published probability epsilon a random choice."""
    normalize: bool
    """Whether observations are normalised by published statistics."""
    uniform_start: bool = False
    """Whether a flag is published with the weights: while it is 1, sampled actions are uniform."""

    encoder: Name = "flat"
    """The encoder of images, one of OUR_ENCODERS; flat: images are flattened like other leaves. Any other is a user's
    own encoder, for all leaves."""
    encoder_kwargs: PlainTable = EMPTY
    """Arguments of the constructor of a user's own encoder."""
    layer_norm: bool = False
    """Whether each hidden layer's outputs are normalised before the activation."""
    core: CoreName = "none"
    core_size: Size = 0
    """Units of the recurrent core."""
    precision: Precision = "fp32"
    """The precision of matrix products and convolutions; parameters are float32."""
    no_decision: bool = False
    """Whether the env has rows without a decision. An actor-critic then has another head for their values."""
    context_encoder: ContextEncoderSpec | None = None
    """Infers the task variable z, which is an input of the network; None: there is no task variable."""

    @property
    def plain(self) -> bool:
        """Whether the network is a multi-layer perceptron in float32 and nothing else. Such a network acts in NumPy."""
        return not (self.encoded or self.layer_norm or self.recurrent) and self.precision == "fp32"

    @property
    def recurrent(self) -> bool:
        return self.core != "none"

    @property
    def state_size(self) -> int:
        """Size of the recurrent state of a column; that of an LSTM contains its output and its cell."""
        return {"none": 0, "gru": 1, "lstm": 2}[self.core] * self.core_size

    @cached_property
    def encoded(self) -> tuple[Leaf, ...]:
        """The leaves that go through an encoder."""
        return tuple(leaf for leaf in self.observation if goes_through_encoder(leaf, self.encoder))

    @property
    def has_own_encoder(self) -> bool:
        """Whether the encoder is a user's own."""
        return bool(self.encoded) and self.encoder not in OUR_ENCODERS

    @cached_property
    def observed_vectors(self) -> tuple[Leaf, ...]:
        """The leaves of the observation without an encoder, which are flattened and joined. A mask is not an input."""
        return tuple(leaf for leaf in self.observation if leaf not in self.encoded and not leaf.is_mask)

    @cached_property
    def vectors(self) -> tuple[Leaf, ...]:
        """`observed_vectors` and, with a context encoder, the task variable: all that is flattened and joined."""
        encoder = self.context_encoder
        task = () if encoder is None else (Leaf(TASK_VARIABLE, (encoder.latent_size,), "float32"),)
        return (*self.observed_vectors, *task)

    def context_layer_sizes(self) -> list[tuple[int, int]]:
        """Return (inputs, outputs) of each linear layer of the context encoder; none if there is no encoder.

        The inputs are observation, action (choices one-hot), reward and, if it is used, the next observation. The
        outputs are the mean of the factor and, before softplus, its variance.
        """
        encoder = self.context_encoder
        if encoder is None:
            return []
        observed = sum(leaf.inputs for leaf in self.observed_vectors)
        inputs = observed * (1 + encoder.next_observation) + (self.logits or self.action_size) + 1
        return list(pairwise((inputs, *encoder.hidden_sizes, 2 * encoder.latent_size)))

    @property
    def inputs(self) -> int:
        """Size of the joined vector of the leaves without an encoder."""
        return sum(leaf.inputs for leaf in self.vectors)

    @property
    def mask(self) -> str | None:
        """The leaf with the mask of the allowed choices, [N, sum(nvec)] bool; None without masks."""
        return mask_of(self.observation)

    @property
    def info_mask(self) -> bool:
        """Whether the mask comes from the env's infos."""
        return self.mask == INFO_MASK

    @property
    def outputs(self) -> int:
        """Size of the head's output: logits or values of all choices, then the means of continuous numbers, and with
        tanh_gaussian their log standard deviations.
        """
        means = self.box_size
        return self.logits + (2 * means if self.distribution == "tanh_gaussian" else means)

    @property
    def logits(self) -> int:
        """Number of choices of all components of an action together."""
        return sum(self.action.nvec)

    @property
    def box_size(self) -> int:
        """Number of continuous numbers, from Box spaces, in one action."""
        return len(self.action.low)

    @property
    def action_size(self) -> int:
        """Number of components of one action; 1 for a discrete action."""
        return self.action.size

    @property
    def records_after_tanh(self) -> bool:
        """Whether numbers are the tanh of the network's means, and are recorded after it, in [-1, 1]."""
        return self.distribution in ("tanh_gaussian", "deterministic")

    @property
    def records_log_prob(self) -> bool:
        """Whether log-probabilities are recorded. They are not for tanh_gaussian, deterministic and epsilon_greedy, nor
        if actions may be uniform, nor with a context encoder: all of these learn from a replay.
        """
        replayed = self.uniform_start or self.context_encoder is not None
        return not (replayed or self.records_after_tanh or self.distribution == "epsilon_greedy")

    @property
    def has_log_std(self) -> bool:
        """Whether the log standard deviations are parameters, which do not depend on the observation."""
        return self.distribution in ("gaussian", "squashed")

    def layer_names(self) -> list[str]:
        """Return the names of the linear layers, the head last."""
        return [*(f"policy_body.{i}" for i in range(len(self.hidden_sizes))), "policy_head"]

    def layer_sizes(self) -> list[tuple[int, int]]:
        """Return (inputs, outputs) of each linear layer, the head last."""
        sizes = (self.inputs, *self.hidden_sizes, self.outputs)
        return list(pairwise(sizes))

    def to_json(self) -> dict[str, Any]:
        """Return the spec for a file, which `spec_file.read_spec` reads."""
        return {**asdict(self), "encoder_kwargs": thawed(self.encoder_kwargs)}
