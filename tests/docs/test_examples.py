"""The examples run, and do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.reference.pages import ROOT

EXAMPLES = ROOT / "examples"


def python(*arguments: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_training_and_loading_from_python(tmp_path):
    told = python(str(EXAMPLES / "train_and_load.py"), "--steps", "2000", folder=tmp_path)
    assert "one episode: return" in told


@pytest.mark.parametrize("lag", ["0", "3"])
def test_a_run_that_was_stopped_ends_with_the_same_bits(lag, tmp_path):
    told = python(str(EXAMPLES / "same_bits.py"), "--steps", "6000", "--max-lag", lag, folder=tmp_path)
    assert int(told.split()[2]) < 6000  # it did stop in between
    once, twice = (line.split()[0] for line in told.splitlines()[-2:])
    assert once == twice


@pytest.mark.parametrize("lag", ["0", "1"])
def test_all_runtimes_end_with_the_same_bits(lag, tmp_path):
    told = python(str(EXAMPLES / "same_bits_everywhere.py"), "--steps", "1500", "--max-lag", lag, folder=tmp_path)
    digests, runtimes = zip(*(line.split(",")[0].split() for line in told.splitlines()), strict=True)
    assert runtimes == ("serial", "threads", "processes")
    assert len(set(digests)) == 1


def test_an_env_of_ones_own_resumes_with_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))
    env = ["--env", "my_env:my_env/Docking-v0"]
    told = python(str(EXAMPLES / "same_bits.py"), *env, "--steps", "3000", folder=tmp_path)
    once, twice = (line.split()[0] for line in told.splitlines()[-2:])
    assert once == twice


@pytest.mark.parametrize(("actors", "tickets"), [(1, 60), (3, 200)])
def test_a_loop_of_ones_own_never_makes_an_update_too_many_or_too_few(actors, tickets, tmp_path):
    layout = ["--actors", str(actors), "--tickets", str(tickets)]
    told = python(str(EXAMPLES / "own_loop.py"), *layout, folder=tmp_path).splitlines()
    assert len(told) == 4
    for line in told:
        found = re.fullmatch(r" *(\d+) transitions, +(\d+) updates, (\d+) due, error (nan|\d\.\d+)", line)
        assert found, line
        transitions, updates, due = map(int, found.groups()[:3])
        assert due == 0
        assert updates == max(0, transitions - 500) // 2
    assert updates > 100
