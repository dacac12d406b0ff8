"""Learning with a recurrent core: backpropagation through the unroll is that of a plain loop over time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.reference.recurrent_update import RecurrentNetwork, RecurrentTwin
from tests.support.replay_runs import small_sac
from tests.support.runs import small_run
from tests.support.thorough import thorough
from tests.support.update_rows import bench

from offbeat.algorithms.on_policy import ACTOR_CRITIC
from offbeat.algorithms.ppo import PPOConfig
from offbeat.algorithms.rows import minibatch_of_columns
from offbeat.core.errors import ConfigError
from offbeat.core.seeding import stream
from offbeat.core.types import ActionSpec, EnvSpec, Leaf

SMALL = PPOConfig(
    hidden_sizes=(6,),
    core="gru",
    core_size=4,
    epochs=2,
    minibatch_size=13,
    learning_rate=0.01,
    learning_rate_schedule="constant",
    entropy_coef=0.01,
    normalize_observations=False,
    normalize_returns=False,
)
CORRECTED: dict[str, Any] = {"clip_reference": "proximal"}
CASES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "gru": ("discrete", 0, {}),
    "lstm": ("box", 0, {"core": "lstm", "normalize_observations": True}),
    "gru, lagging": ("box", 1, {}),
    "gru, corrected": ("discrete", 1, {**CORRECTED, "c_clip": 0.9, "hidden_sizes": ()}),
    "gru, in one pass": ("box", 0, {"epochs": 1, "minibatch_size": 1000}),
    "lstm, in one pass, corrected": (
        "discrete",
        1,
        {**CORRECTED, "core": "lstm", "epochs": 1, "minibatch_size": 1000, "normalize_returns": True},
    ),
    "lstm, corrected, clipped": ("box", 1, {**CORRECTED, "core": "lstm", "max_grad_norm": 0.05, "value_clip": 0.1}),
}


@pytest.mark.parametrize(
    ("name", "action"),
    [
        *((name, action) for name, (action, *_) in CASES.items()),
        *thorough(*((name, {"discrete": "box", "box": "discrete"}[action]) for name, (action, *_) in CASES.items())),
    ],
)
def test_recurrent_learning_steps_equal_those_of_a_plain_loop_over_time(name, action):
    _, max_lag, changes = CASES[name]
    config = replace(SMALL, **changes)
    side = bench(config, action, max_lag=max_lag)
    weights = {key: array.copy() for key, array in side.algorithm.weights().items()}
    corrected = config.clip_reference == "proximal" and max_lag > 0
    twin = RecurrentTwin(config, RecurrentNetwork(side.spec, weights), corrected=corrected, weighs=corrected)
    for step in range(max_lag + 2):
        batch = side.fill(step, seed=11)
        assert not batch["valid"][:-1].all(), "no reset row to go wrong"
        learned = side.learner.learn(step, progress=0.0)
        norms = twin.learn(batch, config.learning_rate, stream(5, "learn", step))
        assert learned.updates == len(norms)
        assert learned.metrics["grad_norm"] == pytest.approx(np.mean(norms), rel=1e-3)
    for key, array in side.algorithm.weights().items():
        if key in ("observation_mean", "observation_scale", "return_unit"):
            continue
        assert np.abs(array - weights[key]).max() > config.learning_rate / 4, f"{key} did not learn"
        tolerance = 0.02 * config.learning_rate
        np.testing.assert_allclose(array, twin.network.array(key), rtol=0, atol=tolerance, err_msg=key)


@pytest.mark.parametrize(
    ("algorithm", "core"), [("ppo", "gru"), ("dqn", "lstm"), *thorough(("ppo", "lstm"), ("dqn", "gru"))]
)
def test_recurrent_cores_learn_in_bf16(tmp_path, algorithm, core):
    train = small_run if algorithm == "ppo" else partial(small_sac, algorithm="dqn")
    sizes = {"steps": 256} if algorithm == "ppo" else {"steps": 130, "batch_size": 15, "burn_in": 3}
    run = train(tmp_path / "run", "offbeat/Recall-v0", core=core, core_size=8, precision="bf16", **sizes)
    assert run.state == "finished"
    assert run.metrics["updates"] > run.metrics["updates_refused"] == 0


@pytest.mark.parametrize("core", ["gru", "lstm"])
def test_losses_and_gradients_equal_those_of_a_plain_loop_to_five_digits(core):
    side = bench(replace(SMALL, core=core))
    arrays = side.fill(0, seed=11)
    weights = {key: array.copy() for key, array in side.algorithm.weights().items()}
    twin = RecurrentTwin(side.algorithm.config, RecurrentNetwork(side.spec, weights), corrected=False, weighs=False)
    batch = side.algorithm.prepare({name: torch.from_numpy(array) for name, array in arrays.items()})
    minibatch = minibatch_of_columns(side.algorithm.spec, batch, torch.arange(batch["reward"].shape[1]))
    flat = side.algorithm.groups[ACTOR_CRITIC].parameters
    flat.gradients.zero_()
    loss = side.algorithm.loss(minibatch).loss
    assert isinstance(loss, torch.Tensor)
    torch.autograd.backward(loss)
    network: Any = twin.network
    setattr(twin, "optimizer", SimpleNamespace(zero_grad=network.zero_grad, step=lambda: None, param_groups=[{}]))  # noqa: B010
    twin.config = replace(twin.config, epochs=1, minibatch_size=10_000, max_grad_norm=1e9)
    twin.learn(arrays, 0.0, stream(0, "test"))
    for name, gradient in flat.layout.views(flat.gradients).items():
        expected = network.parameter(name).grad.numpy()
        assert np.abs(expected).max() > 1e-3
        np.testing.assert_allclose(gradient.numpy(), expected, atol=1e-5, rtol=1e-5, err_msg=name)


def test_the_first_ratio_is_one_if_the_learner_has_the_acting_weights():
    side = bench(replace(SMALL, **CORRECTED, core="lstm"), max_lag=1)
    side.fill(0, seed=11)
    learned = side.learner.learn(0, progress=0.0)
    assert learned.metrics["ratio_max_deviation_first"] < 1e-5
    assert learned.metrics["effective_sample_size"] == pytest.approx(1.0, abs=1e-5)


# --- settings -----------------------------------------------------------------------------------------------

ENV = EnvSpec("test", (Leaf("observation", (3,), "float32"),), ActionSpec("discrete", (), nvec=(2,)), 4)


def test_a_core_without_a_shared_trunk_is_refused():
    config = replace(SMALL, shared_trunk=False)
    with pytest.raises(ConfigError, match=r"shared_trunk is false.*core=gru.*leave shared_trunk out"):
        config.policy_spec(ENV)
