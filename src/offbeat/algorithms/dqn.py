"""Deep Q-network (Mnih et al. 2015, doi:10.1038/nature14236), config and algorithm; double Q-learning arXiv:1509.06461.

A network returns the values of all choices in a state. An update moves the value of the sampled action towards its
target: the reward plus the discounted value of the next state. That value comes from the ema network, a slow copy of
the network. The policy selects the choice with the highest value, or with probability epsilon a random one. Epsilon is
1 until the first update, and decreases over the first part of the run, which includes the warm-up. It is published with
the weights, so each version has its own epsilon: a run with initial weights from another run acts with theirs until its
first update.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from offbeat.algorithms.base import LossResult, Minibatch, ParameterGroup, Stage
from offbeat.algorithms.off_policy import OffPolicy
from offbeat.algorithms.replay_config import ReplayConfig
from offbeat.core.errors import ConfigError
from offbeat.core.fields import Bound, Count, Positive, Share
from offbeat.core.types import EnvSpec
from offbeat.losses import dqn as losses
from offbeat.models.distributions import masked
from offbeat.models.ema import EmaCopy
from offbeat.models.flat import FlatParameters
from offbeat.models.policy_network import PolicyNetwork, Uniform
from offbeat.models.spec import Activation, PolicySpec
from offbeat.models.storage import Storage

Q = "q"


@dataclass(frozen=True)
class DQNConfig(ReplayConfig):
    """The settings of DQN; the defaults are for small networks on vectors, while the paper's are for Atari."""

    double: bool = True
    """Double Q-learning: select the next action with the network and take its value from the ema network. false: use
    the ema network for both."""
    ema_rate: Annotated[float, Bound(above=0, high=1)] = 0.005
    """Step of the ema network towards the network, as a fraction of the difference; 1 copies the network."""
    ema_every: Count = 1
    """Updates between two steps of the ema network."""
    final_epsilon: Share = 0.05
    """Fraction of random actions at the end; epsilon decreases linearly from 1 to this."""
    exploration_fraction: Share = 0.1
    """Fraction of `steps` over which epsilon decreases, from env step 0. In a warm-up epsilon is 1: if that is longer,
    the first update sets epsilon to final_epsilon."""
    activation: Activation = "relu"
    """Activation of the hidden layers; encoders use ReLU."""
    normalize_observations: bool = False
    """Shift and scale observations by running statistics. Choices, images for an encoder, and all that an encoder of
    your own gets, stay as they are."""
    max_grad_norm: Positive | None = 10.0
    """Largest norm of all gradients together; larger gradients are scaled down to it; none: no limit."""
    adam_eps: Positive = 1e-8
    """Adam's epsilon."""

    network_keys: ClassVar[tuple[str, ...]] = (*ReplayConfig.network_keys, "normalize_observations")

    def policy_spec(self, env: EnvSpec) -> PolicySpec:
        """Return the policy that these settings make for an env.

        Raises:
            ConfigError: the env's action is not a single discrete choice.
        """
        if env.action.kind != "discrete":
            other = "sac" if env.action.kind == "box" and env.action.is_bounded else "ppo"
            raise ConfigError(
                f"DQN supports only one Discrete action, but {env.id} has {env.action.space} actions: run "
                f"`{env.train_command(other)}`"
            )
        return PolicySpec(
            **self.spec_fields(env),
            distribution="epsilon_greedy",
            normalize=self.normalize_observations,
        )

    def epsilon(self, progress: float) -> float:
        """Return the fraction of random actions at `progress`, 0 to 1."""
        if progress >= self.exploration_fraction:
            return self.final_epsilon
        return 1 - (1 - self.final_epsilon) * progress / self.exploration_fraction


class DQN(OffPolicy[DQNConfig]):
    """See the module's docstring. One parameter group, one stage."""

    config_class = DQNConfig

    def build(self, generator: torch.Generator, storage: Storage) -> None:
        config = self.config
        self.network = self.make_network(generator).to(self.device)
        self.policy = FlatParameters(self.network, Q, storage)
        self._ema = EmaCopy(self.network, self.policy, "ema_q", storage)
        self.ema_network = self._ema.network
        self._updates = storage.register("updates", torch.zeros(1, dtype=torch.int64))
        """Number of updates of these weights: initial weights from another run bring theirs."""
        self.published_extras = {"epsilon": storage.register("epsilon", torch.ones(1))}
        self._epsilon = 1.0
        """Epsilon of this learning step; it is published after the first update of the step."""
        max_grad_norm = math.inf if config.max_grad_norm is None else config.max_grad_norm
        self.groups = {Q: ParameterGroup(self.policy, max_grad_norm, config.adam_eps)}
        self.stages = (Stage(Q, Q, self.loss, after=self._after_update),)

    def make_network(self, generator: torch.Generator) -> PolicyNetwork:
        """Return a new network from observations [M, inputs] to the values of all choices, [M, choices].

        Actors build their network from the spec, so the parameters must be those of `published.parameter_shapes`.
        """
        return PolicyNetwork(self.spec, Uniform(generator), head_gain=1.0)

    def start(self, progress: float) -> dict[str, float]:
        self._epsilon = self.config.epsilon(progress)
        return {Q: self.config.learning_rate}

    def loss(self, minibatch: Minibatch) -> LossResult:
        """Return the loss of a minibatch.

        The outputs have errors, [M]: the absolute differences of values and targets, which prioritized sampling needs.
        """
        values = self.values(self.network, minibatch, "observation")
        values = values.gather(1, minibatch["action"][:, None]).squeeze(1)
        targets = self.targets(minibatch)
        loss = losses.q_loss(values, targets, self.weight_of(minibatch)).mean()
        values = values.detach()
        metrics: dict[str, Tensor | float] = {
            "critic_loss": loss.detach(),
            "q_mean": values.mean(),
            "epsilon": self._epsilon,
        }
        return LossResult(loss, metrics, {"errors": (values - targets).abs()})

    def values(self, network: PolicyNetwork, minibatch: Minibatch, name: str) -> Tensor:
        """Return the values of all choices, [M, choices].

        Args:
            network: `network` or `ema_network`.
            minibatch: as `minibatch` returns it.
            name: 'observation' or 'next_observation'.
        """
        return self.forward(network, minibatch, name)

    @torch.no_grad()
    def targets(self, minibatch: Minibatch) -> Tensor:
        """Return the targets of the values, [M], without gradients."""
        next_values = self.values(self.ema_network, minibatch, "next_observation")
        selection_values = next_values
        if self.config.double:
            selection_values = self.values(self.network, minibatch, "next_observation")
        if self.spec.mask:
            selection_values = masked(selection_values, minibatch["next_mask"])
        return losses.q_targets(minibatch["reward"], minibatch["discount"], next_values, selection_values)

    def _after_update(self, result: LossResult) -> None:
        """Publish the new epsilon, and update the ema network."""
        self.store_errors(result)
        self.published_extras["epsilon"].fill_(self._epsilon)
        updates = int(self._updates) + 1  # the host waits here only if lock-free workers share the tensor on a GPU
        self._updates.fill_(updates)
        if updates % self.config.ema_every == 0:
            self._ema.step(self.config.ema_rate)

    def arrays(self) -> dict[str, Tensor]:
        return {**self.policy.arrays(), **self._ema.arrays("ema_"), **self.published_extras, "updates": self._updates}
