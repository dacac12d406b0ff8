"""PEARL: soft actor-critic for many tasks, with a latent task variable (arXiv:1903.08254).

Policy and critics get the task variable z as an input. A context encoder infers it: each transition of a task's context
gives a Gaussian factor, and the posterior of z is their product. An update has the rows and the contexts of several
tasks. Its critic stage learns critics and context encoder together, from the loss of the critics and the KL divergence
of the posteriors from the prior N(0, I). The policy stage uses the same z, without gradients for it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from offbeat.algorithms.base import Batch, LossResult, Minibatch, Stage
from offbeat.algorithms.pearl_config import PEARLConfig
from offbeat.algorithms.sac import SAC
from offbeat.algorithms.soft_actor_critic import SoftFastPath
from offbeat.core.types import Field
from offbeat.core.visits import TASK
from offbeat.losses.pearl import kl_to_prior
from offbeat.memory.replay.tasks import CONTEXT
from offbeat.models.context_encoder import (
    CONTEXT_ENCODER,
    ContextEncoder,
    TaskPosterior,
    context_tensors,
    product_of_gaussians,
    with_task,
)
from offbeat.models.critics import Critics
from offbeat.models.policy_network import Uniform
from offbeat.models.storage import Storage


class PEARL(SAC):
    """See the module's docstring. The context encoder is in the parameter group of the critics.

    A minibatch has the rows of K tasks, task by task, in addition to the fields of SAC's:

    - context: [K, C, inputs], the inputs of the context encoder;
    - task_noise: [K, latent_size], the noise with which z is sampled from the posteriors.
    """

    config: PEARLConfig
    config_class = PEARLConfig

    def build(self, generator: torch.Generator, storage: Storage) -> None:
        super().build(generator, storage)
        arrays = self.critics.arrays()
        self.published_extras = {name: array for name, array in arrays.items() if name.startswith(CONTEXT_ENCODER)}
        self._task_variable = torch.zeros(0)
        """[K, latent_size]: z of the critic stage, for the policy stage of the same update."""

    def make_critics(self, generator: torch.Generator) -> Critics:
        """Return new critics that have the context encoder as a module, so that one optimizer learns both."""
        critics = super().make_critics(generator)
        self.context_encoder = ContextEncoder(self.spec, Uniform(generator))
        critics.add_module(CONTEXT_ENCODER.removesuffix("."), self.context_encoder)
        return critics

    def make_stages(self, fast: SoftFastPath | None) -> tuple[Stage, ...]:
        critic, *others = super().make_stages(fast)
        return (replace(critic, pass_on=self._pass_on_task_variable), *others)

    def fields(self) -> list[Field]:
        return [*super().fields(), Field(TASK, (), "int64", per="unroll")]

    # --- updates --------------------------------------------------------------------------------------------

    def minibatch(self, sampled: Batch, random: np.random.Generator) -> Minibatch:
        rows, tasks = super().minibatch(sampled, random), self.config.meta_batch
        context = {name.removeprefix(CONTEXT): array for name, array in sampled.items() if name.startswith(CONTEXT)}
        noise = random.standard_normal((tasks, self.config.latent_size), dtype=np.float32)
        return {
            **rows,
            "context": context_tensors(self.spec, context).reshape(tasks, self.config.context_size, -1),
            "task_noise": torch.from_numpy(noise).to(self.device, non_blocking=True),
        }

    def infer(self, minibatch: Minibatch) -> TaskPosterior:
        """Return the posterior of the task variable of each task."""
        return product_of_gaussians(self.context_encoder(minibatch["context"]))

    def critic_loss(self, minibatch: Minibatch) -> LossResult:
        """Return the loss of critics and context encoder. The outputs have task_variable too, [K, latent_size]."""
        posterior = self.infer(minibatch)
        task_variable, kl = posterior.sample(minibatch["task_noise"]), kl_to_prior(*posterior)
        fixed = task_variable.detach()
        result = super().critic_loss(
            {
                **minibatch,
                "observation": with_task(minibatch["observation"], task_variable),
                "next_observation": with_task(minibatch["next_observation"], fixed),
            }
        )
        metrics = {"kl": kl.detach().mean(), "posterior_std": posterior.variance.detach().sqrt().mean()}
        return LossResult(
            result.loss + self.config.kl_weight * kl.sum(),
            {**result.metrics, **metrics},
            {**result.outputs, "task_variable": fixed},
        )

    def policy_loss(self, minibatch: Minibatch) -> LossResult:
        """Return the loss of the policy, with the task variable of the critic stage of the same update."""
        return super().policy_loss(
            {**minibatch, "observation": with_task(minibatch["observation"], self._task_variable)}
        )

    def _pass_on_task_variable(self, result: LossResult) -> None:
        self._task_variable = result.outputs["task_variable"]

    # --- checkpoints ----------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, Tensor]:
        """Return the arrays of SAC. The context encoder is among them once, by its published names."""
        twice = (f"critics.{CONTEXT_ENCODER}", f"ema_critics.{CONTEXT_ENCODER}")
        return {name: array for name, array in super().arrays().items() if not name.startswith(twice)}
