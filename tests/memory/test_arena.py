from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from offbeat.memory.arena import ALIGNMENT, Slab, arena_bytes, private_arena
from offbeat.types import Array

shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)
dtypes = st.sampled_from(["float32", "int64", "bool", "uint8", "int32"])


def slabs_of(kinds: list[tuple[tuple[int, ...], str]]) -> list[Slab]:
    return [(f"array{i}", shape, dtype) for i, (shape, dtype) in enumerate(kinds)]


def bytes_of(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(shapes, dtypes), min_size=1, max_size=8))
def test_arrays_have_their_shape_and_dtype_are_zero_and_share_no_byte(kinds):
    slabs = slabs_of(kinds)
    arrays = private_arena(slabs)
    assert [(name, array.shape, array.dtype.name) for name, array in arrays.items()] == slabs
    assert not any(array.any() for array in arrays.values())
    for number, array in enumerate(arrays.values(), start=1):
        bytes_of(array)[...] = number
    for number, array in enumerate(arrays.values(), start=1):
        assert (bytes_of(array) == number).all()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(shapes, dtypes), min_size=1, max_size=8))
def test_arrays_begin_a_whole_number_of_cache_lines_apart(kinds):
    slabs = slabs_of(kinds)
    addresses = [array.__array_interface__["data"][0] for array in private_arena(slabs).values() if array.size]
    assert all((address - addresses[0]) % ALIGNMENT == 0 for address in addresses)
    assert arena_bytes(slabs) % ALIGNMENT == 0
    assert arena_bytes(slabs) >= sum(int(np.prod(shape)) * np.dtype(dtype).itemsize for shape, dtype in kinds)


def test_arrays_of_one_number_can_be_viewed_and_written():
    arrays = private_arena([("count", (), "int64"), ("flag", (1,), "bool")])
    arrays["count"][...] = 2**40
    assert int(arrays["count"]) == 2**40
