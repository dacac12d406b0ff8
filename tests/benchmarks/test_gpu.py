"""The script for a GPU keeps good results, and takes no crash for a measurement."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu.jobs import FOLDER, Job, read_training, run
from benchmarks.gpu.parts import Scale
from tests.support.pages import ROOT

CRASHES = """
import json, pathlib, sys
run = pathlib.Path(sys.argv[1]) / "run"
run.mkdir()
(run / "status.json").write_text('{"state": "running"}')
lines = [json.dumps({"wall_time_s": second, "env_steps": 1000 * second, "updates": second}) for second in (1, 2, 3)]
(run / "metrics.jsonl").write_text("\\n".join(lines))
sys.exit("CUDA error")
"""


def test_a_training_that_crashes_is_an_error_and_no_measurement(tmp_path):
    figures = run(Job("PPO", [sys.executable, "-c", CRASHES, FOLDER], 30, read_training), tmp_path / "job")
    assert figures["error"] == "ended with 1: CUDA error"


def test_a_part_keeps_its_results_if_no_time_is_left_for_it(tmp_path, monkeypatch, capsys):
    for name in ("sac.json", "sac.txt"):
        (tmp_path / name).write_text('{"of": "an earlier call"}')
    monkeypatch.setattr(gpu, "_scale", lambda _: Scale(("cpu",), 2, 1.0, smoke=True))
    monkeypatch.setattr(gpu, "_write_table", lambda _: "")
    monkeypatch.setattr(sys, "argv", ["gpu", "sac", "--minutes", "0", "--out", str(tmp_path)])
    assert gpu.main() == 1
    assert "sac: not run: the time of all parts was over" in capsys.readouterr().out
    for name in ("sac.json", "sac.txt"):
        assert (tmp_path / name).read_text() == '{"of": "an earlier call"}'


def test_the_script_adds_no_folder_to_its_arguments():
    """With one, a trial would replace the published results."""
    done = subprocess.run(
        ["benchmarks/gpu.sh", "--smoke"], cwd=ROOT, env={"PYTHON": "echo"}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "-m benchmarks.gpu --smoke\n"
