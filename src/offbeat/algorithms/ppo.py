"""Proximal Policy Optimization (arXiv:1707.06347), config and algorithm.

The clip limits the ratio of the policy being learned to the *behavior* policy, which acted, and GAE gives the
advantages. With max_lag > 0 or passes > 1 the behavior policy may be a few learning steps old. What these steps changed
counts towards the clip: a row whose ratio they have moved out of it, the way its advantage asks for, moves the policy
no further.

With clip_reference = proximal, and max_lag > 0 or passes > 1, the clip limits the ratio to the *proximal* policy
instead, the policy at the start of the learning step, whose log-probabilities are recomputed (decoupled PPO,
arXiv:2110.00641), and V-trace gives the advantages, weighted by the ratio of the proximal to the behavior policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from offbeat.algorithms.base import Batch, LossResult, Minibatch
from offbeat.algorithms.minibatch_types import Evaluated, ForwardedRows
from offbeat.algorithms.on_policy import OnPolicy
from offbeat.algorithms.on_policy_config import OnPolicyConfig
from offbeat.algorithms.rows import (
    critic_only_marks,
    critic_only_rows,
    host_arrays,
    host_minibatches,
    minibatch_of_columns,
    minibatch_of_rows,
    valid_rows,
)
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.checks import Example
from offbeat.core.errors import ConfigError, RunFailed
from offbeat.core.fields import Count, Positive, Schedule
from offbeat.core.schedules import ScheduleText, scheduled
from offbeat.core.types import EnvSpec
from offbeat.losses.actor_critic import effective_sample_size
from offbeat.losses.ppo import approx_kl, clipped_surrogate, clipped_value_loss

KL_STOP_FACTOR = 1.5
"""The remaining epochs are skipped if the mean KL of an epoch is more than this factor times `kl_target`."""
KL_RATE_FACTOR = 1.5
"""With learning_rate_schedule = kl: factor of one change of the learning rate."""
KL_RATE_RANGE = (1e-6, 1e-2)
"""With learning_rate_schedule = kl: lowest and highest learning rate."""


@dataclass(frozen=True)
class PPOConfig(OnPolicyConfig):
    """The settings of PPO.

    From arXiv:1707.06347, section 6.1 and table 3 (continuous control): `learning_rate`, `learning_rate_schedule`,
    `gamma`, `gae_lambda`, `clip`, `epochs`, `minibatch_size` and `hidden_sizes`. All other defaults, and those of the
    table [runtime], are offbeat's. The paper's batch has 2048 rows of one env, here it has 128 rows of each of 8 envs.
    Observations and returns are normalised, as in OpenAI Baselines for MuJoCo. But Baselines divides the rewards by the
    running standard deviation of the return, and clips them to +-10; here the critic's targets are divided, and not
    clipped. benchmarks/results/defaults.md has the scores of these defaults on ten envs.
    """

    learning_rate_schedule: Annotated[str, ScheduleText(("constant", "linear", "kl"))] = "constant"
    """linear: decreases to 0 over `steps`; kl: starts at `learning_rate` and is adapted, from 1e-6 to 0.01, so that the
    KL divergence stays near `kl_target`. Points are factors of `learning_rate` by progress, which goes from 0 to 1
    over `steps`, with straight lines between them."""
    normalize_advantages: bool = True
    """Normalise advantages to mean 0 and standard deviation 1 over each minibatch."""
    rho_clip: Positive = 1.0
    """V-trace's bound on the weight of a TD error; used with clip_reference = proximal and max_lag > 0 or
    passes > 1."""
    c_clip: Positive = 2.0
    """V-trace's bound on the weight of later TD errors; used as rho_clip is. With the paper's 1, lag shortens the
    trace."""
    normalize_observations: bool = True
    """Shift and scale observations by running statistics. Choices, images for an encoder, and all that an encoder of
    your own gets, stay as they are."""
    normalize_returns: bool = True
    """Whether the critic learns returns divided by their running standard deviation. Where rewards are so rare that
    most episodes have none, this deviation is small, a first reward is many times as large, and the gradients of its
    updates are mostly clipped: pass false there."""
    return_scale: Positive = 3.0
    """Standard deviation of the returns that the critic learns, with normalize_returns. With a larger one the steps of
    the critic are smaller in relation to its targets: its values are less noisy, and it learns more slowly."""
    epochs: Count = 10
    """Times that a batch is gone through."""
    minibatch_size: Count = 64
    """Largest number of rows of an update: a batch is divided into equal minibatches of at most this size. With a core
    it is divided into as many minibatches of whole columns, at most one a column: some have more rows than this."""
    clip: Positive = 0.2
    """Epsilon of the clipped loss: ratios outside of 1 +- clip do not improve it further."""
    clip_reference: Literal["behavior", "proximal"] = "behavior"
    """Policy to which the clip limits the ratio. behavior: the policy that acted; proximal: the policy at the start of
    the learning step, with V-trace (decoupled PPO). They differ only with max_lag > 0 or passes > 1."""
    clip_schedule: Schedule = "constant"
    """linear: decreases to 0 over `steps`; points: factors of `clip`, as in `learning_rate_schedule`."""
    value_clip: Annotated[Positive | None, Example("0.2")] = None
    """Limit on the change of a value in a learning step, in units of the (normalised) return; none: no limit."""
    kl_target: Annotated[Positive | None, Example("0.01")] = None
    """Target of the KL divergence between the policy that the clip refers to and the one that learns, in nats. Each
    update measures it on its minibatch before it changes the policy, and the mean over the last epoch counts. With lag
    and clip_reference = behavior the learning steps in between count too. With learning_rate_schedule = kl the learning
    rate is adapted to it. With other schedules the remaining epochs are skipped if the KL of an epoch is more than 1.5
    times the target."""
    recompute_advantages: bool = False
    """Recompute values and advantages before each epoch (arXiv:2006.05990, section 3.5)."""

    runtime_defaults: ClassVar[Mapping[str, object]] = {"unroll_length": 128}

    def check(self, runtime: RuntimeConfig) -> None:
        """Check that the settings do not contradict each other.

        Raises:
            ConfigError: they do; the message has the arithmetic and the remedy.
        """
        super().check(runtime)
        if self.learning_rate_schedule == "kl" and self.kl_target is None:
            raise ConfigError("learning_rate_schedule is kl, but kl_target is not set: pass --set kl_target=0.01")

    def without_effect(self, env: EnvSpec, runtime: RuntimeConfig) -> dict[str, str]:
        unused = super().without_effect(env, runtime)
        more_epochs = "pass --set epochs=2 or more, or leave it out"
        if self.epochs == 1:
            unused["recompute_advantages"] = f"while epochs is 1: {more_epochs}"
            if self.learning_rate_schedule != "kl":
                unused["kl_target"] = f"while epochs is 1: {more_epochs}"
        if self.clip_reference == "behavior":
            proximal = "while clip_reference is behavior: pass --set clip_reference=proximal, or leave it out"
            unused |= {"rho_clip": proximal, "c_clip": proximal}
        return unused

    def corrects(self, max_lag: int) -> bool:
        return self.clip_reference == "proximal" and super().corrects(max_lag)

    def check_columns(self, runtime: RuntimeConfig, columns: int) -> None:
        unrolls, length, agents = runtime.batch_unrolls, runtime.unroll_length, columns // runtime.envs_per_actor
        rows = unrolls * length * columns
        if rows < self.minibatch_size:
            per_world = f" x {agents} agents" if agents > 1 else ""
            raise ConfigError(
                f"minibatch_size is {self.minibatch_size}, but a batch has only unrolls_per_batch x unroll_length "
                f"x envs_per_actor{' x agents' if per_world else ''} = {unrolls} x {length} x {runtime.envs_per_actor}"
                f"{per_world} = {rows} rows: pass --set minibatch_size={rows}, or a larger batch"
            )
        if self.learning_rate_schedule == "kl" and self._kl_is_always_0(runtime, columns):
            raise ConfigError(
                "learning_rate_schedule is kl, but the KL is measured before each update, and a learning step has only "
                "one, whose KL is always 0: pass --set epochs=2 or more, or another learning_rate_schedule"
            )
        super().check_columns(runtime, columns)

    def _kl_is_always_0(self, runtime: RuntimeConfig, columns: int) -> bool:
        """Whether a learning step has only one update, which starts with the policy that the clip refers to."""
        parts = runtime.batch_unrolls * columns
        minibatches = self.updates_of(parts * runtime.unroll_length)
        if self.core != "none":
            minibatches = min(minibatches, parts)
        has_lag = self.clip_reference == "behavior" and super().corrects(runtime.max_lag)
        return self.epochs * minibatches == 1 and not has_lag and not runtime.entry.workers_learn

    def updates_of(self, rows: int) -> int:
        return -(-rows // self.minibatch_size)

    def reason_against_change(self, key: str) -> str:
        if key == "learning_rate" and self.learning_rate_schedule == "kl":
            return "with learning_rate_schedule=kl the run adapts its rate, which is saved"
        return super().reason_against_change(key)


class PPO(OnPolicy[PPOConfig]):
    """See the module's docstring."""

    config_class = PPOConfig
    maxima = frozenset({"ratio_deviation"})

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.clip = self.config.clip
        """The clip of this learning step, see `clip_schedule`."""
        self._adapted_rate = self._storage.register("learning_rate", torch.zeros(1, dtype=torch.float64))
        """[1]: the learning rate, as adapted with learning_rate_schedule = kl. 0: it is not adapted so far."""
        self._epoch_kl: list[Tensor | float] = []
        self._first_deviation: Tensor | float | None = None

    def start(self, progress: float) -> dict[str, float]:
        self.clip = scheduled(self.config.clip, self.config.clip_schedule, progress)
        if self.config.learning_rate_schedule != "kl":  # the run may have adapted it before it was resumed
            self._adapted_rate.zero_()
        return super().start(progress)

    def learning_rate(self, progress: float) -> float:
        if self.config.learning_rate_schedule == "kl":
            return float(self._adapted_rate) or self.config.learning_rate
        return super().learning_rate(progress)

    # --- minibatches ----------------------------------------------------------------------------------------

    @property
    def one_update_rows(self) -> float:
        return self.config.minibatch_size if self.config.epochs == 1 else 0

    def minibatches(self, batch: Batch, random: np.random.Generator) -> Iterator[Minibatch]:
        """Yield the minibatches of each epoch, shuffled anew, until the KL of an epoch is too large."""
        self._first_deviation = None
        self._epoch_kl.clear()
        if isinstance(batch, Evaluated | ForwardedRows):  # there is only one update
            yield from super().minibatches(batch, random)
            return
        valid, critic_only = valid_rows(batch), critic_only_rows(batch)
        parts = self.config.updates_of(len(valid))
        for epoch in range(self.config.epochs if parts else 0):
            if epoch and self.config.recompute_advantages:
                with torch.no_grad():
                    targets = self.targets(batch, self.batch_network.values(batch, self.collective))
                # value_clip refers to the values at the start of the learning step
                batch = {**batch, **targets, "proximal_value": batch["proximal_value"]}
            self._epoch_kl.clear()
            yield from self._shuffled(batch, valid, critic_only, parts, random)
            if self._exceeds_kl_target():
                return

    def _shuffled(
        self, batch: Batch, valid: Tensor, critic_only: Tensor | None, parts: int, random: np.random.Generator
    ) -> Iterator[Minibatch]:
        """Yield `parts` equal minibatches of valid rows; with a core, at most `parts` minibatches of whole columns."""
        if self.spec.recurrent:
            pieces = _pieces_of_columns(batch, parts, random)
            yield from (minibatch_of_columns(self.spec, batch, piece) for piece in pieces)
        elif critic_only is not None:
            splits = (_permuted(rows, random).tensor_split(parts) for rows in (valid, critic_only))
            yield from (minibatch_of_rows(self.spec, batch, *rows) for rows in zip(*splits, strict=True))
        elif self.spec.encoded:  # images are gathered per minibatch: those of a whole epoch would take gigabytes
            yield from (
                minibatch_of_rows(self.spec, batch, rows, None) for rows in _permuted(valid, random).tensor_split(parts)
            )
        elif batch["observation"].is_cpu and not self.spec.no_decision:
            yield from host_minibatches(host_arrays(self.spec, batch), _permuted(valid, random).numpy(), parts)
        else:  # one gather per array and epoch, then slices of it
            whole = minibatch_of_rows(self.spec, batch, _permuted(valid, random), None)
            split = {name: rows.tensor_split(parts) for name, rows in whole.items() if rows is not None}
            for part in range(parts):
                yield {**whole, **{name: slices[part] for name, slices in split.items()}}

    def _exceeds_kl_target(self) -> bool:
        """Whether the mean KL of the last epoch is so large that the remaining epochs are skipped."""
        target = self.config.kl_target
        if target is None or self.config.learning_rate_schedule == "kl":
            return False
        return self._mean_kl() > KL_STOP_FACTOR * target

    def _mean_kl(self) -> float:
        """Return the mean KL over the updates of the last epoch and over all learners; 0 if none was applied."""
        return fmean(map(float, self._epoch_kl)) if self._epoch_kl else 0.0

    # --- the losses -----------------------------------------------------------------------------------------

    def policy_loss(self, log_prob: Tensor, advantages: Tensor, minibatch: Minibatch) -> LossResult:
        """Return the clipped surrogate loss; arguments and result as in `OnPolicy.policy_loss`.

        With kl_target, the metrics must have approx_kl. The outputs may have ratio_deviation, a scalar; the one of the
        first update of a learning step is reported as ratio_max_deviation_first.
        """
        log_ratio = log_prob - minibatch["reference_log_prob"]
        loss = clipped_surrogate(log_ratio, advantages, self.clip).mean()
        return LossResult(loss, *_metrics_of(log_ratio.detach(), self.clip))

    def value_loss(self, values: Tensor, minibatch: Minibatch) -> Tensor:
        clip = self.config.value_clip
        if clip is None:
            return super().value_loss(values, minibatch)
        return clipped_value_loss(values, minibatch["proximal_value"], minibatch["value_target"], clip).mean()

    def after_update(self, result: LossResult) -> None:
        if self.config.kl_target is not None:
            self._epoch_kl.append(self._kl_of(result))
        if self._first_deviation is None:
            self._first_deviation = result.outputs.get("ratio_deviation")

    def _kl_of(self, result: LossResult) -> Tensor | float:
        if "approx_kl" in result.metrics:
            return result.metrics["approx_kl"]
        raise RunFailed(
            f"the loss of {type(self).__qualname__} has no metric approx_kl, which kl_target needs: add it to the "
            "metrics that policy_loss returns, or leave kl_target out"
        )

    # --- after the updates ----------------------------------------------------------------------------------

    def finish(self, batch: Batch) -> dict[str, float]:
        metrics = super().finish(batch)
        if self._epoch_kl and self.config.learning_rate_schedule == "kl":
            self._adapt_rate()
        if self._first_deviation is not None:
            metrics["ratio_max_deviation_first"] = float(self._first_deviation)
        return metrics

    def ratio_metrics(self, log_ratio: Tensor) -> dict[str, Tensor]:
        """Return only the effective sample size, if it is known: each update has reported the ratio that is clipped."""
        return {"effective_sample_size": effective_sample_size(log_ratio)} if self.corrected else {}

    def _adapt_rate(self) -> None:
        """Decrease the learning rate if the KL is above twice the target, increase it below half of the target.

        A rate that starts outside of its range only comes nearer to it. Not called if no update of the last epoch was
        applied: the KL is then unknown.
        """
        kl, target, rate = self._mean_kl(), self.config.kl_target or 0.0, self.learning_rate(0.0)
        low, high = min(KL_RATE_RANGE[0], rate), max(KL_RATE_RANGE[1], rate)
        if kl > 2 * target:
            self._adapted_rate[0] = max(low, rate / KL_RATE_FACTOR)
        elif kl < target / 2:
            self._adapted_rate[0] = min(high, rate * KL_RATE_FACTOR)


def _metrics_of(log_ratio: Tensor, clip: float) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return metrics of the ratio that is clipped, from its logarithm, [M], and as outputs its largest deviation from
    1.
    """
    ratio = log_ratio.exp()
    deviation = (ratio - 1).abs()
    metrics = {
        "approx_kl": approx_kl(log_ratio),
        "ratio_mean": ratio.mean(),
        "clip_fraction": (deviation > clip).float().mean(),
    }
    return metrics, {"ratio_deviation": deviation.max()}


def _pieces_of_columns(batch: Batch, parts: int, random: np.random.Generator) -> Iterator[Tensor]:
    """Yield the columns of at most `parts` minibatches, shuffled. Each minibatch has a column with a decision.

    Columns from which only the critic learns are divided over the minibatches too. Those with only reset rows are left
    out.
    """
    decides = batch["valid"].any(dim=0)
    only_critic = critic_only_marks(batch).any(dim=0) & ~decides
    columns, more = (_permuted(flags.nonzero().squeeze(1), random) for flags in (decides, only_critic))
    pieces = min(parts, len(columns))
    return map(torch.cat, zip(columns.tensor_split(pieces), more.tensor_split(pieces), strict=True))


def _permuted(indices: Tensor, random: np.random.Generator) -> Tensor:
    return indices.index_select(0, torch.from_numpy(random.permutation(len(indices))).to(indices.device))
