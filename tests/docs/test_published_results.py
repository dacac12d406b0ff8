"""A trial of a benchmark does not replace the published results unnoticed."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

import pytest
from benchmarks.common import RESULTS
from benchmarks.options import read_options

TRIALS = {
    "actors_and_envs": "--rounds 1",
    "cluster_simulation": "--nodes 1",
    "defaults": "--set epochs=5",
    "exactness": "--algorithms ppo --jobs 1",
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
    monkeypatch.setattr(sys, "argv", [name, *TRIALS[name].split()])
    with pytest.raises(SystemExit, match="2"):
        import_module(f"benchmarks.{name}").main()
    assert "pass --out FOLDER" in capsys.readouterr().err
