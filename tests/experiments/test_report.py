"""The tables of experiments and populations."""

from __future__ import annotations

from offbeat.experiments.report import as_markdown


def test_a_vertical_bar_in_a_cell_does_not_begin_another_one():
    header, _, row = as_markdown([{"member": 0, "failed": "expected serial | threads", "score": 1.0}]).splitlines()
    assert header == "| member | failed | score |"
    assert row == r"| 0 | expected serial \| threads | 1.00 |"
