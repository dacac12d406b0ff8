from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.support.models import actor_critic, policy_spec

from offbeat.models.actor_critic import ActorCritic
from offbeat.models.flat import FlatAdam, FlatParameters, largest_step


def model_and_flat() -> tuple[ActorCritic, FlatParameters]:
    model = actor_critic(policy_spec("box", hidden_sizes=(7, 5)))
    return model, FlatParameters(model)


def loss_of(model: ActorCritic, seed: int) -> torch.Tensor:
    observation = torch.randn(6, 3, generator=torch.Generator().manual_seed(seed))
    distribution, values = model.distribution_and_values(observation)
    loss: torch.Tensor = (values - 2).square().mean() - distribution.log_prob(torch.ones(6, 2)).mean()
    return loss


def test_parameters_keep_their_values_and_become_views_of_the_buffer():
    plain = actor_critic(policy_spec("box", hidden_sizes=(7, 5)))
    model, flat = model_and_flat()
    for (name, before), (_, after) in zip(plain.named_parameters(), model.named_parameters(), strict=True):
        assert torch.equal(before, after), name
    flat.values.fill_(3.0)
    assert all((parameter == 3.0).all() for parameter in model.parameters())
    flat.arrays()["policy_head.bias"].fill_(4.0)
    assert (model.policy_head.bias == 4.0).all()


def test_backward_adds_to_the_gradient_buffer():
    model, flat = model_and_flat()
    plain = actor_critic(policy_spec("box", hidden_sizes=(7, 5)))
    for seed in (0, 1):  # twice: it must stay the same buffer
        loss_of(model, seed).backward()
        loss_of(plain, seed).backward()
    gradients = flat.layout.views(flat.gradients)
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad)
    flat.gradients.zero_()
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in model.parameters())


def test_adam_on_the_flat_buffer_equals_adam_on_separate_tensors():
    model, flat = model_and_flat()
    plain = actor_critic(policy_spec("box", hidden_sizes=(7, 5)))
    adam, theirs = FlatAdam(flat, eps=1e-5), torch.optim.Adam(plain.parameters(), eps=1e-5)
    start = flat.values.clone()
    for step, rate in enumerate([0.01, 0.02, 0.005, 0.0, 0.01] * 4):
        flat.gradients.zero_()
        theirs.zero_grad()
        loss_of(model, step).backward()
        loss_of(plain, step).backward()
        adam.step(rate)
        theirs.param_groups[0]["lr"] = rate
        theirs.step()
    for (name, ours), (_, expected) in zip(model.named_parameters(), plain.named_parameters(), strict=True):
        torch.testing.assert_close(ours, expected, atol=2e-6, rtol=0, msg=name)
    assert (flat.values - start).abs().max() > 0.05


def test_gaps_between_the_arrays_stay_zero():
    model, flat = model_and_flat()
    adam = FlatAdam(flat, eps=1e-5)
    for step in range(3):
        loss_of(model, step).backward()
        adam.step(0.1)
    filled = torch.zeros(flat.layout.size, dtype=torch.bool)
    for view in flat.layout.views(filled).values():
        view.fill_(True)
    assert (~filled).sum() > 0
    assert not flat.values[~filled].any()


@pytest.mark.parametrize("before", [0, 3])
def test_moments_can_be_restored_in_another_optimizer(before):
    model, flat = model_and_flat()
    adam = FlatAdam(flat, eps=1e-5)
    for step in range(before):
        loss_of(model, step).backward()
        adam.step(0.1)
    _, twin = model_and_flat()
    twin.values.copy_(flat.values)
    other = FlatAdam(twin, eps=1e-5)
    for name, tensor in other.state_tensors().items():
        tensor.copy_(adam.state_tensors()[name])
    for optimizer, parameters in ((adam, flat), (other, twin)):
        parameters.gradients.copy_(torch.linspace(-1, 1, flat.layout.size))
        optimizer.step(0.1)
    np.testing.assert_array_equal(flat.values.numpy(), twin.values.numpy())


@pytest.mark.parametrize("shared", [False, True])
def test_a_refused_step_changes_neither_parameters_nor_moments_and_is_not_counted(shared):
    model, flat = model_and_flat()
    flat.shared = shared
    adam = FlatAdam(flat, eps=1e-5)
    loss_of(model, 0).backward()
    adam.step(0.1)
    before = [tensor.clone() for tensor in (flat.values, *adam.state_tensors().values())]
    flat.gradients.fill_(float("nan"))
    adam.step(0.1, refused=torch.tensor(True))
    for tensor, expected in zip((flat.values, *adam.state_tensors().values()), before, strict=True):
        assert torch.equal(tensor, expected)
    flat.gradients.fill_(0.5)
    adam.step(0.1, refused=torch.tensor(False))
    assert adam.state_tensors()["step"] == 2
    assert (flat.values != before[0]).any()


@pytest.mark.parametrize("beta1", [0.0, 0.5, 0.9])
def test_steps_without_other_workers_stay_below_the_limit_of_shared_moments(beta1):
    """The largest step is that of one large gradient after many of nearly 0."""
    module = torch.nn.Linear(1, 1)
    flat = FlatParameters(module)
    adam = FlatAdam(flat, eps=1e-30, beta1=beta1)
    largest = 0.0
    for number in range(3000):
        before = flat.values.clone()
        # The sequence that reaches the bound grows like (beta2 / beta1)^number towards its end.
        flat.gradients.fill_(max(beta1 / 0.999, 1e-3) ** (2999 - number) + 1e-20)
        adam.step(1.0)
        largest = max(largest, float((flat.values - before).abs().max()))
    assert 0.65 * largest_step(beta1) < largest < largest_step(beta1)


def test_a_step_that_divides_by_nearly_zero_because_of_another_worker_is_limited():
    _, flat = model_and_flat()
    flat.shared = True
    adam = FlatAdam(flat, eps=1e-30)
    adam.state_tensors()["exp_avg"].fill_(-1)  # another worker has not yet changed exp_avg_sq
    flat.gradients.fill_(1e-20)
    before = flat.values.clone()
    adam.step(0.125)
    torch.testing.assert_close(flat.values - before, torch.full_like(before, 0.125 * largest_step(0.9)))
