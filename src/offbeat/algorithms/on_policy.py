"""The base class of on-policy actor-critics: network, statistics, targets, losses, and one update per batch.

The base class has the loss of the plain policy gradient. A2C and IMPALA use it with their own settings; PPO overrides
it with several epochs of minibatches and clipped losses. The methods are in the order of a learning step: start,
prepare, minibatches, loss, finish, write_published.

With max_lag > 0 or passes > 1 an older policy, the *behavior* policy, has collected the data. A2C and IMPALA, and PPO
with clip_reference = proximal, correct for that (`corrected`): the log-probabilities of the *proximal* policy, which is
that of the start of the learning step, are recomputed, and V-trace (arXiv:1802.01561) estimates the advantages, with
the ratio of the proximal to the behavior policy. Otherwise, as in PPO by default, GAE estimates the advantages.

The *reference* policy of a batch is the proximal policy if `corrected`, else the behavior policy. PPO limits the ratio
to it.

docs/reference/extending.md lists what a subclass may override. T is the unroll's length, B the columns of a batch. The
arrays of a minibatch, and its sizes M and m, are described in `rows.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offbeat.algorithms import fast_paths
from offbeat.algorithms.base import Batch, LossResult, Minibatch, ParameterGroup, Shard, Stage
from offbeat.algorithms.batch_network import BatchNetwork, OnPolicyFastPath, recomputed_log_prob
from offbeat.algorithms.checkpointed import Checkpointed
from offbeat.algorithms.minibatch_types import Evaluated, EvaluatedMinibatch, ForwardedRows
from offbeat.algorithms.on_policy_config import OnPolicyConfig
from offbeat.algorithms.on_policy_shards import advantages_of, cut_minibatch, weighted_value_loss
from offbeat.algorithms.returned import (
    require_gradients,
    require_loss_result,
    require_other_names,
    require_scalar,
    require_targets,
)
from offbeat.algorithms.rows import (
    critic_only_rows,
    input_gathers,
    minibatch_of_columns,
    minibatch_of_rows,
    minibatch_without_inputs,
    prepared_rows,
    valid_rows,
    value_rows,
)
from offbeat.algorithms.statistics import Statistics
from offbeat.config.config import Config
from offbeat.core.errors import ConfigError
from offbeat.core.schedules import scheduled
from offbeat.core.seeding import derive_seed
from offbeat.core.types import INITIAL_STATE, LAST_NO_DECISION, NO_DECISION, Field
from offbeat.losses.actor_critic import (
    effective_sample_size,
    explained_variance,
    policy_gradient_loss,
    squared_value_loss,
)
from offbeat.losses.advantages import Targets, generalized_advantages, vtrace
from offbeat.models.actor_critic import ActorCritic
from offbeat.models.buffer_layout import BufferLayout
from offbeat.models.collective import ALONE, Collective
from offbeat.models.distributions import ActionDistribution, Categorical
from offbeat.models.flat import FlatParameters
from offbeat.models.published import parameter_shapes, published_layout, require_published
from offbeat.models.spec import PolicySpec
from offbeat.models.storage import PrivateStorage, Storage

ACTOR_CRITIC = "actor_critic"
"""Name of the parameter group, and of its stage."""
ROUNDING = 1e-5
"""Largest rounding error of the ratio of two equal policies, one computed in NumPy when acting, one recomputed."""

Settings = TypeVar("Settings", bound=OnPolicyConfig)


class OnPolicy(Checkpointed, Generic[Settings]):
    """See the module's docstring. One parameter group, one stage; `build_more` and `make_stages` add others."""

    config_class: type[Settings]
    """The class of the algorithm's settings."""
    collective: Collective = ALONE
    """The learners that compute the shards of each update together."""
    maxima: frozenset[str] = frozenset()
    """Names of the outputs of `loss` that are maxima over the rows, see `Stage.maxima`."""

    def __init__(
        self,
        config: Settings,
        spec: PolicySpec,
        *,
        seed: int,
        corrected: bool,
        device: str = "cpu",
        storage: Storage | None = None,
    ) -> None:
        """Make new networks.

        Args:
            config: the settings.
            spec: the policy, from `config.policy_spec`.
            seed: seed of the initial weights.
            corrected: whether V-trace corrects for older policies, see `OnPolicyConfig.corrects`.
            device: device of the learner's tensors.
            storage: registers the tensors that learning changes; None: private to this process.
        """
        self.config, self.spec, self.corrected, self.device = config, spec, corrected, device
        self.entropy_coef = config.entropy_coef
        """The weight of exploration in this learning step, see `entropy_coef_schedule`."""
        self._storage = storage = storage or PrivateStorage()
        generator = torch.Generator().manual_seed(derive_seed(seed, "init"))
        self.network = self.make_network(generator).to(device)
        self.parameters = FlatParameters(self.network, ACTOR_CRITIC, storage)
        self._layout = published_layout(spec)
        require_published(self.parameters.layout, spec, type(self))
        self._policy_size = BufferLayout.of(parameter_shapes(spec)).size
        self._statistics = Statistics(
            spec, storage, returns=config.normalize_returns, return_scale=config.return_scale, device=device
        )
        self.threads = 0
        flats = {ACTOR_CRITIC: self.parameters, **self.build_more(generator, storage)}
        self.groups: Mapping[str, ParameterGroup] = {
            name: ParameterGroup(flat, config.max_grad_norm, config.adam_eps) for name, flat in flats.items()
        }
        self._fast: OnPolicyFastPath | None = fast_paths.fast_path_of(self)
        _require_kernels(self, self._fast, device)
        self.batch_network = BatchNetwork(spec, self.network, self._fast)
        """Runs the network on batches and minibatches."""
        self.stages: tuple[Stage, ...] = self.make_stages(self._fast)

    def make_network(self, generator: torch.Generator) -> ActorCritic:
        """Return a new network with random initial weights from `generator`.

        Actors build the policy from `spec`, so the policy's parameters must come first and must be those of
        `published.parameter_shapes`.
        """
        config = self.config
        shared = config.shares_trunk(self.spec)
        return ActorCritic(self.spec, shared=shared, log_std_init=config.log_std_init, generator=generator)

    def build_more(self, generator: torch.Generator, storage: Storage) -> dict[str, FlatParameters]:  # noqa: ARG002
        """Make what is learned or counted besides policy and critic; return its parameter groups, by name.

        Each group needs a stage, a learning rate from `start`, and its arrays in `arrays`. For other tensors, use the
        tensor that ``storage.register(name, initial)`` returns: checkpoints have it, and in lock-free runs all workers
        share it. Add it to `arrays` if it belongs to the weights, from which another run may start (`init_from`).
        Extend the result of `super()`: base classes make more too.

        Args:
            generator: generator of the initial weights.
            storage: of the parameters; `FlatParameters(module, name, storage)` registers them.
        """
        return {}

    def make_stages(self, fast: OnPolicyFastPath | None) -> tuple[Stage, ...]:
        """Return the stages of an update; `fast` is the fast path, if there is one."""
        gradients = fast.gradients if fast else None
        return (Stage(ACTOR_CRITIC, ACTOR_CRITIC, self.loss, gradients, after=self.after_update, maxima=self.maxima),)

    @classmethod
    def for_run(cls, config: Config, spec: PolicySpec, device: str, storage: Storage | None = None) -> Self:
        """Make the algorithm of a run."""
        settings = config.settings_as(cls.config_class)
        corrected = settings.corrects(config.runtime.max_lag)
        return cls(settings, spec, seed=config.run.seed, corrected=corrected, device=device, storage=storage)

    def fields(self) -> list[Field]:
        """Return the fields that are recorded in addition to the env's rows: log-probabilities, with a core the
        recurrent state, and if there are rows without a decision, whether the row after the last one is one.
        """
        state = Field(INITIAL_STATE, (self.spec.state_size,), "float32", per="unroll")
        last = Field(LAST_NO_DECISION, (), "bool", per="unroll")
        return [
            Field("behavior_log_prob", (), "float32"),
            *([state] if self.spec.recurrent else []),
            *([last] if self.spec.no_decision else []),
        ]

    def start(self, progress: float) -> dict[str, float]:
        self.entropy_coef = scheduled(self.config.entropy_coef, self.config.entropy_coef_schedule, progress)
        return {ACTOR_CRITIC: self.learning_rate(progress)}

    def learning_rate(self, progress: float) -> float:
        """Return Adam's step size for a learning step; `progress` goes from 0 to 1 over the run's `steps`."""
        return scheduled(self.config.learning_rate, self.config.learning_rate_schedule, progress)

    # --- targets --------------------------------------------------------------------------------------------

    @property
    def one_update_rows(self) -> float:
        """Largest number of rows, T x B, of a batch for which there is only one update with all rows."""
        return math.inf

    @torch.no_grad()
    def prepare(self, batch: Batch) -> Batch:
        """Return the arrays of `rows.prepared_rows` and of `targets` for a batch of unrolls.

        If there is one update with the whole batch, without shards, the network runs only once for targets and loss.
        The result is then `Evaluated`, or with a fast path `ForwardedRows`.
        """
        prepared = prepared_rows(self.spec, batch, self._statistics)
        valid = prepared["valid"]
        if self.collective.shards == 1 and valid.numel() <= self.one_update_rows and valid.any():
            return self._evaluated(prepared)
        if self.corrected:
            prepared["reference_log_prob"], values = self.batch_network.log_prob_and_values(prepared, self.collective)
        else:
            values = self.batch_network.values(prepared, self.collective)
        return {**prepared, **self.targets(prepared, values)}

    def _evaluated(self, prepared: dict[str, Any]) -> Batch:
        """Return a batch with its targets, after one run of the network, whose results the loss uses again."""
        if self._fast is not None:
            log_prob, values, forwarded = self.batch_network.evaluate_fast(prepared)
            if self.corrected:
                prepared["reference_log_prob"] = log_prob
            return ForwardedRows({**prepared, **self.targets(prepared, values)}, forwarded, valid_rows(prepared))
        with torch.enable_grad():
            outputs, values = self.batch_network.evaluate(prepared)
        if self.corrected:
            prepared["reference_log_prob"] = recomputed_log_prob(outputs.distribution, prepared)
        return Evaluated({**prepared, **self.targets(prepared, values)}, outputs)

    @torch.no_grad()
    def targets(self, batch: Batch, values: Tensor) -> dict[str, Tensor]:
        """Return advantage, value_target and proximal_value, [T, B] each. The last two are in units of the normalised
        return.

        Args:
            batch: as `rows.prepared_rows` returns it.
            values: [T + 1, B], the critic's values, in units of the normalised return.
        """
        return_unit = self._statistics.return_unit
        values = values * return_unit
        targets = require_targets(self.estimate(batch, values), values[:-1].shape, self.estimate)
        return {
            "advantage": targets.advantages,
            "value_target": targets.value_targets / return_unit,
            "proximal_value": values[:-1] / return_unit,
        }

    def estimate(self, batch: Batch, values: Tensor) -> Targets:
        """Return advantages and value targets, [T, B] each, in units of reward: by V-trace if `corrected`, else by GAE.

        Called once per learning step, without gradients; by PPO with recompute_advantages before each epoch.

        Args:
            batch: reward, terminated, truncated, valid, no_decision, behavior_log_prob and reference_log_prob, [T, B]
                each, and the other arrays of `rows.prepared_rows`.
            values: [T + 1, B], the critic's values, in units of reward.
        """
        return vtrace_targets(self.config, batch, values) if self.corrected else gae_targets(self.config, batch, values)

    # --- updates --------------------------------------------------------------------------------------------

    def minibatches(self, batch: Batch, random: np.random.Generator) -> Iterator[Minibatch]:  # noqa: ARG002
        """Yield the minibatches of a learning step; each one is one update. Here it is one minibatch of all valid rows.

        Args:
            batch: as `prepare` returns it.
            random: the random stream of this learning step.
        """
        valid = batch.valid if isinstance(batch, ForwardedRows) else valid_rows(batch)
        if len(valid):  # a small batch may have only reset rows
            yield self._whole_minibatch(batch, valid)

    def _whole_minibatch(self, batch: Batch, valid: Tensor) -> Minibatch:
        """Return the minibatch of all valid rows, with the forward pass of the batch, if it has one.

        Args:
            batch: as `prepare` returns it.
            valid: indices of the valid rows, [M].
        """
        if isinstance(batch, Evaluated) and not self.spec.recurrent:
            inputs = input_gathers(self.spec, batch, value_rows(batch, valid))
            arrays = minibatch_without_inputs(self.spec, batch, valid, critic_only_rows(batch))
            return EvaluatedMinibatch(arrays, batch.outputs, inputs)
        if self.spec.recurrent:
            columns = torch.arange(batch["valid"].shape[1], device=valid.device)
            minibatch = minibatch_of_columns(self.spec, batch, columns)
        else:
            minibatch = minibatch_of_rows(self.spec, batch, valid, critic_only_rows(batch))
        if isinstance(batch, Evaluated):
            return EvaluatedMinibatch(minibatch, batch.outputs)
        return ForwardedRows(minibatch, batch.forwarded, valid) if isinstance(batch, ForwardedRows) else minibatch

    def cut(self, minibatch: Minibatch, shards: int) -> Sequence[Shard]:
        normalize = self.config.normalize_advantages
        return cut_minibatch(minibatch, shards, normalize=normalize, recurrent=self.spec.recurrent)

    def loss(self, minibatch: Minibatch) -> LossResult:
        """Return the loss of a minibatch: the weighted sum of the losses of policy, values and exploration.

        It is a pure function: it changes neither the minibatch nor the algorithm. Called once per update, or
        for each of its shards.
        """
        config, (distribution, values) = self.config, self.batch_network.outputs(minibatch)
        advantages = advantages_of(minibatch, normalize=config.normalize_advantages)
        log_prob = distribution.log_prob(minibatch["action"])
        result = require_loss_result(self.policy_loss(log_prob, advantages, minibatch), self.policy_loss)
        policy_loss = _part(result.loss, self.policy_loss)
        value_loss = _part(self.value_loss(values, minibatch), self.value_loss)
        value_loss = weighted_value_loss(value_loss, minibatch)
        entropy = distribution.entropy().mean()
        loss = policy_loss + config.value_coef * value_loss + self.exploration_loss(distribution, entropy)
        losses = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        require_other_names(result.metrics, {*losses, "grad_norm", "learning_rate"}, self.policy_loss)
        detached = {name: part.detach() for name, part in losses.items()}
        return result._replace(loss=loss, metrics={**detached, **result.metrics})

    def policy_loss(self, log_prob: Tensor, advantages: Tensor, minibatch: Minibatch) -> LossResult:  # noqa: ARG002
        """Return the mean loss of the policy, a scalar tensor, with metrics to report and outputs for `after_update`.

        Args:
            log_prob: [M], of the recorded actions under the policy being learned, with gradients.
            advantages: [M], normalised if normalize_advantages is set.
            minibatch: all arrays of the minibatch, see `rows.py`.
        """
        return LossResult(policy_gradient_loss(log_prob, advantages).mean(), {})

    def value_loss(self, values: Tensor, minibatch: Minibatch) -> Tensor:
        """Return the mean loss of the values, a scalar. `loss` multiplies it by the setting value_coef.

        Args:
            values: [M + m], the critic's values in units of the normalised return, with gradients.
            minibatch: with value_target and proximal_value, [M + m] each.
        """
        return squared_value_loss(values, minibatch["value_target"]).mean()

    def exploration_loss(self, distribution: ActionDistribution, entropy: Tensor) -> Tensor | float:
        """Return the exploration term of the loss, a scalar, weighted by `self.entropy_coef`, as scheduled.

        Args:
            distribution: action distribution of M rows.
            entropy: mean entropy of the distribution, a scalar, with gradients.
        """
        coef = self.entropy_coef
        if self.config.exploration == "symmetric_kl" and isinstance(distribution, Categorical):
            return coef * distribution.symmetric_kl_to_uniform().mean()
        return -coef * entropy if coef else 0.0

    def after_update(self, result: LossResult) -> None:
        """Store parts of the result of `loss` for later updates or for `finish`. Called after each update that was
        applied.
        """

    # --- after the updates ----------------------------------------------------------------------------------

    def update_statistics(self, batch: Batch) -> None:
        if not self._statistics.used:
            return
        valid = batch["valid"]
        returns = batch["value_target"][valid] * self._statistics.return_unit
        self._statistics.update(batch["raw_observation"][:-1][valid], returns)

    def finish(self, batch: Batch) -> dict[str, float]:
        valid = batch["valid"]
        targets = batch["value_target"][valid]
        if not len(targets):
            return {}
        log_ratio = (batch["reference_log_prob"] - batch["behavior_log_prob"])[valid]
        metrics = {
            "explained_variance": explained_variance(batch["proximal_value"][valid], targets),
            **self.ratio_metrics(log_ratio),
        }
        return {name: float(value) for name, value in metrics.items()}

    def ratio_metrics(self, log_ratio: Tensor) -> dict[str, Tensor]:
        """Return metrics of the ratio of the reference to the behavior policy, from its logarithm, [M]."""
        ratio = log_ratio.exp()
        clipped = ratio > self.config.rho_clip * (1 + ROUNDING)
        return {
            "effective_sample_size": effective_sample_size(log_ratio),
            "ratio_mean": ratio.mean(),
            "clip_fraction": clipped.float().mean(),
        }

    # --- published vector and checkpoints -------------------------------------------------------------------

    def write_published(self, vector: NDArray[np.float32]) -> None:
        arrays = self._layout.views(vector)
        for name, values in self._statistics.published.items():
            arrays[name][:] = values
        policy = vector[: self._policy_size]
        policy[:] = self.parameters.values[: self._policy_size].cpu().numpy()

    def arrays(self) -> dict[str, Tensor]:
        return self.parameters.arrays()


def _require_kernels(algorithm: OnPolicy[Any], fast: OnPolicyFastPath | None, device: str) -> None:
    """Raise ConfigError if the setting kernels is not numpy, and the fast path does not have such kernels."""
    kernels: str = algorithm.config.kernels
    if kernels not in ("numpy", getattr(fast, "kernels", "numpy")):
        raise ConfigError(
            f"kernels is {kernels}, but {type(algorithm).__name__} has no such gradients for this policy on the device "
            f"{device}: only PPO, A2C and IMPALA themselves have them, on a CPU, with exploration=entropy, for a plain "
            "MLP of which policy and critic have one each, one discrete action without masks or Gaussian box actions, "
            "and an env without rows without a decision. Pass --set kernels=numpy"
        )


def gae_targets(config: OnPolicyConfig, batch: Batch, values: Tensor) -> Targets:
    """Return the targets of GAE with these settings; arguments and results are those of `OnPolicy.estimate`."""
    return generalized_advantages(*_estimator_inputs(batch, values), config.gamma, config.gae_lambda)


def vtrace_targets(config: OnPolicyConfig, batch: Batch, values: Tensor) -> Targets:
    """Return the targets of V-trace with these settings; arguments and results are those of `OnPolicy.estimate`.

    Only if `corrected` is the reference policy the proximal one. Otherwise all ratios are 1.
    """
    log_ratio = batch["reference_log_prob"] - batch["behavior_log_prob"]
    settings = config.gamma, config.gae_lambda, config.rho_clip, config.c_clip
    return vtrace(log_ratio, *_estimator_inputs(batch, values), *settings)


def _estimator_inputs(batch: Batch, values: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the tensors that GAE and V-trace have in common, in the order of their arguments."""
    return batch["reward"], values, *(batch[name] for name in ("terminated", "truncated", "valid", NO_DECISION))


def _part(loss: object, method: Callable[..., Any]) -> Tensor:
    """Return a part of the loss; `method` is the one that returned it.

    Raises:
        RunFailed: it is not a scalar tensor with gradients.
    """
    # Without gradients for the whole loss, it is refused where it is differentiated.
    return (require_gradients if torch.is_grad_enabled() else require_scalar)(loss, method)
