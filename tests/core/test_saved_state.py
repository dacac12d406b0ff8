"""What a checkpoint gives back of a state, and what it cannot store."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.support.thorough import examples

from offbeat.core.saved_state import NotSavable, join, require_savable, saved_and_loaded, split
from offbeat.core.strict_json import DEEPEST, Unreadable, parse_object

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
ARRAYS = st.sampled_from(["?", "i1", "u2", "i8", "f2", "f4", "f8"]).flatmap(
    lambda kind: arrays(kind, st.lists(st.integers(0, 3), max_size=3).map(tuple))
)
KEYS = st.text(st.characters(exclude_characters=":$"))
STATES = st.dictionaries(
    KEYS, st.recursive(PLAIN | ARRAYS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=8)
)


@given(state=STATES)
@examples(30)
def test_a_state_comes_back_with_its_values_dtypes_and_shapes_as_a_copy(state: dict[str, Any]) -> None:
    before = saved_and_loaded(state)
    np.testing.assert_equal(before, state)
    _, parts = split(state)
    _, others = split(before)
    assert [(part.dtype, part.shape) for part in parts.values()] == [(one.dtype, one.shape) for one in others.values()]
    assert not any(np.shares_memory(part, others[name]) for name, part in parts.items())


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"seen": {1, 2}}, "seen is of type set"),
        ({"a": [{"b": b"text"}]}, "a / 0 / b is of type bytes"),
        ({"a": {0: 1}}, "a has the key 0, which is no text"),
        ({"a": {"$array": 1}}, "a has the key $array"),
        ({"a": np.array(["text"])}, "a is an array of <U4"),
        ({"a": np.array([None])}, "a is an array of object"),
        ({"a::b": np.zeros(1), "a": {"b": np.zeros(1)}}, "two arrays have the same path"),
    ],
)
def test_what_a_checkpoint_cannot_store_is_refused_with_its_place(state: dict[str, Any], said: str) -> None:
    with pytest.raises(NotSavable, match=said.replace("$", r"\$")):
        split(state)


@pytest.mark.parametrize("reference", [{"$array": "::b"}, {"$array": []}, {"$array": "::a", "more": 1}])
def test_a_state_that_refers_to_an_array_which_is_not_there_is_refused(reference: dict[str, Any]) -> None:
    with pytest.raises(Unreadable, match="does not have the array"):
        join({"a": reference}, {"::a": np.zeros(1)})


def test_a_whole_number_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(NotSavable, match="thousands of digits"):
        require_savable({"a": 10**5000})


def nested(depth: int) -> dict[str, Any]:
    return {"inner": nested(depth - 1)} if depth > 1 else {}


@pytest.mark.parametrize("depth", [DEEPEST - 9, DEEPEST, 150])
def test_a_state_that_is_nested_deeper_than_a_checkpoint_is_read_is_refused(depth):
    with pytest.raises(NotSavable, match="the state is nested too deep"):
        saved_and_loaded(nested(depth))


def test_the_deepest_state_of_envs_that_is_saved_can_be_read_in_the_state_of_a_run():
    envs = saved_and_loaded(nested(DEEPEST - 10))
    run = {"workers": [{"actor": {"policies": [{"envs": envs}]}}]}
    assert parse_object(json.dumps(run).encode()) == run
