"""The settings that SAC, TD3 and CrossQ share: those of a policy and an ensemble of critics on a replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from offbeat.algorithms.replay_config import ReplayConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.argument_notation import value_for_reader
from offbeat.core.checks import Example
from offbeat.core.errors import ConfigError
from offbeat.core.field_definitions import defaults_of
from offbeat.core.fields import Bound, Count, Positive
from offbeat.core.types import EnvSpec
from offbeat.models.spec import Activation


@dataclass(frozen=True)
class ReplayActorCriticConfig(ReplayConfig):
    """The settings of algorithms with a policy and an ensemble of critics that learn from a replay."""

    hidden_sizes: Annotated[tuple[Count, ...] | None, Example("64,64")] = None
    """Units of each hidden layer of the policy, and of each critic. For box actions critics need a hidden layer. None:
    the default of the algorithm, or for choices no hidden layers if all inputs are encoded."""
    policy_learning_rate: Annotated[Positive | None, Example("0.0003")] = None
    """Adam's step size for the policy; none: learning_rate."""
    critic_learning_rate: Annotated[Positive | None, Example("0.0003")] = None
    """Adam's step size for the critics; none: learning_rate."""
    critics: Count = 2
    """Critics in the ensemble; the smallest of their values is used."""
    policy_delay: Count = 1
    """The policy is changed only in every n-th update."""
    activation: Activation = "relu"
    """Activation of the hidden layers; encoders use ReLU."""
    layer_norm: bool = False
    """Layer normalisation of each hidden layer of the critics before its activation, not of the policy's layers, as in
    DroQ (arXiv:2110.02034), but without its dropout."""
    normalize_observations: bool = False
    """Shift and scale observations by running statistics. Choices, images for an encoder, and all that an encoder of
    your own gets, stay as they are."""
    max_grad_norm: Positive | None = None
    """Largest norm of the gradients of policy and critics, each separately; larger gradients are scaled down to it;
    none: no limit."""
    adam_eps: Positive = 1e-8
    """Adam's epsilon."""
    adam_beta1: Annotated[float, Bound(low=0, below=0.999)] = 0.9
    """Adam's decay of the mean gradient (beta1), of all networks, and of a temperature that is learned: with less,
    steps follow the newest gradients more."""

    splits_updates: ClassVar[bool] = True
    network_keys: ClassVar[tuple[str, ...]] = (*ReplayConfig.network_keys, "critics", "normalize_observations")
    title: ClassVar[str] = "this algorithm"
    """Name of the algorithm in messages."""
    unsupported_own_keys: ClassVar[Mapping[str, str]] = {"precision": "all is computed in fp32"}

    def __post_init__(self) -> None:
        for key, why in self.unsupported_own_keys.items():
            if (value := getattr(self, key)) != defaults_of(type(self))[key]:
                reason = f" ({why})" if why else ""
                raise ConfigError(
                    f"{key} is {value_for_reader(value)}, which is not supported by {self.title}{reason}: leave it out"
                )
        super().__post_init__()

    def without_effect(self, env: EnvSpec, runtime: RuntimeConfig) -> dict[str, str]:
        unused = super().without_effect(env, runtime)
        if self.policy_learning_rate is not None and self.critic_learning_rate is not None:
            unused["learning_rate"] = "while each part of the algorithm has its own: leave it out"
        return unused

    def spec_fields(self, env: EnvSpec) -> dict[str, Any]:
        return {**super().spec_fields(env), "layer_norm": False}  # the setting is for the critics alone

    def default_layers(self, env: EnvSpec, encoder: str) -> tuple[int, ...]:
        """Return hidden layers for box actions in any case: the critics join the action with the encoded inputs."""
        return self.default_hidden_sizes if env.action.kind == "box" else super().default_layers(env, encoder)


def require_bounded_box(env: EnvSpec, algorithm: str) -> None:
    """Refuse other actions than a box with finite bounds.

    Args:
        env: the env.
        algorithm: title of the algorithm, for the message.

    Raises:
        ConfigError: the env has others.
    """
    if env.action.kind != "box":
        other = "dqn" if env.action.kind == "discrete" else "ppo"
        raise ConfigError(
            f"{env.id} has {env.action.space} actions, but {algorithm} expects a bounded box: run "
            f"`{env.train_command(other)}`"
        )
    refuse_infinite_bounds(env, algorithm)


def refuse_infinite_bounds(env: EnvSpec, algorithm: str) -> None:
    """Refuse a box without finite bounds: the policy selects actions between the bounds.

    Args:
        env: the env.
        algorithm: title of the algorithm, for the message.

    Raises:
        ConfigError: a bound is not finite.
    """
    action = env.action
    if not action.is_bounded:
        raise ConfigError(
            f"{env.id} has actions from {list(action.low)} to {list(action.high)}, but {algorithm} expects a box with "
            f"finite bounds: wrap the env so that it has them, or run `{env.train_command('ppo')}`"
        )
