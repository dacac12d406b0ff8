"""Proximal Policy Optimization (arXiv:1707.06347), config and algorithm.

With max_lag = 0 the policy that acted is the clip's reference. With max_lag > 0 the reference is the policy at the
start of the learning step, recomputed (decoupled PPO, arXiv:2110.00641), and V-trace gives the weighted advantages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from offbeat.algorithms.base import Batch, LossResult, Minibatch
from offbeat.algorithms.network_passes import Evaluated
from offbeat.algorithms.on_policy import OnPolicy, scheduled
from offbeat.algorithms.on_policy_config import OnPolicyConfig
from offbeat.algorithms.rows import critic_rows, minibatch_of_columns, minibatch_of_rows, valid_rows
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import ConfigError
from offbeat.core.fields import Count, Positive
from offbeat.losses.ppo import approx_kl, clipped_surrogate, clipped_value_loss
from offbeat.models.collective import mean
from offbeat.models.storage import Storage

KL_STOP_FACTOR = 1.5
"""The remaining epochs are left out once the mean KL of one is over this many times `kl_target`."""
KL_RATE_FACTOR = 1.5
KL_RATE_RANGE = (1e-6, 1e-2)


@dataclass(frozen=True)
class PPOConfig(OnPolicyConfig):
    """The settings of PPO; the defaults are those of arXiv:1707.06347 for continuous control, unless noted."""

    learning_rate_schedule: Literal["constant", "linear", "kl"] = "linear"
    """linear: down to 0 over `steps`; kl: adapted so that a learning step's KL stays near `kl_target`."""
    normalize_advantages: bool = True
    """Mean 0 and standard deviation 1 over each minibatch."""
    c_clip: Positive = 2.0
    """V-trace's bound on the weight of later errors, with max_lag > 0; at the paper's 1 lag shortens the trace."""
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
    kl_target: Positive | None = None
    """KL between the policies before and after a learning step, in nats: stops epochs early, or adapts the rate."""
    recompute_advantages: bool = False
    """Recompute values and advantages before each epoch (arXiv:2006.05990, section 3.5)."""

    def check(self, runtime: RuntimeConfig) -> None:
        """Refuse settings that cannot work together.

        Raises:
            ConfigError: with the arithmetic and the remedy.
        """
        super().check(runtime)
        if runtime.batch_rows < self.minibatch_size:
            raise ConfigError(
                f"minibatch_size is {self.minibatch_size}, but a batch has only unrolls_per_batch x unroll_length "
                f"x envs_per_actor = {runtime.batch_unrolls} x {runtime.unroll_length} x {runtime.envs_per_actor} "
                f"= {runtime.batch_rows} rows: pass --set minibatch_size={runtime.batch_rows}, or a larger batch"
            )
        if self.learning_rate_schedule == "kl" and self.kl_target is None:
            raise ConfigError("learning_rate_schedule is kl, but kl_target is not set: pass --set kl_target=0.01")


class PPO(OnPolicy[PPOConfig]):
    """See the module's docstring."""

    config_class = PPOConfig

    def register(self, storage: Storage) -> None:
        config = self.config
        self.one_update_rows = config.minibatch_size if config.epochs == 1 else 0
        self.clip = config.clip
        """Of this learning step, see `clip_schedule`."""
        self._adapted_rate = storage.register(
            "learning_rate", torch.tensor([config.learning_rate], dtype=torch.float64)
        )
        """[1]: what learning_rate_schedule = kl has made of it."""
        self._epoch_kl: list[Tensor | float] = []
        self._first_deviation: Tensor | float | None = None

    def start(self, progress: float) -> dict[str, float]:
        self.clip = scheduled(self.config.clip, self.config.clip_schedule, progress)
        return super().start(progress)

    def learning_rate(self, progress: float) -> float:
        adapted = self.config.learning_rate_schedule == "kl"
        return float(self._adapted_rate) if adapted else super().learning_rate(progress)

    # --- minibatches ----------------------------------------------------------------------------------------

    def minibatches(self, batch: Batch, random: np.random.Generator) -> Iterator[Minibatch]:
        """Yield the minibatches of each epoch in an order of its own, until the policy has drifted too far."""
        valid = valid_rows(batch)
        self._first_deviation = None
        self._epoch_kl.clear()
        parts = -(-len(valid) // self.config.minibatch_size)
        if isinstance(batch, Evaluated):
            yield from super().minibatches(batch, random)
            return
        for epoch in range(self.config.epochs if parts else 0):
            if epoch and self.config.recompute_advantages:
                proximal_value = batch["proximal_value"]  # of the learning step's start, as value_clip means it
                targets = self.targets(batch, self.passes.values(batch))
                batch = {**batch, **targets, "proximal_value": proximal_value}
            self._epoch_kl.clear()
            yield from self._shuffled(batch, valid, parts, random)
            if self._drifted():
                return

    def _shuffled(self, batch: Batch, valid: Tensor, parts: int, random: np.random.Generator) -> Iterator[Minibatch]:
        """Yield `parts` equal minibatches: of the valid rows, or with a core of whole columns."""
        if self.spec.recurrent:
            columns = _permuted(torch.arange(batch["reward"].shape[1], device=valid.device), random)
            yield from (
                minibatch_of_columns(self.spec, batch, some) for some in columns.tensor_split(min(parts, len(columns)))
            )
        elif (critic_only := critic_rows(batch)) is not None:
            pieces = (_permuted(rows, random).tensor_split(parts) for rows in (valid, critic_only))
            yield from (minibatch_of_rows(self.spec, batch, *rows) for rows in zip(*pieces, strict=True))
        elif self.spec.encoded:  # images are gathered when they are needed: all of an epoch would take gigabytes
            yield from (
                minibatch_of_rows(self.spec, batch, rows, None) for rows in _permuted(valid, random).tensor_split(parts)
            )
        else:  # one gather per array and epoch, then slices of it
            whole = minibatch_of_rows(self.spec, batch, _permuted(valid, random), None)
            cut = {name: rows.tensor_split(parts) for name, rows in whole.items() if rows is not None}
            for part in range(parts):
                yield {**whole, **{name: chunk[part] for name, chunk in cut.items()}}

    def _drifted(self) -> bool:
        """Whether the last epoch took the policy far enough from the proximal one to stop."""
        target = self.config.kl_target
        if target is None or self.config.learning_rate_schedule == "kl":
            return False
        return self._mean_kl() > KL_STOP_FACTOR * target

    def _mean_kl(self) -> float:
        return mean(self.collective, fmean(map(float, self._epoch_kl)) if self._epoch_kl else 0.0)

    # --- the losses -----------------------------------------------------------------------------------------

    def policy_loss(self, log_prob: Tensor, advantages: Tensor, minibatch: Minibatch) -> LossResult:
        """Return the clipped surrogate, as `OnPolicy.policy_loss`.

        With kl_target, the metrics must have approx_kl. The outputs may have ratio_deviation, a scalar: the first of a
        learning step is reported.
        """
        log_ratio = log_prob - minibatch["proximal_log_prob"]
        loss = clipped_surrogate(log_ratio, advantages, self.clip).mean()
        return LossResult(loss, *_metrics_of(log_ratio.detach(), self.clip))

    def value_loss(self, values: Tensor, minibatch: Minibatch) -> Tensor:
        clip = self.config.value_clip
        if clip is None:
            return super().value_loss(values, minibatch)
        return clipped_value_loss(values, minibatch["proximal_value"], minibatch["value_target"], clip).mean()

    def after_update(self, result: LossResult) -> None:
        if self.config.kl_target is not None:
            self._epoch_kl.append(result.metrics["approx_kl"])
        if self._first_deviation is None:
            self._first_deviation = result.outputs.get("ratio_deviation")

    # --- after the updates ----------------------------------------------------------------------------------

    def finish(self, batch: Batch) -> dict[str, float]:
        metrics = super().finish(batch)
        if metrics and self.config.learning_rate_schedule == "kl":
            self._adapt_rate()
        if self._first_deviation is not None:
            metrics["ratio_max_deviation_first"] = float(self._first_deviation)
        return metrics

    def ratio_metrics(self, log_ratio: Tensor) -> dict[str, Tensor]:  # noqa: ARG002
        return {}  # each update has reported those of the target to the proximal policy

    def _adapt_rate(self) -> None:
        """Slow down above twice the KL target, speed up below half of it."""
        kl, target = self._mean_kl(), self.config.kl_target or 0.0
        (low, high), rate = KL_RATE_RANGE, float(self._adapted_rate)
        if kl > 2 * target:
            self._adapted_rate[0] = max(low, rate / KL_RATE_FACTOR)
        elif kl < target / 2:
            self._adapted_rate[0] = min(high, rate * KL_RATE_FACTOR)

    def state(self) -> dict[str, Any]:
        return {**super().state(), "learning_rate": float(self._adapted_rate)}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self._adapted_rate[0] = float(state["learning_rate"])


def _metrics_of(log_ratio: Tensor, clip: float) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return metrics of the ratios of the target to the proximal policy, [M], and outputs: their largest deviation."""
    ratio = log_ratio.exp()
    deviation = (ratio - 1).abs()
    metrics = {
        "approx_kl": approx_kl(log_ratio),
        "ratio_mean": ratio.mean(),
        "clip_fraction": (deviation > clip).float().mean(),
    }
    return metrics, {"ratio_deviation": deviation.max()}


def _permuted(indices: Tensor, random: np.random.Generator) -> Tensor:
    return indices[torch.from_numpy(random.permutation(len(indices))).to(indices.device)]
