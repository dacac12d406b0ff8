"""The page of scores has what the committed results say, and they are of the presets as they are today."""

from __future__ import annotations

import re
from collections.abc import Iterator
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

DEFAULTS: dict[str, dict[str, object]] = {
    "ppo": {"return_scale": 1.0, "clip_reference": "proximal"},
    "crossq": {"encoder_kwargs": {}},
}
"""What algorithms did in the trainings whose config does not say it."""
ENV_DEFAULTS = {"env.kwargs.include_cfrc_ext_in_observation": True}
"""What Gymnasium's envs do where a config does not say it."""


def test_the_table_of_the_page_is_that_of_the_results():
    assert read_section(PAGE, START, END) == content(all_works()).strip(), "run: make scores ARGS=--only-page"


def rows_of(table: str) -> list[list[str]]:
    return [cells(line) for line in table.splitlines() if line.startswith("|")][2:]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_scores_in_the_readme_are_those_of_the_page():
    page = rows_of(read_section(PAGE, START, END))
    for named, steps, seeds, mean, _ in rows_of((ROOT / "README.md").read_text().split("## Scores")[1].split("![")[0]):
        algorithm, env = named.split(", ")[:2]
        name = re.split("[- ]", env)[0]  # Pong from images is PongNoFrameskip-v4
        same = [row for row in page if row[0].startswith(f"{algorithm},") and name in row[0]]
        assert [env_steps_of(steps), seeds, mean] in [[row[1], row[2].split()[0], row[3]] for row in same], named


def env_steps_of(short: str) -> str:
    number, unit = re.findall(r"[\d.]+|[kM]", short)[:2]
    return f"{round(float(number) * {'k': 1e3, 'M': 1e6}[unit]):,}"


def test_speeds_in_the_readme_are_those_of_the_results():
    readme = (ROOT / "README.md").read_text().split("## Speed")[1].split("## ")[0]
    assert "\n| work | SPS | x our serial | x Stable-Baselines3 | x Sample Factory |\n" in readme
    results = (ROOT / "benchmarks/results/speed.md").read_text()
    of_processes = [
        [row.get(name, "-").split()[0] for name in ("SPS", "x serial", "x sb3", "x sample-factory")]
        for row in sides_of(results)
        if row["side"].startswith("processes")
    ]
    for work, *said in rows_of(readme):
        is_of = [all(one in (other, "-") for one, other in zip(said, side, strict=True)) for side in of_processes]
        assert any(is_of), work


def sides_of(results: str) -> Iterator[dict[str, str]]:
    """The rows of all tables of sides, by the names of their columns."""
    for table in results.split("\n\n"):
        if table.startswith("| side |"):
            names = cells(table.splitlines()[0])
            yield from (dict(zip(names, row, strict=True)) for row in rows_of(table))


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
