"""Schedules of settings: their factors at each progress, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbeat.config.resolve import resolve
from offbeat.core.errors import ConfigError
from offbeat.core.schedules import ScheduleText, scheduled


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        ("constant", {0: 0.4, 0.5: 0.4, 1: 0.4, 1.5: 0.4}),
        ("linear", {0: 0.4, 0.25: 0.3, 1: 0, 1.5: 0}),
        ("0:1 0.5:0.1 1:0", {0: 0.4, 0.25: 0.22, 0.5: 0.04, 0.75: 0.02, 1: 0, 1.5: 0}),
        ("0:0 0.1:1", {0: 0, 0.05: 0.2, 0.1: 0.4, 1: 0.4}),
        ("0:1 0.5:1 0.5:0.5", {0: 0.4, 0.499: 0.4, 0.5: 0.2, 1: 0.2}),
        ("0.5:2", {0: 0.8, 1: 0.8}),
    ],
)
def test_a_scheduled_setting_is_its_value_times_the_factor_at_the_progress(schedule, values):
    for progress, value in values.items():
        assert scheduled(0.4, schedule, progress) == pytest.approx(value)


@given(st.floats(1e-9, 1e3), st.floats(0, 1))
def test_a_linear_schedule_is_to_the_bit_a_line_to_0(value, progress):
    assert scheduled(value, "linear", progress) == scheduled(value, "0:1 1:0", progress) == value * (1 - progress)


@pytest.mark.parametrize("key", ["learning_rate_schedule", "clip_schedule", "entropy_coef_schedule"])
@pytest.mark.parametrize(
    "text", ["", "cosine", "0", "0:x", "0.5:1 0.2:2", "0:1 1.5:2", "-1:1", "0:-1", "0:1 0.5:-0.1", "0:nan", "g 0:1"]
)
def test_an_invalid_schedule_of_a_setting_is_refused_with_an_example(key, text):
    with pytest.raises(ConfigError, match=rf'^{key} is .*constant, linear, .*points .*"0:1 0.5:0.1 1:0"'):
        resolve("ppo", "CartPole-v1", flags={key: text})


def test_the_example_of_a_schedule_is_one():
    assert not ScheduleText().refuses(ScheduleText.example)


def test_a_word_of_an_algorithm_names_the_method_that_must_be_overridden():
    with pytest.raises(ConfigError, match=r"'cosine' is one of the algorithm's own: override its method learning_rate"):
        scheduled(0.1, "cosine", 0.5)
