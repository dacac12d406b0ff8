"""Settings that are written as flags are read again as the same values."""

from __future__ import annotations

import shlex
from fractions import Fraction
from types import GenericAlias
from typing import Any, Literal

from hypothesis import example, given
from hypothesis import strategies as st

from offbeat.config.assignments import (
    assignments_of,
    env_kwargs_flag,
    parse_assignments,
    parse_env_kwargs,
    set_flag,
)
from offbeat.config.env import KWARGS
from offbeat.config.keys import flat
from offbeat.core.fields import MOST_BITS, read
from offbeat.core.frozen_table import PlainTable

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**MOST_BITS) + 1, 2**MOST_BITS - 1),
    float: NUMBERS,
    bool: st.booleans(),
    str: st.text(),
    Fraction: st.fractions(),
    Literal["a", "b-c"]: st.sampled_from(["a", "b-c"]),
}
"""Type of a field -> its values."""
LISTS: dict[Any, st.SearchStrategy[Any]] = {
    GenericAlias(tuple, (hint, ...)): st.lists(values).map(tuple) for hint, values in VALUES.items()
}
OPTIONAL: dict[Any, st.SearchStrategy[Any]] = {
    hint | None: st.none() | values.filter(lambda value: value != "none") for hint, values in (VALUES | LISTS).items()
}
FIELDS = st.one_of(*(st.tuples(st.just(hint), values) for hint, values in (VALUES | LISTS | OPTIONAL).items()))
"""Types of fields, each with one of its values. The text none is no value of a field that can be None."""
ARGUMENTS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(["size", "name", "wind"]),
    st.recursive(st.integers() | NUMBERS | st.booleans() | st.text(), st.lists, max_leaves=5),
)


def typed(flag: str) -> list[str]:
    """Return the items of a flag as a shell passes them."""
    return shlex.split(flag)[1:]


@given(FIELDS)
@example((tuple[str, ...], ("a,b", " c", "it's", '"', "")))
@example((tuple[str, ...], ("none",)))
@example((tuple[str, ...], ("[a", "b]")))
@example((tuple[str, ...] | None, ()))
@example((str, 'two words, "quotes" = \\ and `\n'))
def test_a_value_of_a_field_that_is_written_is_read_unchanged(field: tuple[Any, Any]) -> None:
    hint, value = field
    items = typed(set_flag({"key": value}))
    assert items == assignments_of({"key": value})
    assert repr(read("key", parse_assignments(items)["key"], hint)) == repr(value)


@given(ARGUMENTS)
@example(
    {"text": "none", "number": "8", "flag": "true", "list": "[1]", "empty": "", "spaced": " 1", "lines": "1\nx = 2"}
)
@example({"text": ["\U0001f600", "\x7f\n", "it's"], "nested": [[1, [0.5, "a,b"]], []], "deleted": '"\x7f"'})
def test_arguments_of_an_env_that_are_written_are_read_unchanged(arguments: dict[str, Any]) -> None:
    assert repr(PlainTable(parse_env_kwargs(typed(env_kwargs_flag(arguments))))) == repr(PlainTable(arguments))
    read_again = parse_assignments(typed(set_flag(flat({"kwargs": arguments}))))
    expected = PlainTable({f"{KWARGS}{name}": value for name, value in arguments.items()})
    assert repr(PlainTable(read_again)) == repr(expected)


def test_a_key_of_its_own_replaces_the_argument_in_the_table():
    given = {"env.kwargs.size": 3, "kwargs": {"size": 2, "wind": 0.5}, "gamma": 0.9}
    assert flat(given) == {"env.kwargs.size": 3, "env.kwargs.wind": 0.5, "gamma": 0.9}
    assert flat({"kwargs": "size=2"}) == {"kwargs": "size=2"}  # refused where it is read
    assert flat({"league": {"window": 4}}) == {"league.window": 4}
