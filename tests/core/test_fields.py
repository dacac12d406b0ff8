from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbeat.core.checks import Example, Flag
from offbeat.core.errors import ConfigError
from offbeat.core.fields import (
    MOST_BITS,
    Bound,
    Count,
    Name,
    Natural,
    NonNegative,
    Positive,
    Ratio,
    Share,
    Size,
    build,
    read,
)
from offbeat.core.frozen_table import PlainTable

TABLE = PlainTable({"size": 8, "x": 0.5, "wind": False})
Colour = Literal["red", "blue"]


@pytest.mark.parametrize(
    ("given", "hint", "expected"),
    [
        ("7", int, 7),
        (7, int, 7),
        ("200_000", int, 200_000),
        ("1e6", int, 1_000_000),
        (3.0, int, 3),
        ("-2", int, -2),
        ("9007199254740993", int, 9007199254740993),
        (9007199254740993, int, 9007199254740993),
        ("3e-4", float, 3e-4),
        (2, float, 2.0),
        ("true", bool, True),
        ("False", bool, False),
        ("yes", bool, True),
        ("NO", bool, False),
        (True, bool, True),
        ("red", Colour, "red"),
        ("text", str, "text"),
        ("64,64", tuple[int, ...], (64, 64)),
        ("64", tuple[int, ...], (64,)),
        ("", tuple[int, ...], ()),
        ("none", tuple[str, ...], ()),
        (64, tuple[int, ...], (64,)),
        (np.int64(64), tuple[int, ...], (64,)),
        (2e6, int, 2_000_000),
        (np.int64(2**62 + 1), int, 2**62 + 1),
        (np.float32(8), int, 8),
        (np.uint8(2), float, 2.0),
        (np.float32(0.5), float, 0.5),
        (np.bool_(True), bool, True),
        (np.float32(0.37), Ratio, Fraction(37, 100)),
        (np.float64(0.37), Ratio, Fraction(37, 100)),
        (np.int64(2), Ratio, Fraction(2)),
        ({"size": np.int64(8), "x": np.float32(0.5), "wind": np.bool_(False)}, PlainTable, TABLE),
        ([64, 32], tuple[int, ...], (64, 32)),
        ("[64, 32]", tuple[int, ...], (64, 32)),
        ("(64,)", tuple[int, ...], (64,)),
        ("['a', \"b\"]", tuple[str, ...], ("a", "b")),
        ([], tuple[int, ...], ()),
        ("a,b", tuple[str, ...], ("a", "b")),
        ("none", Count | None, None),
        (None, Count | None, None),
        (None, Literal["none", "gru"], "none"),
        ("5", Count | None, 5),
        ("0", Natural, 0),
        ("1", Share, 1.0),
        ("0", Share, 0.0),
        ("1e-9", Positive, 1e-9),
        ("0", NonNegative, 0.0),
        ("0.5", Annotated[float, Bound(below=1)], 0.5),
    ],
)
def test_values_are_parsed_according_to_the_type_hint(given, hint, expected):
    value = read("key", given, hint)
    assert value == expected
    assert type(value) is type(expected)
    assert repr(value) == repr(expected)  # the items too are Python's own


@pytest.mark.parametrize(
    ("given", "hint", "words"),
    [
        ("seven", int, "a whole number"),
        ("2.5", int, "a whole number"),
        (2.5, int, "a whole number"),
        ("3/1", int, "a whole number"),
        (True, int, "a whole number"),
        (np.bool_(True), int, "a whole number"),
        (np.float32(2.5), int, "a whole number"),
        (np.float64("nan"), float, "a number"),
        ("", int, "a whole number"),
        ([1], int, "a whole number"),
        ("much", float, "a number"),
        ("nan", float, "a number"),
        ("inf", float, "a number"),
        (False, float, "a number"),
        pytest.param(10**400, float, "a number", id="beyond a float"),
        ("maybe", bool, "true or false"),
        (1, bool, "true or false"),
        ("green", Colour, "one of red, blue"),
        ([], Colour, "one of red, blue"),
        (3, str, "text"),
        ("64,x", tuple[int, ...], "a comma-separated list, each item a whole number"),
        (64.5, tuple[int, ...], "a comma-separated list, each item a whole number"),
        (True, tuple[int, ...], "a comma-separated list, each item a whole number"),
        ("64,0", tuple[Count, ...], "a comma-separated list, each item a whole number at least 1"),
        ("0", Count, "a whole number at least 1"),
        ("-1", Natural, "a whole number at least 0"),
        ("0", Positive, "a number more than 0"),
        ("-1", NonNegative, "a number at least 0"),
        ("1.5", Share, "a number at least 0 and at most 1"),
        ("-1", Size, "a whole number at least 0 and at most 2147483647"),
        ("-0.1", Share, "a number at least 0 and at most 1"),
        ("1", Annotated[float, Bound(below=1)], "a number less than 1"),
        ("0", Count | None, "a whole number at least 1 or none"),
        ("null", Count | None, "a whole number at least 1 or none"),
    ],
)
def test_an_error_names_the_given_value_the_expected_one_and_the_remedy(given, hint, words):
    with pytest.raises(ConfigError) as refused:
        read("epochs", given, hint)
    message = str(refused.value)
    assert message.startswith(f"epochs is {given!r}, but {words}")
    assert "pass, for example, --set epochs=" in message
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("given", ["1e999999999", "1e-999999999", "1e400"])
def test_a_fraction_that_is_too_large_or_too_small_for_a_float_is_refused_at_once(given):
    with pytest.raises(ConfigError, match="a number, or a fraction such as 1/4"):
        read("utd_ratio", given, Ratio)


@given(st.integers(-(2**MOST_BITS) + 1, 2**MOST_BITS - 1))
def test_integers_of_up_to_128_bits_are_parsed_exactly(number):
    for text in (str(number), f"{number:_}", f"{number}.0", f"{number}e0"):
        assert read("seed", text, int) == number


@pytest.mark.parametrize("given", ["1e99", -(10**40), 2**MOST_BITS, str(-(2**MOST_BITS))])
@pytest.mark.parametrize("hint", [int, Natural, Count | None, tuple[Count, ...]])
def test_integers_of_more_than_128_bits_are_refused(given, hint):
    with pytest.raises(ConfigError, match="a whole number has at most 128 bits") as refused:
        read("epochs", given, hint)
    assert "--set epochs=" in str(refused.value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_are_unchanged_after_formatting_and_parsing(number):
    assert read("key", repr(number), float) == number


@dataclass(frozen=True)
class Marble:
    length: Count
    colour: Colour = "red"
    rate: Positive | None = None


def test_a_config_is_built_from_given_values_and_defaults():
    assert build(Marble, {"length": "3", "rate": "0.5"}, "here") == Marble(3, "red", 0.5)


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"length": 1, "color": "red"}, ["unknown key 'color'", "Did you mean 'colour'?", "See here."]),
        ({"length": 1, "zzz": 1}, ["unknown key 'zzz'", "See here."]),
        ({"rate": 1.0}, ["here lacks length", "add the missing key"]),
        ({"length": 0}, ["length is 0", "at least 1"]),
    ],
)
def test_a_config_with_unknown_or_invalid_values_is_refused(values, parts):
    with pytest.raises(ConfigError) as refused:
        build(Marble, values, "here")
    assert all(part in str(refused.value) for part in parts)


@pytest.mark.parametrize(
    ("hint", "default", "example"),
    [
        (Share, 0.99, "--set key=0.99"),
        (Count | None, None, "--set key=2"),
        (Share | None, None, "--set key=1"),
        (Colour, None, "--set key=red"),
        (bool | None, None, "--set key=true"),
        (tuple[Count, ...], (200, 100), "--set key=200,100"),
        (Annotated[tuple[Count, ...] | None, Example("64,64")], None, "--set key=64,64"),
        (Annotated[Name, Example("ppo")], None, "--set key=ppo"),
        (Annotated[Count | None, Flag("STEPS"), Example("1000")], None, "--key 1000"),
    ],
)
def test_the_error_for_an_invalid_value_shows_a_valid_one(hint, default, example):
    with pytest.raises(ConfigError) as refused:
        read("key", object(), hint, default=default)
    assert str(refused.value).endswith(f"is expected: pass, for example, {example}")
