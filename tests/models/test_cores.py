"""Recurrent cores against torch's own cells, one column and one row at a time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support.thorough import examples
from torch import Tensor, nn

from offbeat.models.cores import CORES, GRU, LSTM
from offbeat.models.policy_network import Orthogonal

INPUTS = 3
NAMES = sorted(CORES)


def core_of(name: str, size: int, seed: int = 0) -> GRU | LSTM:
    generator = torch.Generator().manual_seed(seed)
    core = CORES[name](INPUTS, size, Orthogonal(generator))
    with torch.no_grad():
        for key, parameter in core.named_parameters():
            if key.endswith("bias"):
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return core


def cell_of(name: str, core: GRU | LSTM) -> nn.Module:
    cell = {"gru": nn.GRUCell, "lstm": nn.LSTMCell}[name](INPUTS, core.size)
    shares = {"weight_ih": core.input.weight, "bias_ih": core.input.bias}
    shares |= {"weight_hh": core.hidden.weight, "bias_hh": core.hidden.bias}
    for key, parameter in shares.items():
        setattr(cell, key, parameter)
    return cell


def one_by_one(name: str, core: GRU | LSTM, x: Tensor, state: Tensor, resets: Tensor) -> tuple[Tensor, Tensor]:
    """The slow twin: every column alone, row by row, and a state of zeros after each row that ends an episode."""
    cell, columns, ends = cell_of(name, core), [], []
    for column in range(x.shape[1]):
        output, own = [], state[column : column + 1]
        for row in range(x.shape[0]):
            given_row = x[row, column : column + 1]
            if name == "gru":
                own = cell(given_row, own)
                output.append(own)
            else:
                hidden, memory = cell(given_row, (own[:, : core.size], own[:, core.size :]))
                own = torch.cat((hidden, memory), dim=1)
                output.append(hidden)
            if resets[row, column]:
                own = torch.zeros_like(own)
        columns.append(torch.cat(output))
        ends.append(own)
    return torch.stack(columns, dim=1), torch.cat(ends)


@examples(40)
@given(st.sampled_from(NAMES), st.integers(1, 6), st.integers(1, 4), st.integers(1, 5), st.integers(0, 2**31 - 1))
def test_outputs_and_gradients_equal_those_of_torchs_recurrent_cells(name, length, columns, size, seed):
    core, random = core_of(name, size, seed), torch.Generator().manual_seed(seed)
    x = torch.randn(length, columns, INPUTS, generator=random, requires_grad=True)
    state = torch.randn(columns, core.state_size, generator=random, requires_grad=True)
    resets = torch.rand(length, columns, generator=random) < 0.3
    leaves = [x, state, *core.parameters()]
    ours, theirs = core(x, state, resets), one_by_one(name, core, x, state, resets)
    weights = [torch.randn(part.shape, generator=random) for part in ours]
    gradients = [
        torch.autograd.grad(sum((part * w).sum() for part, w in zip(parts, weights, strict=True)), leaves)
        for parts in (ours, theirs)
    ]
    for one, other in zip((*ours, *gradients[0]), (*theirs, *gradients[1]), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_stepping_row_by_row_equals_one_call_over_all_rows(name):
    core, random = core_of(name, 4), torch.Generator().manual_seed(1)
    x, state = torch.randn(7, 2, INPUTS, generator=random), torch.randn(2, core.state_size, generator=random)
    resets = torch.rand(7, 2, generator=random) < 0.4
    together, end = core(x, state, resets)
    for row in range(7):
        output, state = core(x[row : row + 1], state, resets[row : row + 1])
        torch.testing.assert_close(output[0], together[row])
    torch.testing.assert_close(state, end)


@pytest.mark.parametrize("name", NAMES)
def test_the_core_state_is_reset_at_episode_ends(name):
    core, random = core_of(name, 4), torch.Generator().manual_seed(2)
    x = torch.randn(5, 1, INPUTS, generator=random)
    resets = torch.tensor([[False], [True], [False], [False], [False]])
    after, _ = core(x, torch.randn(1, core.state_size, generator=random), resets)
    alone, _ = core(x[2:], torch.zeros(1, core.state_size), resets[2:])
    torch.testing.assert_close(after[2:], alone)
