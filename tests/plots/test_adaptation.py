"""The picture of adaptation curves, and the numbers that it draws."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from tests.support.pictures import legend_is_whole

import offbeat
from offbeat.core.errors import ConfigError
from offbeat.metrics.names import adaptation_key
from offbeat.plots.adaptation import (
    Adaptation,
    AdaptationCurve,
    curve_of,
    draw_adaptation,
    read_adaptation,
)
from offbeat.plots.figures import MOST_NAMED, save_figure

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#7f7f7f"


def make_run(path: Path, *, seed: int = 0, env: str = "offbeat/PointRobot-v0", episodes: int = 6, **keys: Any) -> Path:
    """A run directory with two evaluations in new tasks; each has its result in two lines."""
    path.mkdir()
    tables = {"run": {"algorithm": "pearl", "env": env, "seed": seed}, "pearl": {"kl_weight": 0.1, **keys}}
    (path / "config.toml").write_text(tomli_w.dumps(tables))
    lines = [line_of(0, 0, episodes, -20.0), *[line_of(1, 0, episodes, -20.0)] * 2, line_of(2, 5000, episodes, -12.0)]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def line_of(evaluations: int, env_steps: int, episodes: int, last: float) -> dict[str, Any]:
    line: dict[str, Any] = {"env_steps": env_steps + 100, "frames": env_steps + 100, "evaluations": evaluations}
    if not evaluations:
        return line
    for episode in range(1, episodes + 1):
        line[adaptation_key(episode, "mean")] = last if episode == episodes else -20.0
        line[adaptation_key(episode, "std")] = 4.0
    return {**line, "eval_env_steps": env_steps, "adaptation/trials": 16, "eval_return_mean": last}


def drawn(runs: list[Path], out: Path) -> Path:
    """Draw all runs."""
    return save_figure(draw_adaptation(runs, notify=pytest.fail), out, pytest.fail)


def test_the_first_and_the_last_evaluation_of_a_run_are_read_with_the_env_steps_of_their_weights(
    tmp_path: Path,
) -> None:
    run = read_adaptation(make_run(tmp_path / "run"))
    assert (run.first.env_steps, run.last.env_steps, run.last.trials) == (0, 5000, 16)
    assert run.first.means.tolist() == [-20.0] * 6
    assert run.last.means.tolist() == [-20.0] * 5 + [-12.0]


def evaluation(*returns: float) -> Adaptation:
    """An evaluation with one episode in each trial."""
    each = np.array(returns)[:, None]
    return Adaptation(2000, len(each), each.mean(axis=0), each.std(axis=0))


def edges(curve: AdaptationCurve) -> list[float]:
    """Return the line between the edges of its band, in the only episode."""
    return [part.item() for part in (curve.low, curve.mean, curve.high)]


def test_one_run_has_the_interval_of_the_mean_over_its_trials_and_below_four_none() -> None:
    returns = np.random.default_rng(0).normal(size=9)
    curve = curve_of([evaluation(*returns)])
    half_width = 1.96 * returns.std(ddof=1) / 3
    np.testing.assert_allclose([curve.low, curve.high], returns.mean() + np.array([[-half_width], [half_width]]))
    assert (curve.text, curve.band) == ("after 2k env steps (9 trials)", "mean, 95 % interval")
    for few in ((4.0,), (4.0, 5.0, 6.0)):
        curve = curve_of([evaluation(*few)])
        assert edges(curve) == [np.mean(few)] * 3
        assert not curve.band


def test_several_seeds_have_a_band_over_the_seeds_however_many_trials_they_have() -> None:
    far_apart = [evaluation(*np.full(30, value)) for value in (100.0, 0.0)]
    curve = curve_of(far_apart)
    assert edges(curve) == [0, 50, 100]
    assert (curve.text, curve.band) == ("after 2k env steps (60 trials)", "mean, range")
    curve = curve_of([*far_apart, *far_apart])
    assert edges(curve) == [0, 50, 100]
    assert curve.text == "after 2k env steps (120 trials)"
    assert curve.band == "interquartile mean, 95 % bootstrap interval"


def test_runs_that_differ_only_in_the_seed_are_one_curve(tmp_path: Path) -> None:
    seeds = [make_run(tmp_path / f"seed-{seed}", seed=seed) for seed in range(2)]
    text = drawn(seeds, out=tmp_path / "seeds.svg").read_text()
    assert "<!-- 2 seeds, " in text
    assert ORANGE not in text
    other = make_run(tmp_path / "other", kl_weight=1.0)
    assert ORANGE in drawn([*seeds, other], out=tmp_path / "both.svg").read_text()
    again = make_run(tmp_path / "again", seed=0)
    assert "<!-- 2 runs, " in drawn([seeds[0], again], out=tmp_path / "runs.svg").read_text()


def test_the_first_evaluation_is_drawn_beside_the_last_one_of_a_single_group(tmp_path: Path) -> None:
    run, other = make_run(tmp_path / "run"), make_run(tmp_path / "other", kl_weight=1.0)
    one, two = (drawn(runs, out=tmp_path / "out.svg").read_text() for runs in ([run], [run, other]))
    assert BLUE in one
    assert GREY in one
    assert GREY not in two


@pytest.mark.parametrize("count", [1, 12, MOST_NAMED + 5])
def test_the_legend_covers_no_curve_however_many_there_are(tmp_path: Path, count: int) -> None:
    runs = [make_run(tmp_path / str(number), kl_weight=0.1 * (number + 1)) for number in range(count)]
    figure = draw_adaptation(runs, notify=pytest.fail)
    assert legend_is_whole(figure)
    entries = [text.get_text() for text in figure.legends[0].get_texts()]
    assert [entry for entry in entries if "interval" in entry] == ["mean, 95 % interval"]
    assert len(entries) == (3 if count == 1 else min(count, MOST_NAMED + 1) + 1)


def test_the_legend_tells_bands_apart_that_are_not_of_one_kind(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / f"{seed}-{weight}", seed=seed, kl_weight=weight)
        for seed, weight in ((0, 1), (1, 1), (0, 2))
    ]
    entries = [text.get_text() for text in draw_adaptation(runs, notify=pytest.fail).legends[0].get_texts()]
    assert [entry.rpartition("trials), ")[2] for entry in entries] == ["mean, range", "mean, 95 % interval"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env": "offbeat/AntGoal-v0"}, "different envs .offbeat/AntGoal-v0, offbeat/PointRobot-v0"),
        ({"episodes": 4}, "different numbers of episodes in a trial .4, 6"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(tmp_path: Path, changes: Any, message: str) -> None:
    runs = [make_run(tmp_path / "run"), make_run(tmp_path / "other", **changes)]
    with pytest.raises(ConfigError, match=message):
        drawn(runs, out=tmp_path / "out.png")


def test_a_run_without_evaluations_in_new_tasks_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / "metrics.jsonl").write_text(json.dumps({"env_steps": 10, "evaluations": 1, "eval_return_mean": 1.0}) + "\n")
    with pytest.raises(ConfigError, match="has no evaluation in new tasks: --x episodes is for algorithms that infer"):
        drawn([run], out=tmp_path / "out.png")
    with pytest.raises(ConfigError, match="is not a run directory"):
        drawn([tmp_path], out=tmp_path / "out.png")


def test_runs_without_evaluations_in_new_tasks_are_left_out_and_named(tmp_path: Path) -> None:
    run, other = make_run(tmp_path / "run"), make_run(tmp_path / "other")
    (other / "metrics.jsonl").write_text(json.dumps({"env_steps": 10, "episode_return_mean": 1.0}) + "\n")
    said: list[str] = []
    offbeat.plot([other, run], x="episodes", out=tmp_path / "out.svg", notify=said.append)
    assert said == [f"left out, because they have no evaluation in new tasks: {other}"]
    assert BLUE in (tmp_path / "out.svg").read_text()


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("config.toml", "[run]\nenv = ['Ring-v0']\n"),
        ("metrics.jsonl", '{"evaluations": [1]}\n'),
    ],
)
def test_a_run_whose_files_another_program_has_changed_is_refused(tmp_path: Path, file: str, text: str) -> None:
    run = make_run(tmp_path / "run")
    (run / file).write_text(text)
    with pytest.raises(ConfigError, match=r"run cannot be plotted: its config.toml or metrics.jsonl was changed"):
        drawn([run], out=tmp_path / "out.png")


@pytest.mark.parametrize("name", ["run/config.toml", "trial.toml"])
def test_a_config_that_is_damaged_or_does_not_fit_into_memory_is_refused(tmp_path: Path, name: str) -> None:
    run = make_run(tmp_path / "run")
    (tmp_path / name).write_text("[run")
    with pytest.raises(ConfigError, match=f"{name} is not TOML"):
        read_adaptation(run)
    os.truncate(tmp_path / name, 1 << 40)  # the disk stores no zeros
    with pytest.raises(ConfigError, match=f"{name} has 1099511627776 bytes, but at most"):
        read_adaptation(run)
