"""Proximal Policy Optimization (arXiv:1707.06347), config and algorithm.

With max_lag = 0 the data is on-policy: GAE, and the policy that acted is the clip's reference. With max_lag > 0
it is corrected: V-trace (arXiv:1802.01561) gives targets and weighted advantages, and the clip's reference is
the policy at the start of the learning step, recomputed (decoupled PPO, arXiv:2110.00641).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offbeat.algorithms.ppo_numpy import Coefficients, NumpyGradients, applies
from offbeat.config import RuntimeConfig
from offbeat.errors import ConfigError
from offbeat.fields import Count, NonNegative, Positive, Share
from offbeat.losses.advantages import Targets, generalized_advantages, vtrace
from offbeat.losses.ppo import (
    approx_kl,
    clipped_surrogate,
    clipped_value_loss,
    effective_sample_size,
    explained_variance,
    normalized,
)
from offbeat.models.actor_critic import ActorCritic
from offbeat.models.distributions import Categorical
from offbeat.models.flat import FlatParameters
from offbeat.models.layout import Layout
from offbeat.models.normalize import RunningStatistics
from offbeat.models.numpy_policy import OBSERVATION_CLIP
from offbeat.models.spec import Activation, Distribution, PolicySpec
from offbeat.seeding import derive_seed
from offbeat.types import Array, Batch, EnvSpec, Field, LossResult, Minibatch, ParameterGroup, Stage, Tree

GROUP = "actor_critic"
KL_STOP_FACTOR = 1.5
"""The remaining epochs are left out once the mean KL of one is over this many times `kl_target`."""
KL_RATE_FACTOR = 1.5
KL_RATE_RANGE = (1e-6, 1e-2)


@dataclass(frozen=True)
class PPOConfig:
    """The settings of PPO; the defaults are those of arXiv:1707.06347 for continuous control, unless noted."""

    learning_rate: Positive = 3e-4
    """Adam's step size, at the start."""
    learning_rate_schedule: Literal["constant", "linear", "kl"] = "linear"
    """linear: down to 0 over `steps`; kl: adapted so that a learning step's KL stays near `kl_target`."""
    gamma: Share = 0.99
    """Discount per env step."""
    gae_lambda: Share = 0.95
    """Decay of the trace in GAE and V-trace; 1 is the full return."""
    epochs: Count = 4
    """Passes over a batch."""
    minibatch_size: Count = 256
    """Rows that one update sees, at most: a batch is cut into equal parts no larger than this."""
    clip: Positive = 0.2
    """The ratio to the proximal policy gains nothing outside of 1 +- clip."""
    clip_schedule: Literal["constant", "linear"] = "constant"
    """linear: down to 0 over `steps`."""
    value_clip: Positive | None = None
    """Limit on how far a value moves in a learning step, in units of the (normalised) return; none: no limit."""
    value_coef: NonNegative = 0.5
    """Weight of the value loss, which is half the squared error."""
    entropy_coef: NonNegative = 0.0
    """Weight of the exploration bonus, see `exploration`."""
    exploration: Literal["entropy", "symmetric_kl"] = "entropy"
    """entropy: reward entropy; symmetric_kl: punish the symmetric KL to the uniform policy (discrete actions)."""
    max_grad_norm: Positive = 0.5
    """Gradients of all parameters together are scaled down to this norm."""
    kl_target: Positive | None = None
    """KL between the policies before and after a learning step, in nats: stops epochs early, or adapts the rate."""
    normalize_advantages: bool = True
    """Mean 0 and standard deviation 1 over each minibatch."""
    recompute_advantages: bool = False
    """Recompute values and advantages before each epoch (arXiv:2006.05990, section 3.5)."""
    rho_clip: Positive = 1.0
    """V-trace's bound on the weight of an error; used with max_lag > 0."""
    c_clip: Positive = 1.0
    """V-trace's bound on the weight of later errors; used with max_lag > 0."""
    hidden_sizes: tuple[Count, ...] = (64, 64)
    """Units of each hidden layer."""
    activation: Activation = "tanh"
    """Between the layers."""
    shared_trunk: bool = False
    """One body for policy and critic instead of one each."""
    action_distribution: Literal["auto", "squashed"] = "auto"
    """auto: categorical or Gaussian, as the actions are; squashed: a Gaussian through tanh (bounded boxes)."""
    log_std_init: float = 0.0
    """Logarithm of the Gaussian's first standard deviation, in units of half the action's range."""
    normalize_observations: bool = False
    """Shift and scale observations by running statistics."""
    normalize_returns: bool = False
    """The critic learns returns divided by their running standard deviation."""
    adam_eps: Positive = 1e-5
    """Adam's epsilon; 1e-5 as in the first implementation."""

    def check(self, runtime: RuntimeConfig) -> None:
        """Refuse settings that cannot work together.

        Raises:
            ConfigError: with the arithmetic and the remedy.
        """
        if runtime.batch_rows < self.minibatch_size:
            raise ConfigError(
                f"minibatch_size is {self.minibatch_size}, but a batch has only unrolls_per_batch x unroll_length "
                f"x envs_per_actor = {runtime.batch_unrolls} x {runtime.unroll_length} x {runtime.envs_per_actor} "
                f"= {runtime.batch_rows} rows: type --set minibatch_size={runtime.batch_rows}, or a larger batch"
            )
        if self.learning_rate_schedule == "kl" and self.kl_target is None:
            raise ConfigError("learning_rate_schedule=kl needs a target to adapt to: type --set kl_target=0.01")

    def policy_spec(self, env: EnvSpec) -> PolicySpec:
        """Return the policy that these settings make for an env.

        Raises:
            ConfigError: the env's actions do not suit these settings.
        """
        discrete = env.action.kind != "box"
        if discrete and self.action_distribution == "squashed":
            raise ConfigError(
                f"action_distribution is squashed, but {env.id} has {env.action.kind} actions, which cannot pass "
                "through a tanh: type --set action_distribution=auto"
            )
        if not discrete and self.exploration == "symmetric_kl":
            raise ConfigError(
                f"exploration is symmetric_kl, but {env.id} has box actions, over which no policy is uniform: "
                "type --set exploration=entropy"
            )
        if self.action_distribution == "squashed" and not np.isfinite([*env.action.low, *env.action.high]).all():
            raise ConfigError(
                f"action_distribution is squashed, but {env.id} has actions without bounds: "
                "type --set action_distribution=auto"
            )
        gaussian: Distribution = "squashed" if self.action_distribution == "squashed" else "gaussian"
        return PolicySpec(
            observation=env.observation,
            action=env.action,
            hidden_sizes=self.hidden_sizes,
            activation=self.activation,
            distribution="categorical" if discrete else gaussian,
            normalize=self.normalize_observations,
        )


class PPO:
    """See the module's docstring. One parameter group, one stage."""

    def __init__(self, config: PPOConfig, spec: PolicySpec, *, seed: int, corrected: bool, device: str = "cpu") -> None:
        """Make a new model.

        Args:
            config: the settings.
            spec: the policy, from `config.policy_spec`.
            seed: keys the initial weights.
            corrected: whether the data may lag (max_lag > 0).
            device: where the learner's tensors live.
        """
        self._config, self._spec, self._corrected = config, spec, corrected
        generator = torch.Generator().manual_seed(derive_seed(seed, "init"))
        self._model = ActorCritic(
            spec, shared=config.shared_trunk, log_std_init=config.log_std_init, generator=generator
        ).to(device)
        self._flat = FlatParameters(self._model)
        self._layout = spec.layout()
        self._policy_size = Layout.of(spec.parameter_shapes()).size
        self.groups: Mapping[str, ParameterGroup] = {
            GROUP: ParameterGroup(self._flat, config.max_grad_norm, config.adam_eps)
        }
        self._by_hand = (
            NumpyGradients(spec, self._flat)
            if applies(spec, self._flat, shared=config.shared_trunk, exploration=config.exploration)
            else None
        )
        self.stages: tuple[Stage, ...] = (
            Stage("actor_critic", GROUP, self._loss, self._gradients if self._by_hand else None),
        )
        self._observations = RunningStatistics(spec.inputs)
        self._returns = RunningStatistics(1)
        self._set_statistics()
        self._clip = config.clip
        self._rate = config.learning_rate
        self._epoch_kl: list[Tensor | float] = []
        self._first = True

    def fields(self) -> list[Field]:
        return [Field("behavior_log_prob", (), "float32")]

    def begin(self, progress: float) -> dict[str, float]:
        config = self._config
        remaining = max(0.0, 1.0 - progress)
        self._clip = config.clip * (remaining if config.clip_schedule == "linear" else 1.0)
        if config.learning_rate_schedule != "kl":
            self._rate = config.learning_rate * (remaining if config.learning_rate_schedule == "linear" else 1.0)
        return {GROUP: self._rate}

    # --- targets --------------------------------------------------------------------------------------------

    @torch.no_grad()
    def prepare(self, batch: Batch) -> Batch:
        """Add normalised observations [T + 1, B, inputs], proximal log-probabilities and targets [T, B]."""
        rows = {name: batch[name][:-1] for name in ("action", "reward", "terminated", "truncated", "valid")}
        raw = self._flatten(batch)
        observation = self._normalize(raw)
        behavior = batch["behavior_log_prob"][:-1]
        prepared = {**rows, "raw_observation": raw, "observation": observation, "behavior_log_prob": behavior}
        prepared["proximal_log_prob"] = self._log_prob(prepared) if self._corrected else behavior
        return {**prepared, **self._targets(prepared)}

    def _flatten(self, batch: Batch) -> Tensor:
        leaves = [
            batch[leaf.name].to(torch.float32).reshape(*batch["reward"].shape, -1) for leaf in self._spec.observation
        ]
        return leaves[0] if len(leaves) == 1 else torch.cat(leaves, dim=2)

    def _normalize(self, observation: Tensor) -> Tensor:
        if not self._spec.normalize:
            return observation
        clip = float(OBSERVATION_CLIP)
        return ((observation - self._mean) * self._scale).clamp_(-clip, clip)

    def _log_prob(self, batch: Batch) -> Tensor:
        """Return the current policy's log-probabilities of the recorded actions, [T, B]."""
        observation, action = batch["observation"][:-1].flatten(0, 1), batch["action"].flatten(0, 1)
        if self._by_hand:
            log_prob = torch.from_numpy(self._by_hand.log_prob(observation.numpy(), action.numpy()))
        else:
            log_prob = self._model(observation)[0].log_prob(action)
        return log_prob.reshape(batch["reward"].shape)

    def _values(self, observation: Tensor) -> Tensor:
        """Return the critic's values in units of reward, [T + 1, B]."""
        rows = observation.flatten(0, 1)
        values = torch.from_numpy(self._by_hand.values(rows.numpy())) if self._by_hand else self._model.value(rows)
        return values.reshape(observation.shape[:2]) * self._return_std

    @torch.no_grad()
    def _targets(self, batch: Batch) -> dict[str, Tensor]:
        """Return advantages, values and value targets, [T, B]; values in units of the normalised return."""
        config = self._config
        values = self._values(batch["observation"])
        rows = (batch["reward"], values, batch["terminated"], batch["truncated"], batch["valid"])
        if self._corrected:
            log_ratio = batch["proximal_log_prob"] - batch["behavior_log_prob"]
            targets = vtrace(log_ratio, *rows, config.gamma, config.gae_lambda, config.rho_clip, config.c_clip)
        else:
            targets = generalized_advantages(*rows, config.gamma, config.gae_lambda)
        return self._scaled(targets, values[:-1])

    def _scaled(self, targets: Targets, values: Tensor) -> dict[str, Tensor]:
        return {
            "advantage": targets.advantages,
            "value_target": targets.value_targets / self._return_std,
            "proximal_value": values / self._return_std,
        }

    # --- minibatches ----------------------------------------------------------------------------------------

    def minibatches(self, batch: Batch, random: np.random.Generator) -> Iterator[Minibatch]:
        valid = batch["valid"].flatten().nonzero().squeeze(1)
        self._first = True
        parts = -(-len(valid) // self._config.minibatch_size)
        for epoch in range(self._config.epochs if parts else 0):  # a small batch may be reset rows alone
            if epoch and self._config.recompute_advantages:
                proximal_value = batch["proximal_value"]  # of the learning step's start, as value_clip means it
                batch = {**batch, **self._targets(batch), "proximal_value": proximal_value}
            self._epoch_kl.clear()
            yield from _shuffled(batch, valid, parts, random)
            if self._drifted():
                return

    def _drifted(self) -> bool:
        """Whether the last epoch took the policy far enough from the proximal one to stop."""
        target = self._config.kl_target
        if target is None or self._config.learning_rate_schedule == "kl":
            return False
        return self._mean_kl() > KL_STOP_FACTOR * target

    def _mean_kl(self) -> float:
        return fmean(map(float, self._epoch_kl)) if self._epoch_kl else 0.0

    # --- the loss -------------------------------------------------------------------------------------------

    def _loss(self, minibatch: Minibatch) -> LossResult:
        config = self._config
        distribution, values = self._model(minibatch["observation"])
        log_ratio = distribution.log_prob(minibatch["action"]) - minibatch["proximal_log_prob"]
        advantages = minibatch["advantage"]
        if config.normalize_advantages:
            advantages = normalized(advantages)
        policy_loss = clipped_surrogate(log_ratio, advantages, self._clip).mean()
        value_loss = clipped_value_loss(
            values, minibatch["proximal_value"], minibatch["value_target"], config.value_clip
        ).mean()
        loss = policy_loss + config.value_coef * value_loss
        entropy = distribution.entropy().mean()
        if config.exploration == "symmetric_kl" and isinstance(distribution, Categorical):
            loss = loss + config.entropy_coef * distribution.symmetric_kl_to_uniform().mean()
        elif config.entropy_coef:
            loss = loss - config.entropy_coef * entropy
        figures = {
            "policy_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "entropy": entropy.detach(),
            **_ratio_figures(log_ratio.detach(), self._clip),
        }
        return LossResult(loss, self._noted(figures))

    def _gradients(self, minibatch: Minibatch) -> LossResult:
        """Write the gradients of `_loss` by hand."""
        config = self._config
        weigh = Coefficients(
            self._clip, config.value_clip, config.value_coef, config.entropy_coef, config.normalize_advantages
        )
        loss, figures = cast("NumpyGradients", self._by_hand).write(minibatch, weigh)
        return LossResult(loss, self._noted(figures))

    def _noted(self, figures: Mapping[str, Tensor | float]) -> dict[str, Tensor | float]:
        """Note the KL of the epoch; of the ratios' deviations from 1, report that of the first minibatch only."""
        self._epoch_kl.append(figures["approx_kl"])
        reported = {name: value for name, value in figures.items() if name != "ratio_deviation"}
        if self._first:
            reported["ratio_max_deviation_first"] = figures["ratio_deviation"]
            self._first = False
        return reported

    # --- after the updates ----------------------------------------------------------------------------------

    def finish(self, batch: Batch) -> dict[str, float]:
        valid = batch["valid"]
        if not valid.any():
            return {}
        targets = batch["value_target"][valid]
        behind = (batch["proximal_log_prob"] - batch["behavior_log_prob"])[valid]
        figures = {
            "explained_variance": float(explained_variance(batch["proximal_value"][valid], targets)),
            "effective_sample_size": float(effective_sample_size(behind)),
        }
        if self._config.learning_rate_schedule == "kl":
            self._adapt_rate()
        if self._spec.normalize:
            self._observations.update(batch["raw_observation"][:-1][valid].cpu().numpy())
        if self._config.normalize_returns:
            self._returns.update((targets * self._return_std).cpu().numpy()[:, None])
        self._set_statistics()
        return figures

    def _adapt_rate(self) -> None:
        """Slow down above twice the KL target, speed up below half of it."""
        kl, target = self._mean_kl(), self._config.kl_target or 0.0
        low, high = KL_RATE_RANGE
        if kl > 2 * target:
            self._rate = max(low, self._rate / KL_RATE_FACTOR)
        elif kl < target / 2:
            self._rate = min(high, self._rate * KL_RATE_FACTOR)

    def _set_statistics(self) -> None:
        """Fix the statistics that the next learning step, and whoever acts with it, will use."""
        mean, scale = self._observations.published()
        self._statistics = {"observation_mean": mean, "observation_scale": scale} if self._spec.normalize else {}
        device = self._flat.values.device
        self._mean, self._scale = torch.from_numpy(mean).to(device), torch.from_numpy(scale).to(device)
        self._return_std = float(1.0 / self._returns.published()[1][0])

    # --- what is published and kept -------------------------------------------------------------------------

    def write_published(self, vector: NDArray[np.float32]) -> None:
        arrays = self._layout.views(vector)
        for name, values in self._statistics.items():
            arrays[name][:] = values
        policy = vector[: self._policy_size]
        policy[:] = self._flat.values[: self._policy_size].cpu().numpy()

    def weights(self) -> Tree:
        arrays = {name: view.cpu().numpy() for name, view in self._flat.arrays().items()}
        arrays |= self._statistics
        if self._config.normalize_returns:
            arrays["return_std"] = np.array([self._return_std], np.float32)
        return arrays

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, Array]) -> None:
        for name, view in self._flat.arrays().items():
            view.copy_(torch.from_numpy(weights[name]))

    def state(self) -> dict[str, Any]:
        return {
            "observations": self._observations.state(),
            "returns": self._returns.state(),
            "learning_rate": self._rate,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.restore_statistics(state)
        self._rate = float(state["learning_rate"])

    def restore_statistics(self, state: Mapping[str, Any]) -> None:
        self._observations.restore(state["observations"])
        self._returns.restore(state["returns"])
        self._set_statistics()


def _ratio_figures(log_ratio: Tensor, clip: float) -> dict[str, Tensor]:
    ratio = log_ratio.exp()
    deviation = (ratio - 1).abs()
    return {
        "approx_kl": approx_kl(log_ratio),
        "ratio_mean": ratio.mean(),
        "clip_fraction": (deviation > clip).float().mean(),
        "ratio_deviation": deviation.max(),
    }


_SHUFFLED = ("observation", "action", "proximal_log_prob", "advantage", "value_target", "proximal_value")


def _shuffled(batch: Batch, valid: Tensor, parts: int, random: np.random.Generator) -> Iterator[Minibatch]:
    """Yield `parts` equal minibatches of the valid rows: one gather per array and epoch, then slices of it."""
    order = valid[torch.from_numpy(random.permutation(len(valid))).to(valid.device)]
    rows = len(batch["reward"])
    chunks = {name: batch[name][:rows].flatten(0, 1)[order].tensor_split(parts) for name in _SHUFFLED}
    for part in range(parts):
        yield {name: chunks[name][part] for name in _SHUFFLED}
