"""What SAC and CrossQ share: the policy maximises its entropy too, with a fixed or a learned weight, the temperature.

An update has three stages: the critics learn the soft values of the sampled transitions, the policy learns to maximise
these values and its entropy, and the temperature is adapted so that the entropy reaches its target.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from offbeat.algorithms.base import LossResult, Minibatch, Stage
from offbeat.algorithms.replay_actor_critic import ReplayActorCritic, ReplayFastPath
from offbeat.algorithms.sac_config import TARGET_ENTROPY_FRACTION, SoftActorCriticConfig
from offbeat.algorithms.sac_heads import BoxHeads, ChoiceHeads, Heads
from offbeat.algorithms.sac_temperature import Temperature
from offbeat.losses import sac as losses
from offbeat.models.flat import FlatParameters
from offbeat.models.storage import Storage

TEMPERATURE = "temperature"


class SoftFastPath(ReplayFastPath, Protocol):
    """The fast path of SAC or CrossQ."""

    def temperature_gradients(self, minibatch: Minibatch) -> LossResult:
        """Write the gradient of `SoftActorCritic.temperature_loss` for `SoftActorCritic.entropy`."""
        ...


SoftSettings = TypeVar("SoftSettings", bound=SoftActorCriticConfig)


class SoftActorCritic(ReplayActorCritic[SoftSettings, SoftFastPath], Generic[SoftSettings]):
    """See the module's docstring. Up to three parameter groups, each with its stage."""

    entropy: Tensor | float = 0.0
    """Mean entropy of the policy in nats, from the policy stage of this update, for the temperature stage."""

    # --- networks -------------------------------------------------------------------------------------------

    def build_more(self, generator: torch.Generator, storage: Storage) -> dict[str, FlatParameters]:
        self.temperature = Temperature(self.config, self.device, TEMPERATURE, storage)
        self._target_entropy = self.config.entropy_target_of(self.spec)
        box = self.spec.action.kind == "box"
        self.heads: Heads = BoxHeads(self.networks, self.spec.action_size) if box else ChoiceHeads(self.networks)
        parameters = self.temperature.parameters
        own = {} if parameters is None else {TEMPERATURE: parameters}
        return {**own, **super().build_more(generator, storage)}

    def make_stages(self, fast: SoftFastPath | None) -> tuple[Stage, ...]:
        critic, policy = super().make_stages(fast)
        policy = replace(policy, pass_on=self._pass_on_entropy)
        if TEMPERATURE not in self.groups:
            return critic, policy
        gradients = fast.temperature_gradients if fast else None
        return critic, policy, Stage(TEMPERATURE, TEMPERATURE, self._temperature_stage, gradients, every=policy.every)

    # --- updates --------------------------------------------------------------------------------------------

    def start(self, progress: float) -> dict[str, float]:
        rates = super().start(progress)
        if TEMPERATURE in self.groups:
            rates[TEMPERATURE] = self.config.temperature_learning_rate or self.config.learning_rate
        return rates

    def noise(self, rows: int, random: np.random.Generator) -> dict[str, Tensor]:
        """Return noise and next_noise for box actions, [M, action_size], to sample the actions of this update."""
        return self.heads.noise(rows, random)

    def policy_loss(self, minibatch: Minibatch) -> LossResult:
        """Return the loss of the policy. The critics' parameters get no gradients.

        The outputs have entropy, a scalar: the mean over the minibatch, in nats, for the loss of the temperature.
        """
        row_losses, row_entropies = self.heads.policy_loss(minibatch, self.temperature())
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

    def _pass_on_entropy(self, result: LossResult) -> None:
        self.entropy = result.outputs["entropy"]

    # --- checkpoints ----------------------------------------------------------------------------------------

    def more_arrays(self) -> dict[str, Tensor]:
        parameters = self.temperature.parameters
        return {**({} if parameters is None else parameters.arrays()), **super().more_arrays()}
