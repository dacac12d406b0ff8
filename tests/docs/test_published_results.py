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
    "shortest_paths": "--episodes 2",
}
"""Benchmark -> options of a trial."""


def options_of(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    return read_options(parser, "jobs", arguments=arguments)


def test_only_results_with_the_default_options_are_published_without_a_folder():
    assert options_of().out == options_of("--rounds", "5", "--jobs", "1").out == RESULTS
    assert options_of("--rounds", "1", "--out", "/tmp/trial").out == Path("/tmp/trial")


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
