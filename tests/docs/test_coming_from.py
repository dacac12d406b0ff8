"""The pages for those who come from another library name settings and metrics of ours that exist."""

from __future__ import annotations

import re
from dataclasses import fields

from tests.support.pages import ROOT

from offbeat.cli.main import COMMANDS
from offbeat.config.league import LeagueConfig
from offbeat.config.resolve import setting_names
from offbeat.core.field_definitions import hints_of
from offbeat.metrics.names import METRICS
from offbeat.population.settings import GeneTable, PopulationSettings

PAGES = sorted((ROOT / "docs/how-to/coming-from").glob("*.md"))
RUNTIMES_AND_COLUMNS = {"serial", "threads", "processes", "terminated", "truncated"}
OF_SPECS = {"seeds", "sessions", "trials", "prune_after"}
OTHERS = RUNTIMES_AND_COLUMNS | OF_SPECS | {"env_kwargs", "callbacks"}
"""Named in the column too: runtimes, keys of a spec file, columns of a row, and arguments of Python's functions."""
SINGULAR = {"wrapper"}
"""Flags that are given once for each item of a field."""


def ours() -> list[str]:
    """All code in the second column of the tables."""
    rows = [row for page in PAGES for row in re.findall(r"^\|[^|]+\|([^|]+)\|", page.read_text(), re.MULTILINE)]
    return [code for cell in rows for code in re.findall(r"`([^`]+)`", cell)]


def test_there_is_a_page_for_each_library_that_the_first_page_lists():
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", PAGES[0].parent.joinpath("index.md").read_text()))
    assert linked == {page.name for page in PAGES} - {"index.md"}


def test_config_keys_on_the_pages_exist():
    keys = {match[1] for code in ours() if (match := re.fullmatch(r"([a-z_]+)(=.*)?", code))}
    assert len(keys) > 60
    of_tables = hints_of(PopulationSettings).keys() | hints_of(GeneTable).keys() | hints_of(LeagueConfig).keys()
    assert keys <= setting_names() | METRICS.keys() | of_tables | OTHERS


def test_command_line_flags_on_the_pages_exist():
    flags = {flag.replace("-", "_") for code in ours() for flag in re.findall(r"--([a-z-]+)", code)}
    assert len(flags) > 10
    assert flags - SINGULAR <= {field.name for field in fields(COMMANDS["train"])}
