from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support.thorough import examples
from torch.nn import functional

from offbeat.models import dense, onednn
from offbeat.models.dense import Dense
from offbeat.models.onednn import WIDE
from offbeat.models.policy_network import Uniform

SIZES = st.integers(1, 6 * WIDE)
ENOUGH = -(-dense.ONEDNN_MULTIPLICATIONS // WIDE**2)
"""Rows from which on oneDNN pays in a layer of the least width."""


@examples(40)
@given(SIZES, SIZES, SIZES, st.booleans(), st.integers(0, 2**31 - 1))
def test_outputs_and_gradients_equal_those_of_torch_linear(rows, inputs, outputs, input_grad, seed):
    generator = torch.Generator().manual_seed(seed)
    layer = Dense(inputs, outputs, Uniform(generator))
    x = torch.randn(rows, inputs, generator=generator, requires_grad=input_grad)
    weigh = torch.randn(rows, outputs, generator=generator)
    leaves = [layer.weight, layer.bias, *([x] if input_grad else [])]
    results = [
        (output, *torch.autograd.grad((output * weigh).sum(), leaves))
        for output in (layer(x), functional.linear(x, layer.weight, layer.bias))
    ]
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.skipif(not onednn.works(), reason="torch has no such operator here")
def test_large_products_use_onednn_and_all_others_torch(monkeypatch):
    taken: list[int] = []

    def product(x, weight, bias):
        taken.append(len(x))
        return functional.linear(x, weight, bias)

    def layer(outputs: int) -> Dense:
        return Dense(WIDE, outputs, Uniform(torch.Generator()))

    monkeypatch.setattr(onednn, "linear", product)
    for each, rows, dtype, expected in [
        (layer(WIDE), ENOUGH, torch.float32, [ENOUGH]),
        (layer(WIDE), ENOUGH - 1, torch.float32, []),
        (layer(WIDE - 1), 2 * ENOUGH, torch.float32, []),
        (layer(ENOUGH * WIDE), 4, torch.float32, [4]),
        (layer(ENOUGH * WIDE), 3, torch.float32, []),
        (layer(WIDE).double(), ENOUGH, torch.float64, []),
    ]:
        taken.clear()
        with torch.no_grad():
            each(torch.zeros(rows, WIDE, dtype=dtype))
        assert taken == expected
    taken.clear()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(WIDE)(torch.zeros(ENOUGH, WIDE)).dtype is torch.bfloat16
    assert not taken
