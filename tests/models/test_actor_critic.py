from __future__ import annotations

from dataclasses import replace
from threading import Thread, current_thread, main_thread

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support.models import actor_critic, policy_spec, policy_specs
from tests.support.thorough import examples

from offbeat.models.policy_network import CoreState


@examples(30)
@given(policy_specs(), st.booleans(), st.integers(0, 2**31 - 1))
def test_the_initial_weights_depend_on_the_seed_alone(spec, shared, seed):
    torch.manual_seed(1)
    first = actor_critic(spec, shared=shared, seed=seed).state_dict()
    torch.manual_seed(2)
    second = actor_critic(spec, shared=shared, seed=seed).state_dict()
    other = actor_critic(spec, shared=shared, seed=seed + 1).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_layers_are_initialized_orthogonal_without_bias_and_with_a_small_policy_head():
    model = actor_critic(policy_spec("box", hidden_sizes=(8, 5)))
    gains = {"policy_body": 2.0, "critic_body": 2.0, "policy_head": 1e-4, "critic_head": 1.0}
    for name, weight in model.state_dict().items():
        if name.endswith("bias"):
            assert not weight.any()
        elif name.endswith("weight"):
            short = weight if weight.shape[0] <= weight.shape[1] else weight.T
            square = gains[name.split(".")[0]] * torch.eye(len(short))
            torch.testing.assert_close(short @ short.T, square, atol=1e-6, rtol=1e-5)
    assert model.log_std is not None
    assert model.log_std.tolist() == [-0.5, -0.5]


@pytest.mark.parametrize("shared", [False, True])
def test_value_returns_the_value_that_is_computed_with_the_distribution(shared):
    model = actor_critic(policy_spec("discrete", activation="relu"), shared=shared)
    observation = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    distribution, values = model.distribution_and_values(observation)
    torch.testing.assert_close(model.value(observation), values)
    logits = model(observation)[0]
    expected = torch.distributions.Categorical(logits=logits).log_prob(torch.ones(6))
    torch.testing.assert_close(distribution.log_prob(torch.ones(6, dtype=torch.int64)), expected)
    assert values.std() > 0.01


@pytest.mark.parametrize("shared", [False, True])
def test_rows_without_a_decision_have_values_of_their_own_for_the_same_observation(shared):
    model = actor_critic(replace(policy_spec("discrete"), no_decision=True), shared=shared)
    observation, waits = torch.ones(2, 3), torch.tensor([False, True])
    values = model.value(observation, no_decision=waits)
    torch.testing.assert_close(values, model.distribution_and_values(observation, no_decision=waits)[1])
    assert values[0] == model.value(observation)[0] != values[1]
    assert torch.autograd.grad(values[1], model.critic_head.weight)[0].count_nonzero() == 0


def test_a_model_with_a_shared_trunk_has_no_critic_body():
    spec = policy_spec("discrete")
    apart, shared = (dict(actor_critic(spec, shared=shared).named_parameters()) for shared in (False, True))
    assert apart.keys() - shared.keys() == {name for name in apart if name.startswith("critic_body")}


@pytest.mark.parametrize("core", ["gru", "lstm"])
def test_gradients_in_bf16_do_not_depend_on_other_threads_that_compute_in_bf16(core):
    spec = replace(policy_spec("discrete"), precision="bf16", core=core, core_size=6)
    model, rows, columns = actor_critic(spec, shared=True), 8, 4
    observation = torch.randn(rows * columns, 3, generator=torch.Generator().manual_seed(0))
    recurrent = model.policy_body.core
    assert recurrent is not None
    before = CoreState(torch.zeros(columns, recurrent.state_size), torch.zeros(rows, columns, dtype=torch.bool))

    def compute_in_another_thread(*_: object) -> None:
        thread = Thread(target=lambda: model.value(observation, core_state=before))
        if current_thread() is main_thread():
            thread.start()
            thread.join()

    def gradient() -> torch.Tensor:
        loss = model.value(observation, core_state=before).square().sum()
        return torch.autograd.grad(loss, recurrent.hidden.weight)[0]

    alone = gradient()
    recurrent.hidden.register_forward_hook(compute_in_another_thread)
    assert torch.equal(gradient(), alone)
