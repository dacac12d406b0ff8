"""The page of scores has what the committed results say, and they are of the presets as they are today."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from benchmarks.common import read_section
from benchmarks.scores.page import END, PAGE, START, beside, content
from benchmarks.scores.works import Work, all_works
from tests.support.pages import ROOT

from offbeat.config.config_file import settings_class_of
from offbeat.config.keys import flat
from offbeat.config.preset_files import preset_tables
from offbeat.core.typed_text import as_text

DEFAULTS = {"ppo": {"return_scale": 1.0, "clip_reference": "proximal"}}
"""What algorithms did in the trainings whose config does not say it."""
ENV_DEFAULTS = {"env.kwargs.include_cfrc_ext_in_observation": True}
"""What Gymnasium's envs do where a config does not say it."""


def test_the_table_of_the_page_is_that_of_the_results():
    assert read_section(PAGE, START, END) == content(all_works()).strip(), "run: make scores ARGS=--only-page"


def rows_of(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("|")][2:]


def test_scores_in_the_readme_are_those_of_the_page():
    page = {(row[0].split(",")[0], row[2].split()[0], row[3]) for row in rows_of(read_section(PAGE, START, END))}
    readme = (ROOT / "README.md").read_text().split("## Scores")[1].split("![")[0]
    assert [row for row in rows_of(readme) if (row[0].split(",")[0], row[2], row[3]) not in page] == []


def test_speeds_in_the_readme_are_those_of_the_results():
    readme = (ROOT / "README.md").read_text().split("## Speed")[1].split("## ")[0]
    results = (ROOT / "benchmarks/results/speed.md").read_text()
    sides = [{cell.split()[0] for cell in row} for row in rows_of(results)]
    assert [row for row in rows_of(readme) if not any({*row[1:]} - {"-"} <= side for side in sides)] == []


@pytest.mark.parametrize("work", all_works(), ids=lambda work: "-".join(work.folder.parts[-3:]))
def test_results_have_the_values_of_the_preset(work: Work):
    tables = preset_tables(work.algorithm, work.env, work.preset or None)
    defaults = asdict(settings_class_of(work.algorithm)())
    chosen = tables.get(work.algorithm, defaults)  # without a preset the defaults were trained
    preset = {**chosen, **flat(tables.get("env", {})), **work.settings}
    for result in work.results():
        env = {**ENV_DEFAULTS, **flat(result["config"].get("env", {}))}
        settings = {**DEFAULTS.get(work.algorithm, {}), **result["config"][work.algorithm], **env}
        found = {key: as_text(settings[key]) for key in preset}
        assert found == {key: as_text(value) for key, value in preset.items()}, result["seed"]
        assert result["config"]["run"]["steps"] == work.steps


def test_better_and_worse_need_four_seeds():
    assert beside(10.0, [12.0]) == "one seed shows no difference"
    assert beside(10.0, [12.0, 11.0]) == "all 2 seeds above"
    assert beside(10.0, [8.0, 9.0, 7.0]) == "all 3 seeds below"
    assert beside(10.0, [12.0, 11.0, 13.0, 14.0]) == "better"
    assert beside(10.0, [8.0, 9.0, 7.0, 6.0]) == "worse"
    assert beside(10.0, [8.0, 12.0]) == beside(10.0, [9.0, 9.0, 12.0, 12.0]) == "no difference that the seeds can show"
    assert beside(10, [10.4, 10.3]) == "no difference that the seeds can show", "rounded to the decimals of the figure"
