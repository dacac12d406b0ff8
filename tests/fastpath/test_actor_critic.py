from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support.compiled import KERNELS
from tests.support.models import policy_spec
from tests.support.thorough import examples
from tests.support.update_rows import ALGORITHMS, bench, perturb, random_minibatch

from offbeat.algorithms.a2c import A2CConfig
from offbeat.algorithms.impala import IMPALAConfig
from offbeat.algorithms.minibatch_types import ForwardedRows
from offbeat.algorithms.on_policy import ACTOR_CRITIC, OnPolicy
from offbeat.algorithms.on_policy_config import OnPolicyConfig
from offbeat.algorithms.on_policy_shards import NORMALIZED
from offbeat.algorithms.ppo import PPOConfig
from offbeat.fastpath.actor_critic import ActorCriticFastPath
from offbeat.fastpath.mlp_pair import MLPPair
from offbeat.models.spec import PolicySpec

shared: dict[str, st.SearchStrategy[Any]] = {
    "value_coef": st.sampled_from([0.0, 0.5, 2.0]),
    "entropy_coef": st.sampled_from([0.0, 0.01, 1.0]),
    "normalize_advantages": st.booleans(),
    "hidden_sizes": st.lists(st.integers(1, 12), max_size=3).map(tuple),
    "activation": st.sampled_from(["tanh", "relu"]),
}
ppo_configs = st.builds(
    PPOConfig,
    clip=st.sampled_from([0.05, 0.2, 0.5]),
    value_clip=st.none() | st.sampled_from([0.05, 0.3]),
    **shared,
)
configs: st.SearchStrategy[OnPolicyConfig] = st.one_of(
    ppo_configs, st.builds(A2CConfig, **shared), st.builds(IMPALAConfig, **shared)
)


def algorithm_of(config: OnPolicyConfig, action: str, **spec: Any) -> tuple[OnPolicy[Any], PolicySpec]:
    policy = policy_spec(
        action,
        hidden_sizes=(64, 64) if config.hidden_sizes is None else config.hidden_sizes,
        activation=config.activation,
        **spec,
    )
    algorithm = ALGORITHMS[type(config)](config, policy, seed=0, corrected=False)
    perturb(algorithm, 0.3)
    return algorithm, policy


@KERNELS
# Drawn without chance: rows that lie on a clip's very edge would have two derivatives.
@examples(300, derandomize=True)
@given(
    configs,
    st.sampled_from(["discrete", "box", "matrix"]),
    st.sampled_from([1, 2, 3, 17, 64, 300]),
    st.sampled_from([0.02, 0.4]),
    st.integers(0, 2**32 - 1),
)
def test_loss_metrics_and_every_gradient_equal_those_of_autograd(kernels, config, action, rows, drift, seed):
    algorithm, spec = algorithm_of(replace(config, kernels=kernels), action)
    flat = algorithm.groups[ACTOR_CRITIC].parameters
    minibatch = random_minibatch(algorithm, spec, rows, seed, drift)
    [stage] = algorithm.stages
    assert stage.gradients is not None
    loss, metrics, outputs = stage.loss(minibatch)
    assert isinstance(loss, torch.Tensor)
    loss.backward()
    expected = flat.gradients.clone()
    for view in flat.layout.views(flat.gradients).values():
        view.fill_(7.0)  # what is not written stays wrong
    our_loss, our_metrics, our_outputs = stage.gradients(minibatch)
    assert float(our_loss) == pytest.approx(loss.item(), rel=1e-5, abs=1e-5)
    torch.testing.assert_close(flat.gradients, expected, rtol=0, atol=1e-5 * max(1.0, expected.abs().max().item()))
    # The largest deviation of a ratio adds up the rounding of few rows, means that of many.
    for ours, autograds, atol in ((our_metrics, metrics, 1e-6), (our_outputs, outputs, 1e-5)):
        assert ours.keys() == autograds.keys()
        for name, value in ours.items():
            assert float(value) == pytest.approx(float(autograds[name]), rel=1e-4, abs=atol), name


@KERNELS
def test_advantages_in_small_units_are_normalized_as_by_autograd(kernels):
    algorithm, spec = algorithm_of(PPOConfig(hidden_sizes=(3,), normalize_advantages=True, kernels=kernels), "box")
    minibatch = random_minibatch(algorithm, spec, 17, seed=0)
    minibatch["advantage"] = 1e-4 * minibatch["advantage"]
    [stage] = algorithm.stages
    assert stage.gradients is not None
    expected = float(stage.loss(minibatch).metrics["policy_loss"])
    assert float(stage.gradients(minibatch).metrics["policy_loss"]) == pytest.approx(expected, rel=1e-3)


@KERNELS
def test_an_update_is_refused_if_the_variance_of_its_advantages_overflows(kernels):
    """Normalised by an infinite deviation, all advantages would be 0."""
    algorithm, spec = algorithm_of(PPOConfig(hidden_sizes=(3,), normalize_advantages=True, kernels=kernels), "box")
    minibatch = random_minibatch(algorithm, spec, 17, seed=0)
    minibatch["advantage"] = 1e25 * minibatch["advantage"]
    [stage] = algorithm.stages
    assert stage.gradients is not None
    for result in (stage.loss(minibatch), stage.gradients(minibatch)):
        assert np.isnan(float(torch.as_tensor(result.loss).detach()))


@KERNELS
def test_the_advantages_of_a_shard_are_those_normalised_over_the_whole_minibatch(kernels):
    algorithm, spec = algorithm_of(PPOConfig(hidden_sizes=(3,), normalize_advantages=True, kernels=kernels), "box")
    shard = {**random_minibatch(algorithm, spec, 17, seed=0), NORMALIZED: torch.linspace(-3, 5, 17)}
    [stage] = algorithm.stages
    assert stage.gradients is not None
    expected = float(stage.loss(shard).metrics["policy_loss"])
    assert float(stage.gradients(shard).metrics["policy_loss"]) == pytest.approx(expected, rel=1e-4)


@KERNELS
@examples(30, derandomize=True)
@given(st.integers(1, 300), st.floats(-1e6, 1e6, width=32))
def test_normalized_advantages_that_are_all_equal_do_not_change_the_policy(kernels, rows, advantage):
    config = PPOConfig(hidden_sizes=(3,), entropy_coef=0.0, normalize_advantages=True, kernels=kernels)
    algorithm, spec = algorithm_of(config, "box")
    minibatch = random_minibatch(algorithm, spec, rows, seed=0)
    minibatch["advantage"] = torch.full((rows,), advantage)
    [stage] = algorithm.stages
    assert stage.gradients is not None
    stage.gradients(minibatch)
    flat = algorithm.groups[ACTOR_CRITIC].parameters
    of_policy = [view for name, view in flat.layout.views(flat.gradients).items() if not name.startswith("critic")]
    assert not any(view.any() for view in of_policy)


@KERNELS
@examples(30, derandomize=True)
@given(configs, st.sampled_from(["discrete", "box"]), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_a_minibatch_of_another_size_is_not_affected_by_the_one_before(kernels, config, action, rows, seed):
    algorithm, spec = algorithm_of(replace(config, kernels=kernels), action)
    flat = algorithm.groups[ACTOR_CRITIC].parameters
    gradients = algorithm.stages[0].gradients
    assert gradients is not None
    minibatch = random_minibatch(algorithm, spec, rows, seed)
    gradients(minibatch)
    alone = flat.gradients.clone()
    gradients(random_minibatch(algorithm, spec, 12, seed + 1))
    gradients(minibatch)
    assert torch.equal(flat.gradients, alone)


@KERNELS
@pytest.mark.parametrize("small", [PPOConfig(epochs=1), A2CConfig(), IMPALAConfig()])
@pytest.mark.parametrize("action", ["discrete", "box"])
@pytest.mark.parametrize(("between", "max_lag"), [("nothing", 0), ("another pass", 1), ("values", 0), ("an update", 0)])
def test_the_gradients_of_a_pass_that_is_used_again_are_those_of_a_new_one(kernels, small, action, between, max_lag):
    config = replace(small, hidden_sizes=(7, 5), entropy_coef=0.1, kernels=kernels)
    side = bench(config, action, max_lag=max_lag)
    algorithm, flat = side.algorithm, side.algorithm.groups[ACTOR_CRITIC].parameters
    rows = {name: torch.from_numpy(array) for name, array in side.fill(0, seed=11).items()}
    batch = algorithm.prepare(rows)
    [minibatch] = algorithm.minibatches(batch, np.random.default_rng(0))
    assert isinstance(minibatch, ForwardedRows)
    assert 0 < len(minibatch["advantage"]) < batch["reward"].numel()  # some rows are not valid
    [stage] = algorithm.stages
    assert stage.gradients is not None
    if between == "another pass":
        algorithm.prepare({**rows, **{leaf.name: -rows[leaf.name] for leaf in side.spec.observation}})
    if between == "values":
        algorithm.batch_network.values({**batch, "observation": -batch["observation"]})
    if between == "an update":
        stage.gradients(minibatch)
        flat.values.mul_(0.9)
    loss, metrics, _ = stage.gradients(minibatch)
    gradients = flat.gradients.clone()
    flat.gradients.zero_()
    expected = stage.loss(dict(minibatch))
    assert isinstance(expected.loss, torch.Tensor)
    expected.loss.backward()
    assert float(loss) == pytest.approx(expected.loss.item(), rel=1e-5, abs=1e-5)
    torch.testing.assert_close(
        gradients, flat.gradients, rtol=0, atol=1e-5 * max(1.0, flat.gradients.abs().max().item())
    )
    for name, value in metrics.items():
        assert float(value) == pytest.approx(float(expected.metrics[name]), rel=1e-4, abs=1e-6), name


@pytest.mark.parametrize("action", ["discrete", "box"])
def test_gradients_use_the_forward_pass_of_prepare_again(action, monkeypatch):
    side = bench(PPOConfig(hidden_sizes=(4,), epochs=1), action)
    batch = side.algorithm.prepare({name: torch.from_numpy(array) for name, array in side.fill(0, seed=11).items()})
    [minibatch] = side.algorithm.minibatches(batch, np.random.default_rng(0))
    monkeypatch.setattr(MLPPair, "forward", lambda *_: pytest.fail("there was a second pass"))
    gradients = side.algorithm.stages[0].gradients
    assert gradients is not None
    gradients(minibatch)


@pytest.mark.parametrize("kind", ALGORITHMS)
@pytest.mark.parametrize(
    ("action", "settings", "expected"),
    [
        ("discrete", {}, True),
        ("box", {}, True),
        ("box", {"hidden_sizes": (), "activation": "relu"}, True),
        ("multidiscrete", {}, False),
        ("discrete", {"shared_trunk": True}, False),
        ("discrete", {"exploration": "symmetric_kl"}, False),
        ("box", {"action_distribution": "squashed"}, False),
    ],
)
def test_the_fast_path_is_used_only_for_settings_that_its_gradients_support(kind, action, settings, expected):
    config = kind(**settings)
    algorithm, _ = algorithm_of(config, action, squashed=config.action_distribution == "squashed")
    assert ActorCriticFastPath.applies(algorithm) is expected
    assert (algorithm.stages[0].gradients is not None) is expected
