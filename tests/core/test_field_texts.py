"""Texts about the fields of configs."""

from __future__ import annotations

from typing import Any

from offbeat.core.field_definitions import hints_of
from offbeat.core.field_texts import describe


def test_every_hint_of_every_config_can_be_described():
    from offbeat.algorithms.ppo import PPOConfig
    from offbeat.config.run_config import RunConfig
    from offbeat.config.runtime_config import RuntimeConfig

    hints: list[Any] = [hint for config in (RunConfig, RuntimeConfig, PPOConfig) for hint in hints_of(config).values()]
    assert all(describe(hint) for hint in hints)
