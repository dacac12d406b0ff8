from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.support.thorough import examples

from offbeat.core.types import F32
from offbeat.fastpath.operators import BlasOperators, MKLOperators, fastest_operators
from offbeat.models.mlp import MLP, NUMPY, Layers, Operators

WAYS: list[Operators] = [NUMPY, BlasOperators(), MKLOperators()]
MOST = 96
"""Most rows, inputs or outputs of a layer in these tests."""

seeds = st.integers(0, 2**31 - 1)
widths = st.sampled_from([1, 2, 7, 47, 48, MOST])  # one output has products of its own


def arrays(seed: int, *shapes: tuple[int, ...]) -> list[F32]:
    random = np.random.default_rng(seed)
    return [random.normal(size=shape).astype(np.float32) for shape in shapes]


def assert_close(actual: F32, expected: NDArray[Any], share: float = 1e-5) -> None:
    """Within a share of the largest."""
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max(initial=0) <= share * np.abs(expected).max(initial=1)


@pytest.fixture(params=WAYS, ids=lambda way: type(way).__name__)
def way(request) -> Operators:
    return request.param


@examples(60)
@given(seeds, st.integers(0, MOST), widths, widths, st.booleans())
@pytest.mark.parametrize("way", WAYS, ids=lambda way: type(way).__name__)
def test_matrix_products_equal_those_of_a_linear_layer(way, seed, rows, inputs, outputs, relu):
    x, weight, bias, d = arrays(seed, (rows, inputs), (outputs, inputs), (outputs,), (rows, outputs))
    doubles = [a.astype(np.float64) for a in (x, weight, bias, d)]

    expected = doubles[0] @ doubles[1].T + doubles[2]
    actual = way.forward(x, weight, bias, np.full_like(d, np.nan), relu=relu)
    assert_close(actual, np.maximum(expected, 0) if relu else expected)

    assert_close(way.input_gradient(d, weight, np.full_like(x, np.nan)), doubles[3] @ doubles[1])

    of_weights = np.full_like(weight, np.nan)
    way.weight_gradient(d, x, of_weights)
    assert_close(of_weights, doubles[3].T @ doubles[0])


def test_matrix_products_do_not_change_their_inputs(way):
    given = arrays(0, (60, 70), (50, 70), (50,), (60, 50))
    before = [a.copy() for a in given]
    x, weight, bias, d = given
    way.forward(x, weight, bias, np.empty_like(d), relu=True)
    way.input_gradient(d, weight, np.empty_like(x))
    way.weight_gradient(d, x, np.empty_like(weight))
    for now, then in zip(given, before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize(
    ("capability", "processor", "mkl", "expected"),
    [
        ("AVX512", "AMD EPYC", True, BlasOperators),
        ("AVX512", "Intel Xeon", True, MKLOperators),
        ("AVX512", "Intel Xeon", False, BlasOperators),
        ("AVX2", "Intel Xeon", True, BlasOperators),
        ("AVX2", "AMD EPYC", True, BlasOperators),
        ("DEFAULT", "", False, BlasOperators),
    ],
)
def test_the_operators_depend_on_the_processor_and_the_libraries(monkeypatch, capability, processor, mkl, expected):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"cpu_name": processor}, raising=False)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    assert type(fastest_operators.__wrapped__()) is expected


def test_without_the_name_of_the_processor_numpy_computes_the_products(monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert type(fastest_operators.__wrapped__()) is BlasOperators


def at(array: F32, offset: int) -> F32:
    """Return a copy that begins so many numbers after an address that is divisible by 64."""
    buffer = np.zeros(array.size + 32, np.float32)
    start = (-buffer.ctypes.data % 64) // buffer.itemsize + offset
    copy = buffer[start : start + array.size].reshape(array.shape)
    copy[:] = array
    return copy


@pytest.mark.parametrize(
    ("size", "step"),
    [
        *(((256, 256, 256), 1), ((256, 23, 256), 1), ((100, 256, 12), 1), ((128, 64, 64), 1)),
        # Here MKL needs addresses that are multiples of 16 bytes, as those of all arrays of NumPy and torch are.
        *(((256, 256, 6), 4), ((3, 256, 256), 4), ((1, 256, 256), 4), ((1, 256, 1), 4)),
    ],
    ids=str,
)
def test_the_bits_do_not_depend_on_where_arrays_lie_in_memory(way, size, step):
    rows, inputs, outputs = size
    x, weight, bias, d = arrays(0, (rows, inputs), (outputs, inputs), (outputs,), (rows, outputs))
    seen = set()
    for offset in range(0, 16, step):
        x, weight, bias, d = (
            at(x, offset),
            at(weight, 3 * offset % 16),
            at(bias, 5 * offset % 16),
            at(d, 7 * offset % 16),
        )
        of_output, of_x, of_weight = (at(np.zeros_like(array), offset) for array in (d, x, weight))
        output = way.forward(x, weight, bias, of_output, relu=True)
        input_gradient = way.input_gradient(d, weight, of_x)
        way.weight_gradient(d, x, of_weight)
        seen.add(output.tobytes() + input_gradient.tobytes() + of_weight.tobytes())
    assert len(seen) == 1


# --- networks -----------------------------------------------------------------------------------------------


def network(seed: int, sizes: list[int]) -> Layers:
    shapes = list(zip(sizes[1:], sizes, strict=False))
    weights, biases = arrays(seed, *shapes), arrays(seed + 1, *((outputs,) for outputs in sizes[1:]))
    return Layers([0.3 * weight for weight in weights], biases)


def differentiated(layers: Layers, x: F32, d: F32, activation: str) -> tuple[F32, Layers, F32]:
    """Return output, parameter gradients and input gradient by autograd, in float64."""
    values = [torch.from_numpy(a).double().requires_grad_() for a in (x, *layers.weights, *layers.biases)]
    depth = len(layers.weights)
    y = values[0]
    for i in range(depth):
        y = y @ values[1 + i].T + values[1 + depth + i]
        if i < depth - 1:
            if activation == "relu":
                assume(y.abs().min() > 1e-5)  # nearer to ReLU's kink, rounding decides
            y = getattr(torch, activation)(y)
    y.backward(torch.from_numpy(d).double())
    of_x, *rest = [value.grad.numpy() for value in values if value.grad is not None]
    return y.detach().numpy(), Layers(rest[:depth], rest[depth:]), of_x


@examples(60)
@given(
    seeds,
    st.lists(st.integers(1, MOST), min_size=2, max_size=5),
    st.integers(1, MOST),
    st.sampled_from(["relu", "tanh"]),
    st.data(),
)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: type(way).__name__)
def test_mlp_outputs_and_gradients_equal_those_of_torch(way, seed, sizes, rows, activation, data):
    layers, (x, d) = network(seed, sizes), arrays(seed + 2, (rows, sizes[0]), (rows, sizes[-1]))
    output, gradients, of_x = differentiated(layers, x, d, activation)
    mlp = MLP(layers.sizes, activation, way)
    assert_close(mlp.forward(layers, x).copy(), output)

    some = np.array(sorted(data.draw(st.sets(st.integers(0, rows - 1)))), np.intp)
    inputs = slice(data.draw(st.integers(0, sizes[0] - 1)), None)
    assert_close(mlp.input_gradient(layers, d[some], some, inputs), of_x[some, inputs])

    written = network(seed + 3, sizes)
    mlp.backward(layers, d, written)
    for actual, expected in zip(
        (*written.weights, *written.biases), (*gradients.weights, *gradients.biases), strict=True
    ):
        assert_close(actual, expected, 1e-4)  # sums over the rows may cancel


def test_the_gradients_of_parts_of_the_rows_sum_to_the_gradient_of_all(way):
    layers, (x, d) = network(0, [5, 64, 60, 2]), arrays(1, (101, 5), (101, 2))
    mlp = MLP(layers.sizes, "tanh", way)
    _, whole, _ = differentiated(layers, x, d, "tanh")
    mlp.forward(layers, x)
    parts = [network(2 + i, layers.sizes) for i in range(2)]
    for part, rows in zip(parts, (slice(0, 51), slice(51, 101)), strict=True):
        mlp.backward(layers, d[rows], part, rows)
    for i in range(3):
        assert_close(parts[0].weights[i] + parts[1].weights[i], whole.weights[i])
        assert_close(parts[0].biases[i] + parts[1].biases[i], whole.biases[i])
