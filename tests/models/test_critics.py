from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support.thorough import examples
from torch import nn

from offbeat.core.types import ActionSpec, Leaf
from offbeat.models.critics import Critics
from offbeat.models.dense import Unfilled
from offbeat.models.policy_network import Body
from offbeat.models.spec import Activation, PolicySpec

LEAVES, ACTION = (Leaf("observation", (4,), "float32"),), ActionSpec("discrete", (), nvec=(2,))
seeds = st.integers(0, 2**31 - 1)
sizes = st.lists(st.integers(1, 9), max_size=3).map(tuple)


def ensemble(
    hidden: tuple[int, ...] = (7, 5),
    activation: Activation = "relu",
    critics: int = 3,
    choices: int | None = None,
    *,
    layer_norm: bool = False,
) -> Critics:
    generator = torch.Generator().manual_seed(1)
    spec = PolicySpec(LEAVES, ACTION, (), activation, "categorical", normalize=False)
    settings: Any = {"critics": critics, "choices": choices, "layer_norm": layer_norm, "generator": generator}
    return Critics(Body(spec, Unfilled()), hidden, activation, **settings)


def alone(critics: Critics, e: int, activation: str) -> nn.Sequential:
    """Return one of the ensemble as an ordinary stack of layers."""
    modules: list[nn.Module] = []
    for i, (weights, biases) in enumerate(zip(critics.weights, critics.biases, strict=True)):
        layer = nn.Linear(weights.shape[2], weights.shape[1])
        layer.weight.data, layer.bias.data = weights[e].detach(), biases[e].detach()
        modules.append(layer)
        if i < len(critics.scales):
            norm = nn.LayerNorm(weights.shape[1])
            norm.weight.data, norm.bias.data = critics.scales[i][e].detach(), critics.shifts[i][e].detach()
            modules.append(norm)
        modules.append(nn.Tanh() if activation == "tanh" else nn.ReLU())
    return nn.Sequential(*modules[:-1])


@examples(60)
@given(
    sizes,
    st.sampled_from(["tanh", "relu"]),
    st.integers(1, 4),
    st.none() | st.integers(1, 5),
    st.booleans(),
    st.integers(1, 9),
)
def test_each_critic_is_a_separate_network(hidden, activation, count, choices, layer_norm, rows):
    critics = ensemble(hidden, activation, count, choices, layer_norm=layer_norm)
    for parameter in (*critics.scales, *critics.shifts):
        parameter.data.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    x = torch.randn(rows, 4, generator=torch.Generator().manual_seed(2))
    values = critics(x)
    assert values.shape == ((count, rows) if choices is None else (count, rows, choices))
    for e in range(count):
        expected = alone(critics, e, activation)(x)
        torch.testing.assert_close(values[e], expected[:, 0] if choices is None else expected)


def test_the_parameters_of_critics_are_named_by_layer():
    shapes = {name: tuple(parameter.shape) for name, parameter in ensemble(choices=6).named_parameters()}
    assert shapes == {
        "weights.0": (3, 7, 4),
        "weights.1": (3, 5, 7),
        "weights.2": (3, 6, 5),
        "biases.0": (3, 7),
        "biases.1": (3, 5),
        "biases.2": (3, 6),
    }


def test_with_layer_normalization_hidden_layers_have_scales_and_shifts_of_1_and_0():
    critics = ensemble(layer_norm=True)
    shapes = {name: tuple(parameter.shape) for name, parameter in critics.named_parameters()}
    assert shapes.keys() - dict(ensemble().named_parameters()).keys() == {
        "scales.0", "scales.1", "shifts.0", "shifts.1",
    }  # fmt: skip
    assert shapes["scales.0"] == shapes["shifts.0"] == (3, 7)
    assert all((scale == 1).all() for scale in critics.scales)
    assert not any(shift.any() for shift in critics.shifts)


def test_critics_are_initialized_as_torch_layers_and_differ_from_each_other():
    critics = ensemble((300, 200), critics=2)
    for weights, biases in zip(critics.weights, critics.biases, strict=True):
        bound = 1 / math.sqrt(weights.shape[2])
        for parameter in (weights, biases):
            assert parameter.abs().max() <= bound
            assert not torch.equal(parameter[0], parameter[1])
        assert weights.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)


def test_the_initial_critics_depend_on_the_generator_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = ensemble()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    for one, other in zip(first.parameters(), ensemble().parameters(), strict=True):
        assert torch.equal(one, other)
