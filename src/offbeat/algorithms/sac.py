"""Soft actor-critic (arXiv:1801.01290, arXiv:1812.05905); for choices arXiv:1910.07207.

An update has three stages: the critics learn the soft values of the sampled transitions, the policy learns to maximise
these values and its entropy, and the temperature, which is the weight of the entropy, is adapted so that the entropy
reaches its target. The values of next states come from the ema critics, slow copies that are updated after each step of
the critics.

Until the first update of the policy, actions are sampled uniformly.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Protocol, Self

import numpy as np
import torch
from torch import Tensor

from offbeat.algorithms import fast_paths
from offbeat.algorithms.base import Batch, LossResult, Minibatch, ParameterGroup, Stage
from offbeat.algorithms.off_policy import OffPolicy
from offbeat.algorithms.sac_config import TARGET_ENTROPY_FRACTION, SACConfig
from offbeat.algorithms.sac_heads import BoxHeads, ChoiceHeads, Heads, Networks
from offbeat.algorithms.sac_temperature import make_temperature
from offbeat.config.config import Config
from offbeat.core.errors import ConfigError
from offbeat.losses import sac as losses
from offbeat.models.critics import Critics
from offbeat.models.flat import FlatParameters, frozen
from offbeat.models.policy_network import Body, PolicyNetwork, Uniform
from offbeat.models.spec import PolicySpec
from offbeat.models.storage import Storage

CRITIC, POLICY, TEMPERATURE = "critic", "policy", "temperature"


class FastPath(Protocol):
    """The fast path of SAC (`fast_paths.register`).

    Each method writes the gradients of a stage, and returns the result of the stage's loss with a float as the loss.
    """

    threads: int
    """Number of threads among which an update is divided."""

    def critic_gradients(self, minibatch: Minibatch) -> LossResult:
        """Write the gradients of `SAC.critic_loss`."""
        ...

    def policy_gradients(self, minibatch: Minibatch) -> LossResult:
        """Write the gradients of `SAC.policy_loss`."""
        ...

    def temperature_gradients(self, minibatch: Minibatch) -> LossResult:
        """Write the gradient of `SAC.temperature_loss` for `SAC.entropy`."""
        ...

    def close(self) -> None:
        """Stop the threads of the fast path."""
        ...


class SAC(OffPolicy[SACConfig]):
    """See the module's docstring. Up to three parameter groups, each with its stage."""

    config_class = SACConfig

    def __init__(
        self,
        config: SACConfig,
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
        self.threads = threads
        self.entropy: Tensor | float = 0.0
        """Mean entropy of the policy in nats, from the policy stage of this update, for the temperature stage."""
        super().__init__(config, spec, seed=seed, device=device, storage=storage)

    @classmethod
    def for_run(cls, config: Config, spec: PolicySpec, device: str, storage: Storage | None = None) -> Self:
        """Make the algorithm of a run."""
        settings, threads = config.settings_as(cls.config_class), config.threads
        algorithm = cls(settings, spec, seed=config.run.seed, threads=threads, device=device, storage=storage)
        if config.runtime.learner_threads not in (None, algorithm.threads):
            raise ConfigError(
                f"learner_threads is {config.runtime.learner_threads}, but {cls.__name__} has {algorithm.threads} "
                "here: only SAC itself, on a CPU with box actions, can have 2. Leave it out"
            )
        return algorithm

    # --- networks -------------------------------------------------------------------------------------------

    def build(self, generator: torch.Generator, storage: Storage) -> None:
        self._uniform = storage.register("uniform", torch.ones(1))
        """[1]: 1 until the first update of the policy, then 0."""
        self.flags = {"uniform": self._uniform}
        self.policy_network = self.make_policy(generator).to(self.device)
        self.critic_network = self.make_critics(generator).to(self.device)
        self.policy = FlatParameters(self.policy_network, POLICY, storage)
        self.critics = FlatParameters(self.critic_network, CRITIC, storage)
        self.ema_critics = storage.register("ema_critics", self.critics.values.clone())
        """[size]: the slow copy of `critics.values`."""
        self.temperature = make_temperature(self.config, self.device, TEMPERATURE, storage)
        self._target_entropy = self.config.entropy_target_of(self.spec)
        self._heads = self._make_heads()
        flats = {CRITIC: self.critics, POLICY: self.policy}
        if self.temperature.parameters is not None:
            flats[TEMPERATURE] = self.temperature.parameters
        max_grad_norm = math.inf if self.config.max_grad_norm is None else self.config.max_grad_norm
        self.groups = {name: ParameterGroup(flat, max_grad_norm, self.config.adam_eps) for name, flat in flats.items()}
        self._fast: FastPath | None = fast_paths.fast_path_of(self)
        self.threads = self._fast.threads if self._fast else 1
        self.stages = self.make_stages(self._fast)

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
        )

    def _make_heads(self) -> Heads:
        critics = self.critic_network
        fixed = frozen(critics, self.critics.arrays())
        ema = frozen(critics, self.critics.layout.views(self.ema_critics))
        networks = Networks(self.policy_network, critics, fixed, ema, self.forward)
        return BoxHeads(networks, self.spec.action_size) if self.spec.action.kind == "box" else ChoiceHeads(networks)

    def make_stages(self, fast: FastPath | None) -> tuple[Stage, ...]:
        """Return the stages of an update; `fast` is the fast path, if there is one."""
        delay = self.config.policy_delay
        critic = fast.critic_gradients if fast else None
        policy = fast.policy_gradients if fast else None
        temperature = fast.temperature_gradients if fast else None
        stages = (
            Stage(CRITIC, CRITIC, self.critic_loss, critic, self._after_critics),
            Stage(
                POLICY, POLICY, self.policy_loss, policy, self._after_policy, every=delay, pass_on=self._pass_on_entropy
            ),
            Stage(TEMPERATURE, TEMPERATURE, self._temperature_stage, temperature, every=delay),
        )
        return tuple(stage for stage in stages if stage.group in self.groups)

    # --- updates --------------------------------------------------------------------------------------------

    def start(self, progress: float) -> dict[str, float]:  # noqa: ARG002
        config = self.config
        rates = {
            CRITIC: config.critic_learning_rate,
            POLICY: config.policy_learning_rate,
            TEMPERATURE: config.temperature_learning_rate,
        }
        return {group: rates[group] or config.learning_rate for group in self.groups}

    def minibatch(self, sampled: Batch, random: np.random.Generator) -> Minibatch:
        """Return the minibatch of `OffPolicy.minibatch`; for box actions with noise and next_noise, [M, action_size].

        The noise is used to sample the actions of this update. Recorded box actions are flattened to [M, action_size].
        """
        rows = super().minibatch(sampled, random)
        action = rows["action"]
        if self.spec.action.kind == "box":
            action = action.reshape(-1, self.spec.action_size)
        noise = self._heads.noise(len(rows["reward"]), random)
        return {
            **rows,
            "action": action,
            **{name: numbers.to(self.device, non_blocking=True) for name, numbers in noise.items()},
        }

    def values(self, minibatch: Minibatch) -> Tensor:
        """Return the critics' values of the recorded actions, [critics, M]."""
        return self._heads.values(minibatch)

    def targets(self, minibatch: Minibatch) -> Tensor:
        """Return the targets of the critics, [M], without gradients."""
        return self._heads.targets(minibatch, self.temperature())

    def critic_loss(self, minibatch: Minibatch) -> LossResult:
        """Return the loss of the critics.

        The outputs have errors, [M]: the mean over the critics of |value - target|.
        """
        targets = self.targets(minibatch)
        values = self.values(minibatch)
        loss = losses.critic_loss(values, targets, self.weight_of(minibatch)).mean()
        values = values.detach()
        errors = (values - targets).abs().mean(dim=0)
        return LossResult(loss, {"critic_loss": loss.detach(), "q_mean": values.mean()}, {"errors": errors})

    def policy_loss(self, minibatch: Minibatch) -> LossResult:
        """Return the loss of the policy. The critics' parameters get no gradients.

        The outputs have entropy, a scalar: the mean over the minibatch, in nats, for the loss of the temperature.
        """
        row_losses, row_entropies = self._heads.policy_loss(minibatch, self.temperature())
        loss, entropy = row_losses.mean(), row_entropies.mean()
        return LossResult(loss, {"policy_loss": loss.detach(), "entropy": entropy}, {"entropy": entropy})

    def temperature_loss(self, entropy: Tensor | float, minibatch: Minibatch) -> LossResult:
        """Return the loss of a learned temperature.

        Args:
            entropy: entropy of the policy, the mean over the minibatch, a scalar.
            minibatch: as `minibatch` returns it.
        """
        loss = losses.temperature_loss(self.temperature.log_alpha, entropy, self.entropy_target(minibatch))
        return LossResult(loss, {"temperature_loss": loss.detach(), "temperature": self.temperature()})

    def entropy_target(self, minibatch: Minibatch) -> Tensor | float:
        """Return the target entropy in nats, the mean over the minibatch, a scalar.

        With masks the default is a fraction of the largest possible entropy over the allowed choices. The default
        without masks could be unreachable with few allowed choices, so the temperature would grow without limit.
        """
        if not self.spec.mask or self.config.target_entropy is not None:
            return self._target_entropy
        largest: Tensor = minibatch["mask"].sum(dim=1).log().mean()
        return (TARGET_ENTROPY_FRACTION * largest.double()).to(largest.dtype)

    def _temperature_stage(self, minibatch: Minibatch) -> LossResult:
        return self.temperature_loss(self.entropy, minibatch)

    def _after_critics(self, result: LossResult) -> None:
        self.store_errors(result)
        self.ema_critics.lerp_(self.critics.values, self.config.ema_rate)

    def _pass_on_entropy(self, result: LossResult) -> None:
        self.entropy = result.outputs["entropy"]

    def _after_policy(self, result: LossResult) -> None:  # noqa: ARG002
        self._uniform.zero_()

    # --- checkpoints ----------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, Tensor]:
        ema, temperature = self.critics.layout.views(self.ema_critics), self.temperature.parameters
        return {
            **self.policy.arrays(),
            **{f"critics.{name}": view for name, view in self.critics.arrays().items()},
            **{f"ema_critics.{name}": view for name, view in ema.items()},
            **({} if temperature is None else temperature.arrays()),
            **self.flags,
        }

    def close(self) -> None:
        if self._fast:
            self._fast.close()
