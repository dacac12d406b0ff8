"""The tables of the page on continuing with other settings have exactly what a resume may change, and what not."""

from __future__ import annotations

import re

import pytest
from tests.support.pages import ROOT

from offbeat.config.changes import reason_against
from offbeat.config.config import Config
from offbeat.config.env import EnvConfig
from offbeat.config.resolve import resolve
from offbeat.config.run_config import RunConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.field_definitions import hints_of

PAGE = (ROOT / "docs/how-to/continue.md").read_text()
REWARDS = "rewards, "
CONFIGS = {"ppo": "CartPole-v1", "a2c": "CartPole-v1", "impala": "CartPole-v1", "sac": "Pendulum-v1",
           "td3": "Pendulum-v1", "crossq": "Pendulum-v1", "dqn": "CartPole-v1",
           "pearl": "offbeat/PointRobot-v0"}  # fmt: skip


def rows(columns: int) -> list[list[str]]:
    """Return the cells of the rows of the table with so many columns, without its head."""
    lines = [re.split(r" ?\| ?", line)[1:-1] for line in PAGE.splitlines() if line.startswith("|")]
    return [cells for cells in lines if len(cells) == columns and "---" not in cells[0]][1:]


def keys(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def general(*, replay: bool) -> tuple[list[str], list[str]]:
    """Return the keys of the first table that may change, and those that may not, with or without a replay."""
    other = f"{REWARDS}{'without' if replay else 'with'} a replay"
    chosen = [cells for cells in rows(4) if cells[0] != other]
    return [key for cells in chosen for key in keys(cells[1])], [key for cells in chosen for key in keys(cells[2])]


def config_of(algorithm: str) -> Config:
    return resolve(algorithm, CONFIGS[algorithm])


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_the_first_table_has_each_setting_of_all_runs_where_the_code_puts_it(algorithm):
    config = config_of(algorithm)
    may, cannot = general(replay=config.algorithm_settings.learns_from == "replay")
    known = [key for table in (RunConfig, EnvConfig, RuntimeConfig) for key in hints_of(table)]
    assert sorted(may) == sorted(key for key in known if reason_against(config, key) is None)
    assert sorted(cannot) == sorted(key for key in known if reason_against(config, key) is not None)


@pytest.mark.parametrize("algorithm", CONFIGS)
def test_the_second_table_has_the_settings_of_an_algorithm_that_cannot_change(algorithm):
    config = config_of(algorithm)
    ((_, network, memory),) = (cells for cells in rows(3) if algorithm in cells[0].split(", "))
    reasons = {key: reason_against(config, key) for key in hints_of(type(config.algorithm_settings))}
    named = {key: reason[0] for key, reason in reasons.items() if reason is not None}
    assert sorted(keys(network)) == sorted(key for key, reason in named.items() if "network" in reason)
    assert sorted(keys(memory)) == sorted(key for key, reason in named.items() if "memory" in reason)
    assert len(named) == len(keys(network)) + len(keys(memory))
