"""What the command line says where a package is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.runs import OFFBEAT, CommandResult
from tests.support.warm import REPOSITORY

from offbeat.cli import doctor
from offbeat.run_directory import versions

SPEC = 'algorithm = "ppo"\nenv = "CartPole-v1"\nseeds = [1]\n[settings]\nsteps = 100\n'
COMMANDS = {
    "doctor": ["doctor"],
    "train": ["train", "ppo", "CartPole-v1", "--run-dir", "trained"],
    "export": ["export", "run"],
    "run": ["run", "spec.toml"],
}


@pytest.fixture(scope="module")
def without_torch(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CommandResult]:
    """Return what each command says in a process in which torch cannot be imported; they run side by side."""
    folder = tmp_path_factory.mktemp("without_torch")
    (folder / "shadow").mkdir()
    (folder / "shadow" / "torch.py").write_text("raise ModuleNotFoundError('No module named torch', name='torch')\n")
    (folder / "spec.toml").write_text(SPEC)
    (folder / "run").mkdir()
    (folder / "run" / "config.toml").write_text('[run]\nalgorithm = "ppo"\nenv = "CartPole-v1"\n')
    started = {name: _started(arguments, folder) for name, arguments in COMMANDS.items()}
    said = {name: CommandResult(1, *process.communicate(timeout=120)) for name, process in started.items()}
    return {name: said[name]._replace(code=process.returncode) for name, process in started.items()}


def _started(arguments: list[str], folder: Path) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(folder / "shadow"), str(REPOSITORY / "src")])
    return subprocess.Popen(
        [sys.executable, "-c", OFFBEAT, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("command", ["train", "export", "run"])
def test_a_command_that_needs_torch_reports_that_torch_is_missing(without_torch, command):
    said = without_torch[command]
    assert said.code == 2
    assert f"`offbeat {command}` needs torch" in said.err
    assert "pip install torch" in said.err
    assert "Traceback" not in said.err


def test_doctor_without_torch_lists_everything_else(without_torch):
    said = without_torch["doctor"]
    assert said.code == 0
    assert "numpy " in said.out
    assert "gpu unknown, as torch cannot be imported" in said.out


def test_doctor_names_each_missing_package_of_an_extra_and_of_the_extras_that_it_needs(monkeypatch, capsys):
    installed = versions.package_version
    gone = {"scipy", "onnxruntime", "box2d", "box2d-py"}
    monkeypatch.setattr(versions, "package_version", lambda name: None if name in gone else installed(name))
    doctor.Doctor().run()
    lines = capsys.readouterr().out.splitlines()
    assert 'extra compiled: scipy missing, pip install "offbeat[compiled]"' in lines
    assert 'extra export: onnxruntime missing, pip install "offbeat[export]"' in lines
    assert any(line.startswith("extra box2d: box2d") for line in lines)  # of gymnasium[box2d]
    assert "extra hub: installed" in lines


@pytest.mark.parametrize(
    ("module", "package"), [("tomli_w", "tomli-w"), ("torch.nn", "torch"), ("scipy", None), ("", None)]
)
def test_a_missing_module_is_that_of_a_required_package(module, package):
    assert doctor.missing_package(ModuleNotFoundError(name=module)) == package


def test_a_missing_packaging_is_named_although_the_metadata_cannot_be_read_without_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "packaging.requirements", None)
    with pytest.raises(ModuleNotFoundError) as raised:
        doctor.Doctor().run()
    assert doctor.missing_package(raised.value) == "packaging"


def test_a_missing_module_of_the_user_is_not_reported_as_a_missing_dependency(monkeypatch):
    from offbeat.cli import main

    def fails(_arguments: object) -> Any:
        raise ModuleNotFoundError("No module named 'theirs'", name="theirs")

    monkeypatch.setattr(main, "_parse", fails)
    with pytest.raises(ModuleNotFoundError, match="theirs"):
        main.run(["doctor"])
