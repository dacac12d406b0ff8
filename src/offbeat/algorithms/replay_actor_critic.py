"""What SAC, TD3 and CrossQ share: a policy and an ensemble of critics on a replay.

In an update the critics learn the values of the sampled transitions, and in every n-th update the policy learns to
maximise these values. Until the first update of the policy, in this run or in the one of its initial weights, actions
are sampled uniformly.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from offbeat.algorithms import fast_paths
from offbeat.algorithms.base import Batch, LossResult, Minibatch, ParameterGroup, Stage
from offbeat.algorithms.off_policy import OffPolicy
from offbeat.algorithms.replay_actor_critic_config import ReplayActorCriticConfig
from offbeat.config.config import Config
from offbeat.core.errors import ConfigError
from offbeat.losses.critics import critic_loss
from offbeat.models.critics import Critics
from offbeat.models.flat import FlatParameters, frozen
from offbeat.models.policy_network import Body, PolicyNetwork, Uniform
from offbeat.models.spec import PolicySpec
from offbeat.models.storage import Storage

CRITIC, POLICY = "critic", "policy"


class Networks(NamedTuple):
    """The policy, and the critics with their copy for the policy's loss."""

    policy_network: PolicyNetwork
    critic_network: Critics
    frozen_critics: Critics
    """The critics of the policy's loss, on the same parameter values, but without gradients for them."""
    forward: Callable[..., Tensor]
    """`OffPolicy.forward`."""

    def distribution_parameters(self, minibatch: Minibatch, name: str) -> Tensor:
        """Return the parameters of the action distributions, [M, outputs], at 'observation' or 'next_observation'."""
        return self.forward(self.policy_network, minibatch, name)

    def features(self, critics: Critics, minibatch: Minibatch, name: str) -> Tensor:
        """Return the features of the observations that are an input of critics, [M, F].

        The critics' core starts with zeros, because actors store only the state of the policy's core.
        """
        return self.forward(critics.body, minibatch, name, stored=False)

    def values(self, critics: Critics, minibatch: Minibatch, name: str, action: Tensor | None = None) -> Tensor:
        """Return the values by critics, [E, M] of actions [M, action_size], without actions [E, M, choices] of all.

        Args:
            critics: the critics, or a copy of them.
            minibatch: as `minibatch` returns it.
            name: 'observation' or 'next_observation'.
            action: the actions, if they are an input of the critics.
        """
        values: Tensor = critics(self.features(critics, minibatch, name), action)
        return values


class ReplayFastPath(Protocol):
    """The fast path of an algorithm with a policy and critics (`fast_paths.register`).

    Each method writes the gradients of a stage, and returns the result of the stage's loss with a float as the loss.
    """

    threads: int
    """Number of threads among which an update is divided."""

    @abstractmethod
    def critic_gradients(self, minibatch: Minibatch) -> LossResult:
        """Write the gradients of `critic_loss`."""
        ...

    @abstractmethod
    def policy_gradients(self, minibatch: Minibatch) -> LossResult:
        """Write the gradients of `policy_loss`."""
        ...

    def close(self) -> None:
        """Stop the threads of the fast path."""
        ...


Settings = TypeVar("Settings", bound=ReplayActorCriticConfig)
Fast = TypeVar("Fast", bound=ReplayFastPath)


class ReplayActorCritic(OffPolicy[Settings], Generic[Settings, Fast]):
    """See the module's docstring. A parameter group for the critics and one for the policy, each with its stage."""

    def __init__(
        self,
        config: Settings,
        spec: PolicySpec,
        *,
        seed: int,
        threads: int = 1,
        device: str = "cpu",
        storage: Storage | None = None,
    ) -> None:
        """Make new networks. Arguments are as in `OffPolicy`, and `threads`, the number of threads among which the fast
        path divides an update. It does not change the results.
        """
        self.most_threads = threads
        super().__init__(config, spec, seed=seed, device=device, storage=storage)

    @classmethod
    def for_run(cls, config: Config, spec: PolicySpec, device: str, storage: Storage | None = None) -> Self:
        """Make the algorithm of a run."""
        settings, threads = config.settings_as(cls.config_class), config.threads
        algorithm = cls(settings, spec, seed=config.run.seed, threads=threads, device=device, storage=storage)
        if algorithm.threads and config.runtime.learner_threads not in (None, algorithm.threads):
            algorithm.close()
            raise ConfigError(
                f"learner_threads is {config.runtime.learner_threads}, but {cls.__name__} divides the updates of plain "
                f"MLPs among at most 2 threads: pass --set learner_threads={algorithm.threads}"
            )
        return algorithm

    # --- networks -------------------------------------------------------------------------------------------

    def build(self, generator: torch.Generator, storage: Storage) -> None:
        self._uniform = torch.ones(1)
        """[1]: 1 until the first update of the policy, then 0; published if the policy starts with uniform actions."""
        self.published_extras = {}
        if self.spec.uniform_start:
            self.published_extras["uniform"] = self._uniform = storage.register("uniform", self._uniform)
        self.policy_network = self.make_policy(generator).to(self.device)
        self.critic_network = self.make_critics(generator).to(self.device)
        self.policy = FlatParameters(self.policy_network, POLICY, storage)
        self.critics = FlatParameters(self.critic_network, CRITIC, storage)
        self.networks = Networks(
            self.policy_network,
            self.critic_network,
            frozen(self.critic_network, self.policy_critics()),
            self.forward,
        )
        flats = {CRITIC: self.critics, POLICY: self.policy, **self.build_more(generator, storage)}
        max_grad_norm = math.inf if self.config.max_grad_norm is None else self.config.max_grad_norm
        adam = self.config.adam_eps, self.config.adam_beta1
        self.groups = {name: ParameterGroup(flat, max_grad_norm, *adam) for name, flat in flats.items()}
        self._fast: Fast | None = fast_paths.fast_path_of(self)
        self.threads = self._fast.threads if self._fast else 0
        self.stages = self.make_stages(self._fast)

    def build_more(self, generator: torch.Generator, storage: Storage) -> dict[str, FlatParameters]:  # noqa: ARG002
        """Make what the losses need besides policy and critics; return its parameter groups, by name.

        Each needs a stage and a learning rate from `start`. Arguments are as in `OffPolicy.build`.
        """
        return {}

    def policy_critics(self) -> dict[str, Tensor]:
        """Return the parameters of the critics in the policy's loss, name -> view of `critics.values`."""
        return self.critics.arrays()

    def make_policy(self, generator: torch.Generator) -> PolicyNetwork:
        """Return a new policy network, from observations [M, inputs] to the action distribution's parameters.

        Actors build their network from the spec, so the parameters must be those of `published.parameter_shapes`.
        """
        return PolicyNetwork(self.spec, Uniform(generator), head_gain=1.0)

    def make_critics(self, generator: torch.Generator) -> Critics:
        """Return new critics. For box actions the action is an input; for choices they return the values of all."""
        spec, box = self.spec, self.spec.action.kind == "box"
        return Critics(
            Body(replace(spec, hidden_sizes=()), Uniform(generator)),
            spec.hidden_sizes,
            spec.activation,
            critics=self.config.critics,
            choices=None if box else spec.action.nvec[0],
            action_size=spec.action_size if box else 0,
            generator=generator,
            layer_norm=self.config.layer_norm,
        )

    def make_stages(self, fast: Fast | None) -> tuple[Stage, ...]:
        """Return the stages of an update; `fast` is the fast path, if there is one."""
        critic = fast.critic_gradients if fast else None
        policy = fast.policy_gradients if fast else None
        delay = self.config.policy_delay
        return (
            Stage(CRITIC, CRITIC, self.critic_loss, critic, self.after_critics),
            Stage(POLICY, POLICY, self.policy_loss, policy, self.after_policy, every=delay),
        )

    # --- updates --------------------------------------------------------------------------------------------

    def start(self, progress: float) -> dict[str, float]:  # noqa: ARG002
        config = self.config
        rates = {CRITIC: config.critic_learning_rate, POLICY: config.policy_learning_rate}
        return {group: rate or config.learning_rate for group, rate in rates.items()}

    def minibatch(self, sampled: Batch, random: np.random.Generator) -> Minibatch:
        """Return the minibatch of `OffPolicy.minibatch`, with the noise of this update.

        Recorded box actions are flattened to [M, action_size].
        """
        rows = super().minibatch(sampled, random)
        action = rows["action"]
        if self.spec.action.kind == "box":
            action = action.reshape(-1, self.spec.action_size)
        noise = self.noise(len(rows["reward"]), random)
        return {
            **rows,
            "action": action,
            **{name: numbers.to(self.device, non_blocking=True) for name, numbers in noise.items()},
        }

    def noise(self, rows: int, random: np.random.Generator) -> dict[str, Tensor]:
        """Return the random numbers that the losses of an update need, name -> [M, ...], on the CPU.

        Args:
            rows: M.
            random: the random stream of this learning step.
        """
        raise NotImplementedError

    def critic_loss(self, minibatch: Minibatch) -> LossResult:
        """Return the loss of the critics: `loss_of_values` of the recorded actions' values and their targets."""
        raise NotImplementedError

    def loss_of_values(self, values: Tensor, targets: Tensor, minibatch: Minibatch) -> LossResult:
        """Return the loss of the critics.

        The outputs have errors, [M]: the mean over the critics of |value - target|.

        Args:
            values: [critics, M], the critics' values of the recorded actions.
            targets: [M], without gradients.
            minibatch: as `minibatch` returns it.
        """
        loss = critic_loss(values, targets, self.weight_of(minibatch)).mean()
        values = values.detach()
        errors = (values - targets).abs().mean(dim=0)
        return LossResult(loss, {"critic_loss": loss.detach(), "q_mean": values.mean()}, {"errors": errors})

    def policy_loss(self, minibatch: Minibatch) -> LossResult:
        """Return the loss of the policy. The critics' parameters get no gradients."""
        raise NotImplementedError

    def after_critics(self, result: LossResult) -> None:
        """Is called at the end of each update, with the result of `critic_loss`."""
        self.store_errors(result)

    def after_policy(self, result: LossResult) -> None:  # noqa: ARG002
        """Is called at the end of each update in which the policy has changed, with the result of `policy_loss`."""
        self._uniform.zero_()

    # --- checkpoints ----------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, Tensor]:
        return {
            **self.policy.arrays(),
            **self.critics.layout.views(self.critics.values, "critics."),
            **self.more_arrays(),
            **self.published_extras,
        }

    def more_arrays(self) -> dict[str, Tensor]:
        """Return the arrays of what `build_more` has made, by their names in a checkpoint."""
        return {}

    def close(self) -> None:
        if self._fast:
            self._fast.close()
