"""Stable-Baselines3 is timed with the number of threads with which it is quicker, and the record says so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.pages import ROOT

STAND_IN = f"""#!{sys.executable}
import json, sys
work = json.loads(sys.argv[2])
seconds = {{1: SECONDS_WITH_ONE, 2: SECONDS_WITH_TWO}}[work["threads"]]
curve = [[work["steps"] * part // 10, seconds * part / 10, 100.0] for part in range(1, 11)]
print(json.dumps({{"curve": curve}}))
"""
"""A program in place of the interpreter of Stable-Baselines3's environment: it prints a curve without training."""


def stand_in(folder: Path, seconds: dict[int, float]) -> Path:
    """Write a program that claims to have trained for so many seconds with so many threads."""
    path = folder / "python"
    text = STAND_IN.replace("SECONDS_WITH_ONE", str(seconds[1])).replace("SECONDS_WITH_TWO", str(seconds[2]))
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(("seconds", "quicker"), [({1: 10.0, 2: 20.0}, 1), ({1: 20.0, 2: 10.0}, 2)])
def test_the_peer_is_timed_with_the_quicker_of_one_and_two_threads(seconds, quicker, tmp_path):
    options = ["--sides", "sb3", "--seeds", "1", "--sb3-python", stand_in(tmp_path, seconds), "--out", tmp_path]
    subprocess.run([sys.executable, "-m", "benchmarks.time_to_return", *options], cwd=ROOT, check=True)
    (run,) = json.loads((tmp_path / "time-to-return.json").read_text())["runs"]
    assert run["threads"] == quicker
    assert max(run["sps_by_threads"], key=run["sps_by_threads"].get) == str(quicker)
    assert run["total_s"] == 10.0
