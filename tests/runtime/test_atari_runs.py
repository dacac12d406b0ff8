"""Whole runs on Atari: what a resume does, and the commands. Their bits are in test_exactness.py."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.runs import lines_of, offbeat

from offbeat.api.playing.load import load
from offbeat.api.resume import resume
from offbeat.api.train import Run, train

pytestmark = pytest.mark.skipif(not find_spec("ale_py"), reason="needs ale-py")

SHORT: dict[str, Any] = {
    "steps": 48,
    "actors": 1,
    "envs_per_actor": 1,
    "unroll_length": 6,
    "minibatch_size": 6,
    "noop_max": 3,
    "epochs": 1,
    "eval_every": 0,
    "checkpoint_every": 0,
    "max_frames": 30,
}
"""Games of eight decisions."""


def short_run(path: Path, **changes: Any) -> Run:
    return train("ppo", "BreakoutNoFrameskip-v4", run_dir=path, **{**SHORT, **changes})


@pytest.fixture(scope="module")
def resumed(tmp_path_factory) -> Run:
    stopped = short_run(tmp_path_factory.mktemp("runs") / "run", stop_at=24, max_frames=400)
    return resume(stopped.path)


def test_a_resume_starts_new_games_and_logs_it(resumed):
    assert resumed.state == "finished"
    assert (
        "unfinished episodes were not saved: they are cut, and new episodes start"
        in (resumed.path / "log.txt").read_text()
    )


def test_the_command_line_trains_in_processes_and_evaluates_with_the_settings_of_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr("offbeat.config.env.EVALUATION_FRAMES", 20)
    evaluated = {"eval_every": 48, "eval_episodes": 1, "evaluator": "inline"}
    pairs = [f"{key}={value}" for key, value in {**SHORT, **evaluated}.items()]
    where = ["--run-dir", tmp_path / "run", "--progress", "none"]
    said = offbeat("train", "ppo", "PongNoFrameskip-v4", "--runtime", "processes", *where, "--set", *pairs)
    assert (said.code, said.err) == (0, "")
    assert lines_of(tmp_path / "run")[-1]["eval_length_mean"] == 5
    assert "The limits are eval_max_episode_steps=5 per episode" in (tmp_path / "run" / "log.txt").read_text()
    figures = json.loads(offbeat("eval", tmp_path / "run", "--episodes", 1, "--json").out)
    assert figures["length_mean"] == 8  # 30 frames, by four
    assert load(tmp_path / "run").trained.env_config.max_frames == 30


@pytest.mark.skipif(not find_spec("imageio_ffmpeg"), reason="needs the extra video")
def test_eval_plays_complete_games_and_watch_shows_them_in_colour(resumed, tmp_path):
    said = offbeat("eval", resumed.path, "--episodes", 1, "--json")
    assert said.code == 0, said.err
    figures = json.loads(said.out)
    assert 95 <= figures["length_mean"] < 100  # no lost life ended it, and the rows after them are no env steps
    said = offbeat("watch", resumed.path, "--video", tmp_path / "game.gif")
    assert re.search(r"in 9\d env steps", said.out)
    from PIL import Image

    with Image.open(tmp_path / "game.gif") as picture:
        assert picture.size == (160, 210)
        red, _, blue = np.moveaxis(np.asarray(picture.convert("RGB")), -1, 0)
        assert (red != blue).any()
