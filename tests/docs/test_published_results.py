"""A trial of a benchmark does not replace the published results unnoticed, and commands on the pages are accepted."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from benchmarks import defaults, speed
from benchmarks.common import RESULTS
from benchmarks.options import read_options
from tests.support.pages import PAGES, ROOT

TRIALS = {
    "actors_and_envs": "--rounds 1",
    "cluster_simulation": "--nodes 1",
    "defaults": "--set epochs=5",
    "exactness": "--algorithms ppo --jobs 1",
    "gpu.__main__": "--seconds 1",
    "gradients": "--works 'HalfCheetah-v5, 64-64, minibatch 64'",
    "images": "--rounds 1",
    "inference": "--seconds 1",
    "layouts": "--seconds 1",
    "load_ahead": "--steps 3000",
    "locomotion": "--pairs 1",
    "meta_learning": "--seeds 1",
    "passes": "--seeds 1",
    "pipeline": "--rounds 1",
    "ray_costs": "--rounds 1",
    "ray_soak": "--runs 1",
    "ray_speed": "--rounds 1",
    "replay_update": "sac --rounds 1",
    "several_agents": "--pairs 1",
    "shards": "--rounds 1",
    "shortest_paths": "--episodes 2",
    "soak.__main__": "--runs 1",
    "speed": "--steps 1000",
    "steps_to_score": "--seeds 1",
    "time_to_return": "--sb3-threads 1",
    "two_policies": "--rounds 1",
    "versions": "HEAD HEAD --rounds 1",
    "waiting_envs": "--rounds 1",
}
"""Benchmark -> options of a trial."""


def options_of(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true")
    return read_options(parser, "jobs", unless="list", arguments=arguments)


def test_only_results_with_the_default_options_are_published_without_a_folder():
    assert options_of().out == options_of("--rounds", "5", "--jobs", "1").out == RESULTS
    assert options_of("--rounds", "1", "--out", "/tmp/trial").out == Path("/tmp/trial")


def test_results_are_published_in_the_folder_of_the_benchmark():
    assert read_options(argparse.ArgumentParser(), folder=RESULTS / "atari", arguments=[]).out == RESULTS / "atari"


def test_a_command_that_writes_no_results_needs_no_folder():
    assert options_of("--rounds", "1", "--list").rounds == 1


def test_a_trial_without_a_folder_is_refused_with_the_options_that_make_it_one(capsys):
    with pytest.raises(SystemExit, match="2"):
        options_of("--rounds", "1", "--jobs", "1")
    error = capsys.readouterr().err
    assert "other --rounds than the default" in error
    assert "--out benchmarks/results to replace" in error


@pytest.mark.parametrize("name", TRIALS)
def test_a_benchmark_refuses_a_trial_without_a_folder(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, *shlex.split(TRIALS[name])])
    with pytest.raises(SystemExit, match="2"):
        import_module(f"benchmarks.{name}").main()
    assert "pass --out FOLDER" in capsys.readouterr().err


def test_a_record_of_speeds_does_not_lose_sides_that_are_not_measured_again(tmp_path, monkeypatch, capsys):
    file, measured = tmp_path / "speed-cartpole.json", list[list[str]]()
    file.write_text(json.dumps({"runs": [{"side": side} for side in ("serial", "threads", "serial", "threads")]}))

    def compare(_name: str, _work: Any, sides: list[str], *_more: Any) -> None:
        measured.append(sides)
        sys.exit(0)

    monkeypatch.setattr(speed, "compare", compare)
    monkeypatch.setattr(speed, "adopt_orphans", lambda: None)
    arguments = ["speed", "--out", str(tmp_path), "--only", "cartpole", "serial"]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit, match="2"):
        speed.main()
    assert "speed-cartpole.json has threads too, which would be lost" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", [*arguments, "threads", "processes"])
    with pytest.raises(SystemExit, match="0"):
        speed.main()
    assert measured == [["serial", "threads", "processes"]]


def test_the_published_table_of_default_settings_is_made_of_its_records(tmp_path, monkeypatch):
    """Also after settings were added: records without them still count, so no run is made again."""
    shutil.copy(RESULTS / "defaults.jsonl", tmp_path)
    monkeypatch.setattr(sys, "argv", ["defaults", "--runs", "0", "--out", str(tmp_path)])
    defaults.main()
    assert (tmp_path / "defaults.md").read_text() == (RESULTS / "defaults.md").read_text()


def test_the_page_of_default_settings_has_rows_of_the_published_table():
    """The page leaves out the seconds, which are the last two columns."""
    published = [line.split("|")[1:8] for line in (RESULTS / "defaults.md").read_text().splitlines()]
    page = (ROOT / "docs/concepts/default-settings.md").read_text().splitlines()
    rows = [line.split("|")[1:-1] for line in page if re.match(r"\| (\S+-v\d |\*\*)", line)]
    assert len(rows) > 15
    assert [row for row in rows if len(row) == 7 and row not in published] == []


# --- the commands on the pages ----------------------------------------------------------------------------------

BEHIND_MAKE = {"bench": "speed", "steps-to-score": "steps_to_score", "exactness": "exactness", "soak": "soak.__main__"}
"""Target of the Makefile -> benchmark that it starts with ARGS."""


class OptionsAccepted(Exception):
    """A benchmark has accepted its options."""


def shown_commands() -> dict[str, tuple[str, str]]:
    """Return the commands on all pages that start a benchmark: page and command -> name of the benchmark, arguments."""
    found: dict[str, tuple[str, str]] = {}
    for page in ("benchmarks/README.md", *PAGES):
        texts = (ROOT / page).read_text().replace("\\\n", " ").split("```")
        spans = [" ".join(span.split()) for text in texts[::2] for span in re.findall("`([^`]+)`", text)]
        lines = [line for text in texts[1::2] for line in text.splitlines()]
        for command in spans + lines:
            if module := re.search(r"python -m benchmarks\.([\w.]+)(.*)", command):
                found[f"{page}: {command}"] = module[1], module[2]
            elif make := re.search(r"make ([\w-]+) ARGS=(.*)", command):
                arguments = " ".join(shlex.split(make[2], comments=True)[:1])
                found[f"{page}: {command}"] = BEHIND_MAKE.get(make[1], ""), arguments
    return {where: called for where, called in found.items() if called[0] in TRIALS}


SHOWN = shown_commands()


@pytest.mark.parametrize(("name", "arguments"), SHOWN.values(), ids=SHOWN)
def test_a_benchmark_accepts_the_options_of_a_command_on_a_page(name, arguments, monkeypatch):
    def read_and_stop(*given: Any, **more: Any) -> None:
        read_options(*given, **more)
        raise OptionsAccepted

    module = import_module(f"benchmarks.{name}")
    monkeypatch.setattr(module, "read_options", read_and_stop)
    monkeypatch.setattr(sys, "argv", [name, *shlex.split(arguments, comments=True)])
    with pytest.raises(OptionsAccepted):
        module.main()
