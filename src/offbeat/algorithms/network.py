"""The settings of networks, which all algorithms have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from offbeat.config.registry import encoder_factory
from offbeat.config.settings import AlgorithmSettings
from offbeat.core.errors import ConfigError
from offbeat.core.fields import Count
from offbeat.core.types import EnvSpec
from offbeat.models.spec import ENCODERS, Activation, CoreName, Precision


@dataclass(frozen=True)
class NetworkConfig(AlgorithmSettings):
    """From observations to what an algorithm's heads see."""

    encoder: str = "auto"
    """What images go through: nature_cnn, impala_resnet; flat: nothing, their bytes are numbers like any others; auto:
    nature_cnn where they have 36 pixels a side, impala_resnet where they have 16. Or one of your own, for all that is
    observed: its name, or where it is, my_module:MyEncoder."""
    hidden_sizes: tuple[Count, ...] | None = None
    """Units of each hidden layer; none: the algorithm's own, or no layer where there are images and nothing else."""
    activation: Activation = "tanh"
    """Between the hidden layers; encoders have ReLU."""
    layer_norm: bool = False
    """Normalise what each hidden layer gives, before its activation (arXiv:1607.06450)."""
    core: CoreName = "none"
    """Recurrent core after the hidden layers, for envs that do not show all."""
    core_size: Count = 128
    """Units of the core. Only with one."""
    precision: Precision = "fp32"
    """What matrix products and convolutions are computed in; bf16: a third less time on images, to two digits."""

    def network(self, env: EnvSpec, hidden_sizes: tuple[int, ...]) -> dict[str, Any]:
        """Return what these settings say of a `PolicySpec`; `hidden_sizes` are those of the algorithm.

        Raises:
            ConfigError: they do not suit the env, or one another.
        """
        if self.core == "none" and self.core_size != NetworkConfig.core_size:
            raise ConfigError(
                f"core_size is {self.core_size}, which has no effect without a core: pass --set core=gru or core=lstm"
            )
        encoder = self._encoder(env)
        return {
            "observation": env.observation,
            "action": env.action,
            "hidden_sizes": self._hidden_sizes(hidden_sizes, env, encoder),
            "activation": self.activation,
            "layer_norm": self.layer_norm,
            "encoder": encoder,
            "core": self.core,
            "core_size": 0 if self.core == "none" else self.core_size,
            "precision": self.precision,
        }

    def _hidden_sizes(self, of_algorithm: tuple[int, ...], env: EnvSpec, encoder: str) -> tuple[int, ...]:
        if self.hidden_sizes is not None:
            return self.hidden_sizes
        own = encoder not in ENCODERS
        encoded_alone = encoder != "flat" and all(own or leaf.is_image or leaf.is_mask for leaf in env.observation)
        return () if encoded_alone else of_algorithm

    def _encoder(self, env: EnvSpec) -> str:
        """Return the encoder's name; flat where there are no images."""
        if self.encoder not in ("auto", *ENCODERS):
            encoder_factory(self.encoder)
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
                f"encoder is flat, but {env.id} has stacks of images (frame_stack), which only an encoder sees: leave "
                "encoder out, or pass --set frame_stack=1"
            )
        if self.encoder != "auto":
            return self.encoder
        smallest = min(min(leaf.sides) for leaf in images)
        return "nature_cnn" if smallest >= 36 else "impala_resnet"
