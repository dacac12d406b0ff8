"""A curriculum's parameters go through their points, in a line, and are refused where they make no sense."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbeat.config.curriculum import parameters
from offbeat.config.resolve import resolve
from offbeat.core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("g 0:2", {0: 2, 0.5: 2, 1: 2}),
        ("g 0:0 1:10", {0: 0, 0.25: 2.5, 1: 10}),
        ("g 0.2:1 0.6:-1", {0: 1, 0.2: 1, 0.4: 0, 0.6: -1, 1: -1}),
        ("g 0:1 0.5:1 0.5:3 1:3", {0: 1, 0.499: 1, 0.5: 3, 0.75: 3, 1: 3}),
    ],
)
def test_a_parameter_is_linear_between_its_points_and_constant_outside_them(text, values):
    (parameter,) = parameters([text])
    for progress, value in values.items():
        assert parameter.at(progress) == pytest.approx(value)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(-9, 9)), min_size=1, max_size=6), st.floats(0, 1))
def test_a_parameter_equals_numpy_interp_over_its_points(points, progress):
    course = sorted({moment: value for moment, value in points if moment == 0 or moment > 1e-6}.items()) or [(0.0, 1.0)]
    (parameter,) = parameters(["x " + " ".join(f"{moment!r}:{value!r}" for moment, value in course)])
    assert parameter.at(progress) == pytest.approx(np.interp(progress, *np.array(course).T), abs=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        *("", "gravity", "0:1", "g 0", "g 0:x", "g 0:1 1.5:2", "g -1:1", "g 0.5:1 0.2:2", "a-b 0:1", "g nan:1"),
        *("g 0:nan", "g 0:inf", "g 0:1 nan:2 1:3"),
    ],
)
def test_an_invalid_curriculum_is_refused_with_an_example(text):
    with pytest.raises(ConfigError, match=r"gravity 0:9.8 0.5:20"):
        resolve("ppo", "CartPole-v1", flags={"curriculum": [text]})


def test_a_parameter_that_is_given_twice_is_refused():
    with pytest.raises(ConfigError, match="has g twice"):
        parameters(["g 0:1", "g 1:2"])
