"""What the on-policy actor-critics share: settings, model, statistics, targets, and one update of a batch.

By itself this learns by the plain policy gradient, one update a batch. A2C and IMPALA are this with settings of
their own; PPO puts several epochs of minibatches and clipped losses in its place. The order of the methods is that
of a learning step: begin, prepare, minibatches, the loss, finish, and what is published.

With max_lag = 0 the data is on-policy, and GAE estimates the advantages. With max_lag > 0 other weights acted than
learn: the policy at the start of the learning step, the *proximal* one, is recomputed, and V-trace
(arXiv:1802.01561) weighs each row by its ratio to the one that acted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offbeat.algorithms import fast_paths
from offbeat.algorithms.base import Batch, LossResult, Minibatch, ParameterGroup, Stage
from offbeat.algorithms.checkpointed import Checkpointed
from offbeat.algorithms.network import NetworkConfig
from offbeat.algorithms.rows import (
    encoded_leaves,
    encoded_of,
    minibatch_of_rows,
    no_decision_in,
    padded,
    pieces,
    seen,
    targets_of,
    valid_rows,
)
from offbeat.algorithms.statistics import Statistics
from offbeat.config.tables import Config, RuntimeConfig
from offbeat.core.errors import ConfigError
from offbeat.core.fields import NonNegative, Positive, Share
from offbeat.core.pace import OnPolicyPace
from offbeat.core.seeding import derive_seed
from offbeat.core.types import EnvSpec, Field
from offbeat.losses.actor_critic import (
    effective_sample_size,
    explained_variance,
    normalized,
    policy_gradient_loss,
    squared_value_loss,
)
from offbeat.losses.advantages import Targets, generalized_advantages, no_decision_rows, vtrace
from offbeat.memory.unrolls import UnrollShape
from offbeat.models.actor_critic import ActorCritic
from offbeat.models.buffer_layout import BufferLayout
from offbeat.models.distributions import ActionDistribution, Categorical
from offbeat.models.flat import FlatParameters
from offbeat.models.policy_network import Remembered
from offbeat.models.published import parameter_shapes, published_layout
from offbeat.models.spec import Distribution, PolicySpec
from offbeat.models.storage import PrivateStorage, Storage
from offbeat.models.tensor_inputs import flatten_tensors

GROUP = "actor_critic"
HIDDEN_SIZES = (64, 64)
"""Units of each hidden layer, unless the settings say otherwise."""
ROUNDING = 1e-5
"""How far from 1 a ratio of two equal policies may be, when one has acted in NumPy and the other is recomputed."""


@dataclass(frozen=True)
class OnPolicyConfig(NetworkConfig):
    """The settings that all on-policy actor-critics have."""

    learning_rate: Positive = 3e-4
    """Adam's step size, at the start."""
    learning_rate_schedule: str = "linear"
    """constant; linear: down to 0 over `steps`; or what an algorithm adds."""
    gamma: Share = 0.99
    """Discount per env step."""
    gae_lambda: Share = 0.95
    """Decay of the trace in GAE and V-trace; 1 is the full return."""
    value_coef: NonNegative = 0.5
    """Weight of the value loss, which is half the squared error."""
    entropy_coef: NonNegative = 0.0
    """Weight of the exploration bonus, see `exploration`."""
    exploration: Literal["entropy", "symmetric_kl"] = "entropy"
    """entropy: reward entropy; symmetric_kl: punish the symmetric KL to the uniform policy (discrete actions)."""
    max_grad_norm: Positive = 0.5
    """Gradients of all parameters together are scaled down to this norm."""
    normalize_advantages: bool = False
    """Mean 0 and standard deviation 1 over each minibatch."""
    rho_clip: Positive = 1.0
    """V-trace's bound on the weight of an error; used with max_lag > 0."""
    c_clip: Positive = 1.0
    """V-trace's bound on the weight of later errors; used with max_lag > 0."""
    shared_trunk: bool | None = None
    """One body for policy and critic instead of one each; none: where there are images or a core."""
    action_distribution: Literal["auto", "squashed"] = "auto"
    """auto: categorical or Gaussian, as the actions are; squashed: a Gaussian through tanh (bounded boxes)."""
    log_std_init: float = 0.0
    """Logarithm of the Gaussian's first standard deviation, in units of half the action's range."""
    normalize_observations: bool = False
    """Shift and scale observations by running statistics."""
    normalize_returns: bool = False
    """The critic learns returns divided by their running standard deviation."""
    adam_eps: Positive = 1e-5
    """Adam's epsilon; 1e-5 as in PPO's first implementation."""

    learns_from: ClassVar[Literal["unrolls", "replay"]] = "unrolls"
    splits_updates: ClassVar[bool] = False
    """Whether an update is shared out between threads by the algorithm itself."""
    lag_flag: ClassVar[str] = "--max-lag"
    """What is typed to let actors be further ahead."""
    topology_keys: ClassVar[tuple[str, ...]] = ()
    """Keys of this table that a resume may not change."""
    unsupported_keys: ClassVar[dict[str, str]] = {}
    """Keys of [runtime] that it does not support."""
    not_lock_free: ClassVar[str] = ""
    """Why it cannot run in the hogwild runtime; '' where it can."""

    def of_worker(self, index: int, workers: int) -> Self:  # noqa: ARG002
        """Return the settings of one worker of a lock-free run: nothing in them is shared out."""
        return self

    def memory(self, runtime: RuntimeConfig, history: int = 0) -> UnrollShape:  # noqa: ARG002 - their fields say it
        """Return the unrolls that a run holds, and the pace on them; `history` is for algorithms on a replay.

        Raises:
            ConfigError: the settings cannot work together.
        """
        pace = OnPolicyPace(runtime.batch_unrolls, runtime.max_lag)
        return UnrollShape(pace, runtime.unroll_length, runtime.envs_per_actor)

    def warnings(self, steps: int) -> str:  # noqa: ARG002
        """Say what a run of so many env steps will not do, though one may expect it; '' for nothing."""
        return ""

    def check(self, runtime: RuntimeConfig) -> None:
        """Refuse settings that cannot work together.

        Raises:
            ConfigError: with the arithmetic and the remedy.
        """
        capacity = self.memory(runtime).pace.in_flight
        if runtime.actors > capacity:
            raise ConfigError(
                f"actors is {runtime.actors}, but at most (max_lag + 1) x unrolls_per_batch = "
                f"({runtime.max_lag} + 1) x {runtime.batch_unrolls} = {capacity} tickets can be in flight: "
                f"pass --actors {capacity} or fewer, or raise unrolls_per_batch or max_lag"
            )

    def policy_spec(self, env: EnvSpec) -> PolicySpec:
        """Return the policy that these settings make for an env.

        Raises:
            ConfigError: the env's actions do not suit these settings.
        """
        boxes, choices = bool(env.action.low), bool(env.action.nvec)
        if not boxes and self.action_distribution == "squashed":
            raise ConfigError(
                f"action_distribution is squashed, but {env.id} has {env.action.kind} actions, which cannot pass "
                "through a tanh: pass --set action_distribution=auto"
            )
        if boxes and self.exploration == "symmetric_kl":
            what = "actions with boxes in them" if choices else "box actions"
            raise ConfigError(
                f"exploration is symmetric_kl, but {env.id} has {what}, over which no policy is uniform: "
                "pass --set exploration=entropy"
            )
        if self.action_distribution == "squashed" and not np.isfinite([*env.action.low, *env.action.high]).all():
            raise ConfigError(
                f"action_distribution is squashed, but {env.id} has actions without bounds: "
                "pass --set action_distribution=auto"
            )
        if self.core != "none" and self.shared_trunk is False:
            raise ConfigError(
                f"core is {self.core}, and shared_trunk is false, but a critic has no memory of its own: leave "
                "shared_trunk out"
            )
        gaussian: Distribution = "squashed" if self.action_distribution == "squashed" else "gaussian"
        return PolicySpec(
            **self.network(env, HIDDEN_SIZES),
            distribution=gaussian if boxes else "categorical",
            normalize=self.normalize_observations,
        )

    def shares_trunk(self, spec: PolicySpec) -> bool:
        """Whether policy and critic have one body."""
        return bool(spec.encoded or spec.recurrent) if self.shared_trunk is None else self.shared_trunk


Settings = TypeVar("Settings", bound=OnPolicyConfig)
Metrics = Mapping[str, Tensor | float]


class FastPath(Protocol):
    """What a fast path of an on-policy algorithm computes (`fast_paths.register`)."""

    def values(self, observation: Tensor) -> Tensor:
        """Return the critic's values, [M], of observations [M, inputs]."""
        ...

    def log_prob(self, observation: Tensor, action: Tensor) -> Tensor:
        """Return the policy's log-probabilities, [M], of recorded actions [M, ...] at observations [M, inputs]."""
        ...

    def gradients(self, minibatch: Minibatch) -> LossResult:
        """Write all gradients of `OnPolicy.loss` over a minibatch, and return what `loss` returns."""
        ...


class OnPolicy(Checkpointed, Generic[Settings]):
    """See the module's docstring. One parameter group, one stage."""

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
        """Make a new model.

        Args:
            config: the settings.
            spec: the policy, from `config.policy_spec`.
            seed: keys the initial weights.
            corrected: whether the data may lag (max_lag > 0).
            device: where the learner's tensors live.
            storage: where what is learned lies; None: in this process.
        """
        self.config, self.spec, self._corrected = config, spec, corrected
        storage = storage or PrivateStorage()
        self.register(storage)
        generator = torch.Generator().manual_seed(derive_seed(seed, "init"))
        shared = config.shares_trunk(spec)
        self.model = ActorCritic(spec, shared=shared, log_std_init=config.log_std_init, generator=generator).to(device)
        self._flat = FlatParameters(self.model, GROUP, storage)
        self._layout = published_layout(spec)
        self._policy_size = BufferLayout.of(parameter_shapes(spec)).size
        self._statistics = Statistics(spec, storage, returns=config.normalize_returns, device=device)
        self.threads = 0
        self.groups: Mapping[str, ParameterGroup] = {
            GROUP: ParameterGroup(self._flat, config.max_grad_norm, config.adam_eps)
        }
        self._fast: FastPath | None = fast_paths.fast_path_of(self)
        gradients = self._fast.gradients if self._fast else None
        self.stages: tuple[Stage, ...] = (Stage("actor_critic", GROUP, self.loss, gradients),)

    def register(self, storage: Storage) -> None:
        """Make what an algorithm learns or counts beside the model; what is learned goes to `storage`."""

    @classmethod
    def for_run(cls, config: Config, spec: PolicySpec, device: str, storage: Storage | None = None) -> Self:
        """Make the algorithm of a run."""
        corrected = config.runtime.max_lag > 0
        return cls(config.settings, spec, seed=config.run.seed, corrected=corrected, device=device, storage=storage)

    def fields(self) -> list[Field]:
        remembered = [
            Field("initial_state", (self.spec.state_size,), "float32", per="unroll"),
            Field("no_decision", (), "bool"),
        ]
        return [Field("behavior_log_prob", (), "float32"), *(remembered if self.spec.recurrent else [])]

    def start(self, progress: float) -> dict[str, float]:
        return {GROUP: self.learning_rate(progress)}

    def learning_rate(self, progress: float) -> float:
        return scheduled(self.config.learning_rate, self.config.learning_rate_schedule, progress)

    # --- targets --------------------------------------------------------------------------------------------

    @torch.no_grad()
    def prepare(self, batch: Batch) -> Batch:
        """Add normalised observations [T + 1, B, inputs], what else the network needs of them, and targets [T, B]."""
        rows = {name: batch[name][:-1] for name in ("action", "reward", "terminated", "truncated", "valid")}
        if self.spec.mask:
            rows["mask"] = batch[self.spec.mask][:-1]
        raw = flatten_tensors(self.spec.vectors, batch)
        observation = self._statistics.normalized(raw)
        behavior = batch["behavior_log_prob"][:-1]
        prepared = {
            **rows,
            **encoded_leaves(self.spec, batch),
            "raw_observation": raw,
            "observation": observation,
            "behavior_log_prob": behavior,
            "proximal_log_prob": behavior,
        }
        if self.spec.recurrent:
            prepared |= {"initial_state": batch["initial_state"], "resets": ~(batch["valid"] | batch["no_decision"])}
        no_decision = no_decision_rows(rows["terminated"], rows["truncated"], rows["valid"])
        if no_decision.any():
            prepared["no_decision"] = no_decision
        if self._in_one_pass(rows["valid"]):
            return prepared
        if not self._corrected:
            return {**prepared, **self._targets(prepared)}
        prepared["proximal_log_prob"], values = self._log_prob_and_values(prepared)
        return {**prepared, **self._targets(prepared, values)}

    def _log_prob_and_values(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the current policy's log-probabilities of the recorded actions, [T, B], and values as `_values`."""
        shape, action = batch["reward"].shape, batch["action"]
        if self._fast:
            log_prob = self._fast.log_prob(batch["observation"][:-1].flatten(0, 1), action.flatten(0, 1))
            return log_prob.reshape(shape), self._values(batch)
        actions, masks = padded(action), padded(batch["mask"]) if "mask" in batch else None
        log_probs, values = [], []
        for rows in pieces(self.spec, batch):
            mask = None if masks is None else masks[rows]
            distribution, of_rows = self.model.both(*seen(self.spec, batch, rows), mask=mask)
            log_probs.append(distribution.log_prob(actions[rows]))
            values.append(of_rows)
        return torch.cat(log_probs)[: shape.numel()].reshape(shape), self._in_units_of_reward(batch, values)

    def _values(self, batch: Batch) -> Tensor:
        """Return the critic's values in units of reward, [T + 1, B]."""
        if self._fast:
            values = [self._fast.values(batch["observation"].flatten(0, 1))]
        else:
            values = [self.model.value(*seen(self.spec, batch, rows)) for rows in pieces(self.spec, batch)]
        return self._in_units_of_reward(batch, values)

    def _in_units_of_reward(self, batch: Batch, values: list[Tensor]) -> Tensor:
        joined: Tensor = torch.cat(values).reshape(batch["observation"].shape[:2]) * self._statistics.return_std
        return joined

    @torch.no_grad()
    def _targets(self, batch: Batch, values: Tensor | None = None) -> dict[str, Tensor]:
        """Return advantages, values and value targets, [T, B]; values in units of the normalised return."""
        values = self._values(batch) if values is None else values
        targets = self.estimate(batch, values)
        return_std = self._statistics.return_std
        return {
            "advantage": targets.advantages,
            "value_target": targets.value_targets / return_std,
            "proximal_value": values[:-1] / return_std,
        }

    def estimate(self, batch: Batch, values: Tensor) -> Targets:
        return self._vtrace(batch, values) if self._corrected else self._gae(batch, values)

    def _gae(self, batch: Batch, values: Tensor) -> Targets:
        return generalized_advantages(*_rows(batch, values), self.config.gamma, self.config.gae_lambda)

    def _vtrace(self, batch: Batch, values: Tensor) -> Targets:
        config = self.config
        log_ratio = batch["proximal_log_prob"] - batch["behavior_log_prob"]
        rows = _rows(batch, values)
        return vtrace(log_ratio, *rows, config.gamma, config.gae_lambda, config.rho_clip, config.c_clip)

    # --- updates --------------------------------------------------------------------------------------------

    def minibatches(self, batch: Batch, random: np.random.Generator) -> Iterator[Minibatch]:  # noqa: ARG002
        """Yield the valid rows of the batch, all at once: one update."""
        valid = valid_rows(batch)
        if len(valid):  # a small batch may be reset rows alone
            yield (
                batch
                if self._in_one_pass(batch["valid"])
                else minibatch_of_rows(self.spec, batch, valid, no_decision_in(batch))
            )

    def _in_one_pass(self, valid: Tensor) -> bool:  # noqa: ARG002
        """Whether one pass of the batch, [T, B], through the network gives the targets and the loss.

        It does where a batch is one update; with a fast path, two passes are faster.
        """
        return self._fast is None

    def _evaluated(self, minibatch: Minibatch) -> tuple[ActionDistribution, Tensor]:
        """Return the action distribution of a minibatch's M rows; and values, of rows without a decision too."""
        encoded = encoded_of(self.spec, minibatch)
        if not self.spec.recurrent:
            return self.model.both(
                minibatch["observation"], encoded, rows=minibatch.get("rows"), mask=minibatch.get("mask")
            )
        remembered, rows = Remembered(minibatch["initial_state"], minibatch["resets"]), minibatch["rows"]
        mask = minibatch.get("mask")
        distribution, values = self.model.both(minibatch["observation"], encoded, remembered, rows=rows, mask=mask)
        return distribution, values[minibatch["valued"]]

    def _evaluated_whole(self, batch: Any) -> tuple[ActionDistribution, Tensor, Minibatch]:
        """Return the same of a whole batch's valid rows, and these rows: targets come from the same pass.

        The targets are left in `batch`.
        """
        shape, valid = batch["reward"].shape, valid_rows(batch)
        everything = slice(0, batch["observation"].shape[:2].numel())
        mask = batch["mask"].flatten(0, 1)[valid] if "mask" in batch else None
        distribution, values = self.model.both(*seen(self.spec, batch, everything), rows=valid, mask=mask)
        if self._corrected:
            log_prob = distribution.log_prob(batch["action"].flatten(0, 1)[valid]).detach()
            proximal = batch["behavior_log_prob"].flatten().clone().index_copy_(0, valid, log_prob).reshape(shape)
            batch["proximal_log_prob"] = proximal
        batch |= self._targets(batch, self._in_units_of_reward(batch, [values.detach()]))
        no_decision = no_decision_in(batch)
        valued = valid if no_decision is None else torch.cat((valid, no_decision))
        return distribution, values[valued], targets_of(batch, valid, valued)

    def loss(self, minibatch: Minibatch) -> LossResult:
        config = self.config
        if "advantage" in minibatch:
            distribution, values = self._evaluated(minibatch)
        else:
            distribution, values, minibatch = self._evaluated_whole(minibatch)
        log_prob, advantages = distribution.log_prob(minibatch["action"]), minibatch["advantage"]
        if config.normalize_advantages:
            advantages = normalized(advantages)
        policy_loss, metrics = self.policy_loss(log_prob, advantages, minibatch)
        value_loss = self.value_loss(values, minibatch)
        entropy = distribution.entropy().mean()
        loss = policy_loss + config.value_coef * value_loss + self.exploration_loss(distribution, entropy)
        losses = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        return LossResult(loss, {**{name: part.detach() for name, part in losses.items()}, **metrics})

    def exploration_loss(self, distribution: ActionDistribution, entropy: Tensor) -> Tensor | float:
        coef = self.config.entropy_coef
        if self.config.exploration == "symmetric_kl" and isinstance(distribution, Categorical):
            return coef * distribution.symmetric_kl_to_uniform().mean()
        return -coef * entropy if coef else 0.0

    def policy_loss(self, log_prob: Tensor, advantages: Tensor, minibatch: Minibatch) -> tuple[Tensor, Metrics]:  # noqa: ARG002
        """Return the mean loss of the policy, and metrics to report."""
        return policy_gradient_loss(log_prob, advantages).mean(), {}

    def value_loss(self, values: Tensor, minibatch: Minibatch) -> Tensor:
        """Return the mean loss of the values."""
        return squared_value_loss(values, minibatch["value_target"]).mean()

    # --- after the updates ----------------------------------------------------------------------------------

    def finish(self, batch: Batch) -> dict[str, float]:
        valid = batch["valid"]
        if not valid.any():
            return {}
        targets = batch["value_target"][valid]
        log_ratio = (batch["proximal_log_prob"] - batch["behavior_log_prob"])[valid]
        metrics = {
            "explained_variance": explained_variance(batch["proximal_value"][valid], targets),
            "effective_sample_size": effective_sample_size(log_ratio),
            **self.ratio_metrics(log_ratio),
        }
        self._statistics.update(batch["raw_observation"][:-1][valid], targets * self._statistics.return_std)
        return {name: float(value) for name, value in metrics.items()}

    def ratio_metrics(self, log_ratio: Tensor) -> dict[str, Tensor]:
        """Return metrics of the ratios that V-trace weighs rows by: of the target to the behavior policy, [M]."""
        ratio = log_ratio.exp()
        clipped = ratio > self.config.rho_clip * (1 + ROUNDING)
        return {"ratio_mean": ratio.mean(), "clip_fraction": clipped.float().mean()}

    # --- what is published and kept -------------------------------------------------------------------------

    def write_published(self, vector: NDArray[np.float32]) -> None:
        arrays = self._layout.views(vector)
        for name, values in self._statistics.published.items():
            arrays[name][:] = values
        policy = vector[: self._policy_size]
        policy[:] = self._flat.values[: self._policy_size].cpu().numpy()

    def arrays(self) -> dict[str, Tensor]:
        return self._flat.arrays()


def scheduled(start: float, schedule: str, progress: float) -> float:
    """Return a setting's value at `progress`, 0 to 1: `start`, or on its line down to 0."""
    return start * max(0.0, 1.0 - progress) if schedule == "linear" else start


def _rows(batch: Batch, values: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return what every estimator of advantages looks at, in its order."""
    return batch["reward"], values, batch["terminated"], batch["truncated"], batch["valid"]
