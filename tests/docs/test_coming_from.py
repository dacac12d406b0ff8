"""docs/how-to/coming-from names settings of ours that exist."""

from __future__ import annotations

import re
from dataclasses import fields

from tests.reference.pages import ROOT

from offbeat.cli.main import COMMANDS
from offbeat.config import setting_names

PAGE = (ROOT / "docs/how-to/coming-from").read_text()
RUNTIMES = {"serial", "threads", "processes"}
"""Named in the column too, and no settings."""


def ours() -> list[str]:
    """All code in the second column of the tables."""
    rows = re.findall(r"^\|[^|]+\|([^|]+)\|", PAGE, re.MULTILINE)
    return [code for cell in rows for code in re.findall(r"`([^`]+)`", cell)]


def test_keys_on_the_page_exist():
    keys = {match[1] for code in ours() if (match := re.fullmatch(r"([a-z_]+)(=.*)?", code))}
    assert len(keys) > 30
    assert keys <= setting_names() | RUNTIMES


def test_flags_on_the_page_exist():
    flags = {flag.replace("-", "_") for code in ours() for flag in re.findall(r"--([a-z-]+)", code)}
    assert len(flags) > 10
    assert flags <= {field.name for field in fields(COMMANDS["train"])}
