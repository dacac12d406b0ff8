"""The settings of the network, the same for all algorithms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from offbeat.config.keys import ENCODER_KWARGS
from offbeat.config.registry import INCLUDED_ENCODERS, encoder_factory
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.config.settings import AlgorithmSettings
from offbeat.core.checks import Example
from offbeat.core.constructor_arguments import require_arguments
from offbeat.core.errors import ConfigError
from offbeat.core.fields import Count, in_short
from offbeat.core.frozen_table import EMPTY, PlainTable, thawed
from offbeat.core.types import EnvSpec, Leaf
from offbeat.models.spec import Activation, CoreName, PolicySpec, Precision, goes_through_encoder


@dataclass(frozen=True)
class NetworkConfig(AlgorithmSettings):
    """The settings of the network from observations to the heads of an algorithm."""

    encoder: str = "auto"
    """Encoder of images: simple_cnn, nature_cnn or impala_resnet. flat: images are flattened like other observations.
    auto: nature_cnn for images of 36 x 36 pixels or more, impala_resnet for smaller ones, 16 x 16 or more. Or your own
    encoder, for the whole observation: its name, or its path, my_module:MyEncoder."""
    encoder_kwargs: PlainTable = EMPTY
    """Arguments of your own encoder's constructor, after the description of the observation: the table
    [ALGORITHM.encoder_kwargs]. On the command line, --set encoder_kwargs.NAME=VALUE, where the value is read as in
    TOML, or else is text."""
    hidden_sizes: Annotated[tuple[Count, ...] | None, Example("64,64")] = None
    """Units of each hidden layer; none: the default of the algorithm, or no hidden layers if all inputs are encoded."""
    activation: Activation = "tanh"
    """Activation of the hidden layers; encoders use ReLU."""
    layer_norm: bool = False
    """Layer normalisation of each hidden layer before its activation (arXiv:1607.06450)."""
    core: CoreName = "none"
    """Recurrent core after the hidden layers, for partially observable envs."""
    core_size: Count = 128
    """Units of the core. Only with a core."""
    precision: Precision = "fp32"
    """Precision of matrix products and convolutions. With bf16 an update on images takes 38 % less time, but numbers
    have only about two decimal digits."""

    default_hidden_sizes: ClassVar[tuple[int, ...]]
    """Units of each hidden layer, unless the settings say otherwise."""
    network_keys: ClassVar[tuple[str, ...]] = (
        *("encoder", "encoder_kwargs", "hidden_sizes", "activation", "layer_norm", "core", "core_size", "precision"),
    )

    def __post_init__(self) -> None:
        if self.encoder_kwargs and self.encoder in INCLUDED_ENCODERS:
            raise ConfigError(
                f"encoder_kwargs is {thawed(self.encoder_kwargs)}, but encoder is {self.encoder}, and only your own "
                "encoder has arguments: pass --set encoder=my_module:MyEncoder, or leave encoder_kwargs out"
            )
        for name in self.encoder_kwargs:
            if not name.isidentifier():
                raise ConfigError(
                    f"encoder_kwargs has {in_short(name)}, which cannot be the name of an argument of the encoder's "
                    f"constructor: pass --set {ENCODER_KWARGS}NAME=VALUE"
                )

    def spec_fields(self, env: EnvSpec) -> dict[str, Any]:
        """Return the fields of a `PolicySpec` from these settings.

        Raises:
            ConfigError: the settings do not support the env.
        """
        encoder = self._encoder(env)
        return {
            "observation": env.observation,
            "action": env.action,
            "hidden_sizes": self._hidden_sizes(env, encoder),
            "activation": self.activation,
            "layer_norm": self.layer_norm,
            "encoder": encoder,
            "encoder_kwargs": self.encoder_kwargs,
            "core": self.core,
            "core_size": 0 if self.core == "none" else self.core_size,
            "precision": self.precision,
        }

    def without_effect(self, env: EnvSpec, runtime: RuntimeConfig) -> dict[str, str]:
        unused = super().without_effect(env, runtime)
        if self.core == "none":
            unused["core_size"] = "without a core: pass --set core=gru or --set core=lstm, or leave it out"
        if not self._hidden_sizes(env, self._encoder(env)):
            none = "without hidden layers: pass --set hidden_sizes=128, or leave it out"
            unused |= {"activation": none, "layer_norm": none}
        spec = self.policy_spec(env)
        if isinstance(spec, PolicySpec) and spec.normalize and all(leaf.choices for leaf in spec.vectors):
            unused["normalize_observations"] = self._why_not_normalized(spec, env)
        return unused

    def _why_not_normalized(self, spec: PolicySpec, env: EnvSpec) -> str:
        if not _vectors_of_own_encoder(spec):
            return f"in {env.id}, where all inputs are choices or encoded: leave it out"
        remedy = "scale it in the env or in the encoder, and pass --set normalize_observations=false"
        return f"on what {self.encoder} gets in {env.id}: {remedy}"

    def warned_at_default(self, env: EnvSpec) -> tuple[str, ...]:
        spec = self.policy_spec(env)
        return ("normalize_observations",) if isinstance(spec, PolicySpec) and _vectors_of_own_encoder(spec) else ()

    def _hidden_sizes(self, env: EnvSpec, encoder: str) -> tuple[int, ...]:
        return self.default_layers(env, encoder) if self.hidden_sizes is None else self.hidden_sizes

    def default_layers(self, env: EnvSpec, encoder: str) -> tuple[int, ...]:
        """Return the hidden layers of a network whose settings name none: no layers if all inputs are encoded."""
        encodes_all = encoder != "flat" and all(
            leaf.is_mask or goes_through_encoder(leaf, encoder) for leaf in env.observation
        )
        return () if encodes_all else self.default_hidden_sizes

    def _encoder(self, env: EnvSpec) -> str:
        """Return the name of the encoder; flat if the env has no images.

        Raises:
            ConfigError: the encoder does not support the env, does not exist, or lacks an argument or has none of a
                name.
        """
        if self.encoder not in INCLUDED_ENCODERS:
            factory, syntax = encoder_factory(self.encoder), f"--set {ENCODER_KWARGS}NAME=VALUE"
            require_arguments(f"encoder {self.encoder}", factory, self.encoder_kwargs, syntax, positional=1)
            return self.encoder
        images = [leaf for leaf in env.observation if leaf.is_image]
        if not images:
            if self.encoder not in ("auto", "flat"):
                raise ConfigError(
                    f"encoder is {self.encoder}, but {env.id} has no images (bytes, 16 pixels a side or more): "
                    "pass --set encoder=auto"
                )
            return "flat"
        if self.encoder == "flat" and any(leaf.stack > 1 for leaf in images):
            raise ConfigError(
                f"encoder is flat, which does not support stacks of images, and {env.id} has them (frame_stack): leave "
                "encoder out, or pass --set frame_stack=1"
            )
        if self.encoder != "auto":
            return self.encoder
        smallest = min(min(leaf.sides) for leaf in images)
        return "nature_cnn" if smallest >= 36 else "impala_resnet"


def _vectors_of_own_encoder(spec: PolicySpec) -> list[Leaf]:
    """Return the leaves that a user's encoder gets and that would be normalised without it."""
    return [leaf for leaf in spec.encoded if not (leaf.is_image or leaf.choices)]
