"""Deep Q-network (Mnih et al. 2015, doi:10.1038/nature14236), config and algorithm; double Q-learning arXiv:1509.06461.

A network values all choices in a state. An update moves the value of the sampled action towards the reward and the
value that follows, by the ema network, which comes after. It acts by the highest value, but with probability epsilon
at random: always until the first update, and less and less over the first part of the run. Epsilon is published with
the weights, so that who acts with a version explores as that version does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from offbeat.algorithms.base import LossResult, Minibatch, ParameterGroup, Stage
from offbeat.algorithms.off_policy import OffPolicy, ReplayConfig
from offbeat.core.errors import ConfigError
from offbeat.core.fields import Bound, Count, Positive, Share
from offbeat.core.types import Array, EnvSpec
from offbeat.losses import dqn as losses
from offbeat.models.distributions import masked
from offbeat.models.flat import FlatParameters, frozen
from offbeat.models.policy_network import PolicyNetwork
from offbeat.models.soft_policy import SoftPolicy
from offbeat.models.spec import Activation, PolicySpec
from offbeat.models.storage import Storage

Q = "q"
HIDDEN_SIZES = (256, 256)
"""Units of each hidden layer, unless the settings say otherwise."""


@dataclass(frozen=True)
class DQNConfig(ReplayConfig):
    """The settings of DQN; the defaults are for small networks on vectors, as the paper's are for Atari."""

    double: bool = True
    """Take the choice that follows from the network and its value from the ema network, not both from the latter."""
    ema_rate: Annotated[float, Bound(above=0, high=1)] = 0.005
    """Share of the way that the ema network goes to the network; 1 copies it."""
    ema_every: Count = 1
    """Updates from one step of the ema network to the next."""
    final_epsilon: Share = 0.05
    """Share of actions that are random in the end; it falls there from 1 on a line."""
    exploration_fraction: Share = 0.1
    """Share of `steps` that epsilon takes to fall."""
    activation: Activation = "relu"
    """Between the hidden layers; encoders have ReLU."""
    normalize_observations: bool = False
    """Shift and scale observations by running statistics."""
    max_grad_norm: Positive | None = 10.0
    """Gradients of all parameters together are scaled down to this norm; none: never."""
    adam_eps: Positive = 1e-8
    """Adam's epsilon."""

    splits_updates: ClassVar[bool] = False

    def policy_spec(self, env: EnvSpec) -> PolicySpec:
        """Return the policy that these settings make for an env.

        Raises:
            ConfigError: the env's actions are not one choice.
        """
        if env.action.kind != "discrete":
            other = "sac" if env.action.kind == "box" else "ppo"
            raise ConfigError(
                f"{env.id} has {env.action.kind} actions, but DQN expects one discrete action, whose choices it can "
                f"value one by one: run `offbeat train {other} {env.id}`"
            )
        return PolicySpec(
            **self.network(env, HIDDEN_SIZES),
            distribution="epsilon_greedy",
            normalize=self.normalize_observations,
        )

    def epsilon(self, progress: float) -> float:
        """Return the share of random actions at `progress`, 0 to 1."""
        if progress >= self.exploration_fraction:
            return self.final_epsilon
        return 1 - (1 - self.final_epsilon) * progress / self.exploration_fraction


def q_network(spec: PolicySpec, generator: torch.Generator) -> PolicyNetwork:
    """Return a network from observations [M, inputs] to the values of all choices [M, n]."""
    return SoftPolicy(spec, generator=generator)


class DQN(OffPolicy[DQNConfig]):
    """See the module's docstring. One parameter group, one stage."""

    config_class = DQNConfig

    def _make(self, generator: torch.Generator, storage: Storage) -> None:
        config = self._config
        self._network = q_network(self._spec, generator).to(self._device)
        self._policy = FlatParameters(self._network, Q, storage)
        self._ema = storage.register("ema_q", self._policy.values.clone())
        self._ema_network = frozen(self._network, self._policy.layout.views(self._ema))
        self._made = storage.register("updates", torch.zeros(1, dtype=torch.int64))
        """Updates of the whole run."""
        self._flags = {"epsilon": storage.register("epsilon", torch.ones(1))}
        self._epsilon = 1.0
        """What the learning step's first update makes it."""
        most = math.inf if config.max_grad_norm is None else config.max_grad_norm
        self.groups = {Q: ParameterGroup(self._policy, most, config.adam_eps)}
        self.stages = (Stage(Q, Q, self._loss, after=self._follow),)
        self._errors = torch.zeros(0)
        """[M]: by how much the values missed their targets in the last update."""

    def start(self, progress: float) -> dict[str, float]:
        self._epsilon = self._config.epsilon(progress)
        return {Q: self._config.learning_rate}

    def _loss(self, minibatch: Minibatch) -> LossResult:
        values = self._values(self._network, minibatch, "observation")
        values = values.gather(1, minibatch["action"][:, None]).squeeze(1)
        targets = self._targets(minibatch)
        loss = losses.q_loss(values, targets, minibatch.get("weight")).mean()
        values = values.detach()
        self._errors = (values - targets).abs()
        return LossResult(loss, {"critic_loss": loss.detach(), "q_mean": values.mean(), "epsilon": self._epsilon})

    def _values(self, network: PolicyNetwork, minibatch: Minibatch, name: str) -> Tensor:
        """Return a network's values of all choices, [M, n], at the 'observation' or 'next_observation' of each."""
        return self._forward(network.moved_on, minibatch, name)

    @torch.no_grad()
    def _targets(self, minibatch: Minibatch) -> Tensor:
        """Return what the values learn towards, [M], without gradients."""
        allowed = minibatch.get("next_mask")
        following = self._values(self._ema_network, minibatch, "next_observation")
        choosing = self._values(self._network, minibatch, "next_observation") if self._config.double else following
        choosing = choosing if allowed is None else masked(choosing, allowed)
        return losses.q_targets(minibatch["reward"], minibatch["discount"], following, choosing)

    def _follow(self, _result: LossResult) -> None:
        """Let what comes after an update come: the ema network and epsilon."""
        self._flags["epsilon"].fill_(self._epsilon)
        made = int(self._made) + 1
        self._made.fill_(made)
        if made % self._config.ema_every == 0:
            self._ema.lerp_(self._policy.values, self._config.ema_rate)

    def priorities(self, minibatch: Minibatch) -> Array:
        """Return by how much the values missed their targets, [M], before they learned from them."""
        return self._told(self._errors, minibatch)

    def arrays(self) -> dict[str, Tensor]:
        ema = {f"ema_{name}": view for name, view in self._policy.layout.views(self._ema).items()}
        return {**self._policy.arrays(), **ema, **self._flags, "updates": self._made}
