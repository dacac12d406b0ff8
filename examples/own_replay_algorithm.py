"""An algorithm on a replay, written from scratch: discrete SAC.

    cd examples
    offbeat train discrete_sac CartPole-v1 --import own_replay_algorithm --steps 50000

All that `OffPolicy` leaves to an algorithm is here: settings, networks, losses, and the names of what is learned. It
runs in serial, threads, processes, on a cluster and lock-free. With `--lag exact` all runtimes but the lock-free one
give the same bits.

Christodoulou 2019, Soft Actor-Critic for Discrete Action Settings, arXiv:1910.07207; the temperature is fixed here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import offbeat
from offbeat.algorithms.base import LossResult, Minibatch, ParameterGroup, Stage
from offbeat.algorithms.off_policy import OffPolicy
from offbeat.algorithms.replay_config import ReplayConfig
from offbeat.core.fields import Bound, Positive
from offbeat.core.types import EnvSpec
from offbeat.models.ema import EmaCopy
from offbeat.models.flat import FlatParameters
from offbeat.models.policy_network import PolicyNetwork, Uniform
from offbeat.models.spec import PolicySpec
from offbeat.models.storage import Storage


@dataclass(frozen=True)
class DiscreteSACConfig(ReplayConfig):
    """The settings of all algorithms on a replay, and these."""

    temperature: Positive = 0.05
    """Weight of the policy's entropy, in units of reward."""
    ema_rate: Annotated[float, Bound(above=0, high=1)] = 0.005
    """Step of the slow copies of the critics towards the critics, at each update."""

    def policy_spec(self, env: EnvSpec) -> PolicySpec:
        """Describe the policy: logits of all choices, and uniform actions during the warm-up."""
        if env.action.kind != "discrete":
            raise offbeat.ConfigError(f"discrete SAC needs one Discrete action, but {env.id} has {env.action.kind}")
        return PolicySpec(**self.spec_fields(env), distribution="categorical", normalize=False, uniform_start=True)


class DiscreteSAC(OffPolicy[DiscreteSACConfig]):
    """Two critics, their slow copies, and a policy. M is the number of transitions in a minibatch."""

    config_class = DiscreteSACConfig

    def build(self, generator: torch.Generator, storage: Storage) -> None:
        self.policy_network = self.make_network(generator)
        self.critic_networks = nn.ModuleList([self.make_network(generator) for _ in range(2)])
        self.policy = FlatParameters(self.policy_network, "policy", storage)
        self.critics = FlatParameters(self.critic_networks, "critics", storage)
        self.ema = EmaCopy(self.critic_networks, self.critics, "ema_critics", storage)
        self.uniform = storage.register("uniform", torch.ones(1))
        self.published_extras = {"uniform": self.uniform}  # published: actions are uniform while it is 1
        self.groups = {
            "critics": ParameterGroup(self.critics, max_grad_norm=10.0, adam_eps=1e-8),
            "policy": ParameterGroup(self.policy, max_grad_norm=10.0, adam_eps=1e-8),
        }
        self.stages = (
            Stage("critics", "critics", self.critic_loss, after=self.after_critics),
            Stage("policy", "policy", self.policy_loss, after=self.after_policy),
        )

    def make_network(self, generator: torch.Generator) -> PolicyNetwork:
        """Return a network with one output for each choice, [M, choices]; policy and critics have the same layers."""
        return PolicyNetwork(self.spec, Uniform(generator), head_gain=1.0).to(self.device)

    def start(self, progress: float) -> dict[str, float]:
        return dict.fromkeys(self.groups, self.config.learning_rate * (1 - progress))

    # --- losses: pure functions of a minibatch ------------------------------------------------------------------

    def log_probs(self, minibatch: Minibatch, name: str) -> Tensor:
        """Return the log-probabilities of all choices, [M, choices]; name is observation or next_observation."""
        return functional.log_softmax(self.forward(self.policy_network, minibatch, name), dim=1)

    def values(self, networks: Iterable[Any], minibatch: Minibatch, name: str) -> Tensor:
        """Return the values of all choices by each critic, [2, M, choices]."""
        return torch.stack([self.forward(critic, minibatch, name) for critic in networks])

    @torch.no_grad()
    def targets(self, minibatch: Minibatch) -> Tensor:
        """Return ``r + discount * E[min Q(s', a') - temperature log pi(a'|s')]``, [M]; discount is 0 at the end."""
        log_probs = self.log_probs(minibatch, "next_observation")
        values = self.values(self.ema.network, minibatch, "next_observation").amin(0)
        soft_values = (log_probs.exp() * (values - self.config.temperature * log_probs)).sum(1)
        targets: Tensor = minibatch["reward"] + minibatch["discount"] * soft_values
        return targets

    def critic_loss(self, minibatch: Minibatch) -> LossResult:
        action = minibatch["action"][None, :, None].expand(2, -1, 1)
        values = self.values(self.critic_networks, minibatch, "observation").gather(2, action).squeeze(2)
        errors = values - self.targets(minibatch)
        weight = self.weight_of(minibatch)  # None, unless prioritized
        loss = (errors.square() if weight is None else weight * errors.square()).mean()
        metrics = {"critic_loss": loss.detach(), "q_mean": values.detach().mean()}
        return LossResult(loss, metrics, {"errors": errors.detach().abs().mean(0)})

    def policy_loss(self, minibatch: Minibatch) -> LossResult:
        log_probs = self.log_probs(minibatch, "observation")
        with torch.no_grad():
            values = self.values(self.critic_networks, minibatch, "observation").amin(0)
        loss = (log_probs.exp() * (self.config.temperature * log_probs - values)).sum(1).mean()
        entropy = -(log_probs.exp() * log_probs).detach().sum(1).mean()
        return LossResult(loss, {"policy_loss": loss.detach(), "entropy": entropy})

    # --- after an update ----------------------------------------------------------------------------------------

    def after_critics(self, result: LossResult) -> None:
        self.store_errors(result)  # for prioritized
        self.ema.step(self.config.ema_rate)

    def after_policy(self, result: LossResult) -> None:  # noqa: ARG002
        self.uniform.zero_()  # the warm-up has ended

    def arrays(self) -> dict[str, Tensor]:
        """Name all that is learned. The three networks have parameters of the same names, so two get prefixes."""
        critics = {f"critics.{name}": view for name, view in self.critics.arrays().items()}
        return {**self.policy.arrays(), **critics, **self.ema.arrays("ema_critics."), **self.published_extras}


offbeat.register_algorithm("discrete_sac", DiscreteSAC, "SAC for discrete actions, arXiv:1910.07207")
