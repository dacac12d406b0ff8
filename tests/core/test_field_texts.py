"""Texts about the fields of configs."""

from __future__ import annotations

from typing import Any

from offbeat.core.argument_notation import flags_shown
from offbeat.core.field_definitions import hints_of
from offbeat.core.field_texts import describe


def test_every_hint_of_every_config_can_be_described():
    from offbeat.algorithms.ppo import PPOConfig
    from offbeat.config.run_config import RunConfig
    from offbeat.config.runtime_config import RuntimeConfig

    hints: list[Any] = [hint for config in (RunConfig, RuntimeConfig, PPOConfig) for hint in hints_of(config).values()]
    assert all(describe(hint) for hint in hints)


def test_a_caller_in_python_reads_that_a_field_may_be_none_as_python_writes_it():
    with flags_shown(False):
        assert describe(int | None) == "a whole number or None"
    with flags_shown():
        assert describe(tuple[int, ...] | None) == "a comma-separated list, each item a whole number, or none"
