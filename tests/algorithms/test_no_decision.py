"""Rows without a decision: the critic learns from them, and nothing else does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.update_rows import Bench, bench

from offbeat.algorithms.a2c import A2CConfig
from offbeat.algorithms.impala import IMPALAConfig
from offbeat.algorithms.on_policy_config import OnPolicyConfig
from offbeat.algorithms.ppo import PPOConfig
from offbeat.core.seeding import stream
from offbeat.core.types import Tree

SAME: dict[str, Any] = {
    "hidden_sizes": (6, 5), "learning_rate": 0.01, "learning_rate_schedule": "constant",
    "normalize_observations": False, "normalize_returns": False, "max_grad_norm": 1e6,
}  # fmt: skip
ONE_UPDATE: dict[str, Any] = {**SAME, "epochs": 1, "minibatch_size": 1000}
CONFIGS: dict[str, OnPolicyConfig] = {
    "ppo": PPOConfig(**SAME, epochs=2, minibatch_size=13),
    "ppo, by autograd": PPOConfig(**SAME, epochs=2, minibatch_size=13, layer_norm=True),
    "ppo, in one pass": PPOConfig(**ONE_UPDATE, layer_norm=True),
    "a2c": A2CConfig(**SAME),
    "impala": IMPALAConfig(**SAME, layer_norm=True),
}
RECURRENT: dict[str, OnPolicyConfig] = {
    "ppo, recurrent": PPOConfig(**SAME, epochs=2, minibatch_size=13, core="gru", core_size=4),
    "ppo, recurrent, in one pass": PPOConfig(**ONE_UPDATE, core="gru", core_size=4),
    "impala, recurrent": IMPALAConfig(**SAME, core="gru", core_size=4),
}
EACH_LAG = pytest.mark.parametrize("max_lag", [0, 1])


def filled(config: OnPolicyConfig, max_lag: int) -> tuple[Bench, Tree, tuple[int, int]]:
    """Return a learner, its batch, and where in it a decision after another was made a row without one."""
    side = bench(config, max_lag=max_lag, no_decision=True)
    batch = side.fill(0, seed=11)
    done = batch["terminated"] | batch["truncated"]
    ours = batch["valid"] & ~done
    row, column = (int(at) for at in np.argwhere(ours[:-2] & ours[1:-1])[0] + (1, 0))
    batch["valid"][row, column] = False
    batch["no_decision"][row, column] = True
    return side, batch, (row, column)


@pytest.mark.parametrize("name", CONFIGS)
@EACH_LAG
def test_observations_of_no_decision_rows_train_only_the_critic(name, max_lag):
    weights = []
    for changed in (False, True):
        side, batch, at = filled(CONFIGS[name], max_lag)
        [leaf] = side.spec.observation
        if changed:
            batch[leaf.name][at] += 1
        assert side.learner.learn(0, 0.0).refused == 0
        weights.append(side.algorithm.weights())
    differ = {key for key in weights[0] if not np.array_equal(weights[0][key], weights[1][key])}
    assert differ
    assert "no_decision_head.weight" in differ
    assert all(key.startswith(("critic", "no_decision_head")) for key in differ)


@pytest.mark.parametrize("name", CONFIGS | RECURRENT)
@EACH_LAG
def test_the_critic_loss_is_the_mean_over_decision_and_no_decision_rows(name, max_lag):
    """In epochs of one minibatch each, between which hardly anything is learned."""
    config = replace((CONFIGS | RECURRENT)[name], learning_rate=1e-9)
    if isinstance(config, PPOConfig):
        config = replace(config, minibatch_size=1000)
    side, batch, at = filled(config, max_lag)
    tensors = {key: torch.from_numpy(array.copy()) for key, array in batch.items()}
    with torch.no_grad():
        prepared: dict[str, Any] = dict(side.algorithm.prepare(tensors))
        values, targets = prepared["proximal_value"], prepared["value_target"]
    counted = tensors["valid"][:-1].clone()
    counted[at] = True
    expected = 0.5 * (values - targets)[counted].square().mean()
    assert side.learner.learn(0, 0.0).metrics["value_loss"] == pytest.approx(float(expected), rel=1e-4)


@EACH_LAG
def test_a_prepared_batch_marks_all_rows_without_a_decision_and_the_critic_learns_from_all_but_the_first(max_lag):
    side, batch, (row, column) = filled(PPOConfig(**SAME, epochs=2, minibatch_size=1000), max_lag)
    first = int(np.flatnonzero(batch["valid"][0] & ~batch["terminated"][0] & ~batch["truncated"][0])[0])
    batch["valid"][0, first], batch["no_decision"][0, first] = False, True
    prepared = side.algorithm.prepare({key: torch.from_numpy(array.copy()) for key, array in batch.items()})
    assert prepared["no_decision"].nonzero().tolist() == [[0, first], [row, column]]
    minibatch = next(side.algorithm.minibatches(prepared, stream(0, "test")))
    decisions = int(batch["valid"][:-1].sum())
    assert minibatch["no_decision"].tolist() == [False] * decisions + [True]
    torch.testing.assert_close(minibatch["observation"][-1], prepared["observation"][row, column])


@EACH_LAG
def test_recurrent_minibatches_have_a_decision_each_where_columns_have_none(max_lag):
    """One column of each unroll has a decision; the agent of the second is absent, and that of the third waits."""
    config = PPOConfig(**SAME, epochs=2, minibatch_size=3, core="gru", core_size=4)
    side = bench(config, max_lag=max_lag, no_decision=True)
    batch = side.fill(0, seed=11)
    without = np.arange(batch["valid"].shape[1]) % 3 > 0
    for name in ("valid", "terminated", "truncated"):
        batch[name][:, without] = False
    batch["no_decision"][:, np.arange(len(without)) % 3 == 2] = True
    before = side.parameters
    learned = side.learner.learn(0, 0.0)
    assert (learned.updates, learned.refused) == (2 * 2, 0)
    assert np.isfinite(side.parameters).all()
    assert (side.parameters != before).any()
