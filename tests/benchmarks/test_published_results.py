"""A trial of a benchmark does not replace the published results unnoticed, and commands on the pages are accepted."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from runpy import run_module
from typing import Any

import pytest
from benchmarks.common import RESULTS, machine
from benchmarks.options import read_options
from benchmarks.records import Unfinished, read_records
from benchmarks.replay_variants import page as variants
from benchmarks.speed_report import write_tables
from benchmarks.works import EARLIER
from tests.support import matrix
from tests.support.pages import PAGES, ROOT

from benchmarks import (
    cluster_simulation,
    defaults,
    exactness,
    layouts,
    records,
    same_bits,
    shards,
    speed,
    time_to_return,
    two_policies,
)

TRIALS = {
    "actors_and_envs": "--rounds 1",
    "blas_memory": "--rounds 1",
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
    "start": "--rounds 1",
    "steps_to_score": "--seeds 1",
    "time_to_return": "--sb3-threads 1",
    "two_policies": "--rounds 1",
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


def test_a_peer_is_measured_with_the_torch_threads_that_are_quicker_in_most_of_its_trials(tmp_path, monkeypatch):
    """One trial with two threads is quicker than all others by chance."""
    speeds, tried = iter([30.0, 20.0, 21.0, 31.0, 32.0, 90.0, 30.0]), list[int]()

    def measured(work: dict[str, Any], *_: Any) -> dict[str, Any]:
        tried.append(work["threads"])
        return {"sps": next(speeds)}

    monkeypatch.setattr(speed, "measured", measured)
    work = speed.ALL_WORKS["halfcheetah-sac"]
    record = speed.compare("halfcheetah-sac", work, ["sb3"], {}, 1, Unfinished(tmp_path, "speed"))
    assert tried == [1, 2, 2, 1, 1, 2, 1]
    assert record["threads"] == {"sb3": 1}
    assert record["sps_by_threads"] == {"sb3": {"1": [30.0, 31.0, 32.0], "2": [20.0, 21.0, 90.0]}}


def test_the_published_tables_of_speeds_are_made_of_their_records(tmp_path):
    for folder in {path.parent for path in RESULTS.rglob("speed-*.json")}:
        paths = {name: folder / f"speed-{name}.json" for name in speed.ALL_WORKS}
        records = {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}
        assert write_tables(records, tmp_path / "speed.md") == (folder / "speed.md").read_text()


def test_a_simulated_cluster_has_the_median_costs_of_all_rounds_of_a_layout():
    runs = [{"work": "pong", "side": "serial", "c_env_us": us, "bound_by": by} for us, by in ((1, "a"), (9, "b"))]
    runs += [{"work": "pong", "side": "processes-2", "c_env_us": 5, "bound_by": "a"}, {**runs[0], "c_env_us": 2}]
    assert layouts.summary(layouts.runs_of(runs, "pong", "serial")) == {
        "work": "pong", "side": "serial", "c_env_us": 2, "bound_by": "a",
    }  # fmt: skip


def test_an_interrupted_benchmark_keeps_its_runs_and_replaces_no_results(tmp_path, monkeypatch):
    measured = list[tuple[str, int]]()

    def measure(side: str, number: int, _pythons: Any) -> dict[str, Any]:
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append((side, number))
        return {"sps": 9, "cpu_us": 3.0, "runs": [{"load": 1.0}]}

    monkeypatch.setattr(two_policies, "measure", measure)
    monkeypatch.setattr(two_policies, "adopt_orphans", lambda: None)
    monkeypatch.setattr(records, "_digest_of_code", lambda: "today's")
    arguments = ["two_policies", "--rounds", "2", "--sides", "serial", "processes", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", arguments)
    results = tmp_path / "two-policies.json"
    results.write_text("published")
    with pytest.raises(KeyboardInterrupt):
        two_policies.main()
    assert results.read_text() == "published"
    del measured[0]
    with pytest.raises(KeyboardInterrupt):
        two_policies.main()
    measured.clear()
    two_policies.main()
    assert measured == [("serial", 2)]
    runs = json.loads(results.read_text())["runs"]
    sides = [(1, "serial"), (1, "processes"), (2, "processes"), (2, "serial")]
    assert [(run["round"], run["side"]) for run in runs] == sides
    assert {path.name for path in tmp_path.iterdir()} == {"two-policies.json", "two-policies.md"}


@pytest.mark.parametrize("changed", ["options", "code"])
def test_runs_with_other_options_or_other_code_are_not_continued(changed, tmp_path, monkeypatch):
    Unfinished(tmp_path, "speed", steps=9).run({"round": 1}, lambda: {"sps": 1})
    if changed == "code":
        monkeypatch.setattr(records, "_digest_of_code", lambda: "tomorrow's")
    unfinished = Unfinished(tmp_path, "speed", steps=10 if changed == "options" else 9)
    assert unfinished.find({"round": 1}) is None
    assert unfinished.run({"round": 1}, lambda: {"sps": 2}) == {"round": 1, "sps": 2}


@pytest.mark.parametrize(
    ("benchmark", "arguments", "message"),
    [
        (speed, "--only pong sb3", "none of these works has one of these sides: pong sb3"),
        (exactness, "--algorithms crossq --features league", "none of these algorithms is trained on one"),
        (shards, "--only sacc", "invalid choice: 'sacc'"),
    ],
)
def test_a_choice_that_leaves_nothing_to_measure_is_refused(
    benchmark, arguments, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(sys, "argv", ["benchmark", *arguments.split(), "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        benchmark.main()
    assert message in capsys.readouterr().err


def test_a_cell_in_which_a_runtime_raises_is_told_in_the_results(tmp_path):
    cell = exactness.compare(next(matrix.cases()), ("no-such-runtime",), tmp_path)
    assert "no-such-runtime" in cell["differences"]["raised"]
    assert exactness.page({"machine": machine(), "cells": [cell], "mishaps": []})[3].startswith(
        "0 of 1 cells are equal"
    )


def test_returns_over_time_of_another_work_are_not_replaced(tmp_path, monkeypatch):
    (tmp_path / "time-to-return.json").write_text(json.dumps({"work": {"env": "Hopper-v5"}, "runs": []}))
    monkeypatch.setattr(sys, "argv", ["time_to_return", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="other settings than today's"):
        time_to_return.main()


def test_a_simulated_cluster_scales_by_the_speed_per_node_of_its_fewest_nodes():
    runs = [{"nodes": 5, "sps": 50.0}, {"nodes": 10, "sps": 90.0}, {"nodes": 20, "sps": 100.0}]
    assert cluster_simulation.scales_to(runs) == runs[1]


def test_a_trial_of_few_steps_is_not_longer_than_the_work(tmp_path, monkeypatch):
    steps = list[int]()

    def compare(_name: str, work: Any, *_more: Any) -> None:
        steps.append(work["steps"])
        sys.exit(0)

    monkeypatch.setattr(speed, "compare", compare)
    monkeypatch.setattr(speed, "adopt_orphans", lambda: None)
    arguments = ["--steps", "50000", "--only", "halfcheetah-sac", "serial", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["speed", *arguments])
    with pytest.raises(SystemExit, match="0"):
        speed.main()
    assert steps == [speed.ALL_WORKS["halfcheetah-sac"]["steps"]]


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


def test_the_published_table_of_variants_of_sac_is_made_of_its_records():
    records = read_records(RESULTS / "replay-variants.jsonl")
    assert (RESULTS / "replay-variants.md").read_text() == variants.page(records)


# --- the defaults are those of the published results ------------------------------------------------------------


class OptionsRead(Exception):
    """A benchmark has described its options: the argument is the parser."""


def rounds_of(runs: list[dict[str, Any]]) -> int:
    return len({run["round"] for run in runs})


PUBLISHED: dict[str, tuple[str, str, Callable[[Any], int]]] = {
    "actors_and_envs": ("actors-and-envs", "rounds", lambda record: record["rounds"]),
    "blas_memory": ("blas-memory", "rounds", lambda record: len(record["us"]["written"])),
    "images": ("images", "rounds", lambda record: len(record["us"]["channels last"]["acting"])),
    "load_ahead": ("load-ahead", "rounds", lambda record: rounds_of(record["runs"])),
    "locomotion": ("locomotion", "pairs", lambda record: len(record["works"][0]["own"])),
    "pipeline": ("pipeline", "rounds", lambda record: record["rounds"]),
    "ray_costs": ("ray-costs", "rounds", lambda record: record["rounds"]),
    "ray_speed": ("ray-speed", "rounds", lambda record: rounds_of(record["runs"])),
    "replay_update": ("sac-update", "rounds", lambda record: len(record["us"]["analytic, 1 thread"]["wall"])),
    "several_agents": ("several-agents", "pairs", lambda record: len(record["pairs"][0]["ratios"]["total"])),
    "shortest_paths": ("shortest-paths", "episodes", lambda record: record["episodes"]),
    "speed": ("speed-cartpole", "pairs", lambda record: rounds_of(record["runs"])),
    "start": ("start", "rounds", lambda record: len(record["seconds"]["`import torch`"])),
    "two_policies": ("two-policies", "rounds", lambda record: rounds_of(record["runs"])),
    "waiting_envs": ("waiting-envs", "rounds", lambda record: record["rounds"]),
}
"""Benchmark -> its record, the option that says how often it measures, and how often the record was measured. The parts
of shards.json were measured 2 and 3 times."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_benchmark_measures_as_often_as_its_published_record_was_measured(name, monkeypatch):
    def stop(parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        raise OptionsRead(parser)

    file, option, measured = PUBLISHED[name]
    module = import_module(f"benchmarks.{name}")
    monkeypatch.setattr(module, "read_options", stop)
    with pytest.raises(OptionsRead) as described:
        module.main()
    record = json.loads((RESULTS / f"{file}.json").read_text())
    assert described.value.args[0].get_default(option) == measured(record)


@pytest.mark.parametrize("name", speed.ALL_WORKS)
def test_the_published_speeds_are_of_the_work_as_it_is_today(name):
    work = json.loads((RESULTS / f"speed-{name}.json").read_text())["work"]
    today = speed.ALL_WORKS[name]
    assert {**EARLIER, **work} == {**EARLIER, **{key: today.get(key) for key in work}}


def test_the_readme_of_the_benchmarks_counts_what_they_run_and_what_is_published():
    readme = " ".join((ROOT / "benchmarks/README.md").read_text().split())
    cases = list(matrix.cases())
    cells = sum(len(exactness.grid(case)) for case in cases)
    assert f"the whole matrix: {cells} cells, {len(cases) * len(exactness.MISHAPS)} mishaps" in readme
    published = json.loads((RESULTS / "exactness.json").read_text())
    assert f"matrix: {len(published['cells'])} cells and {len(published['mishaps'])} mishaps of" in readme
    assert f"{len(same_bits.RUNS)} short runs of PPO" in readme


# --- every command answers --help -------------------------------------------------------------------------------

COMMANDS = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted([*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "benchmarks").glob("*/__main__.py")])
    if '__name__ == "__main__"' in path.read_text()
]


@pytest.mark.filterwarnings("ignore:.*found in sys.modules")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_benchmark_with_help_does_nothing_else(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        run_module(name, run_name="__main__")
    assert ended.value.code == 0
    assert "--help" in capsys.readouterr().out


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
