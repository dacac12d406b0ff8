"""What the command line says where a package is missing, and that its lists are those of pyproject.toml."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from tests.support.runs import OFFBEAT, CommandResult, offbeat
from tests.support.warm import REPOSITORY

from offbeat.cli.doctor import EXTRAS, REQUIRED

SPEC = 'algorithm = "ppo"\nenv = "CartPole-v1"\nseeds = [1]\n[settings]\nsteps = 100\n'
COMMANDS = {
    "doctor": ["doctor"],
    "train": ["train", "ppo", "CartPole-v1", "--run-dir", "trained"],
    "export": ["export", "run"],
    "run": ["run", "spec.toml"],
}


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    return project


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


def test_doctor_lists_every_extra_of_the_project_and_no_other():
    listed = re.findall(r"^extra ([\w-]+):", offbeat("doctor").out, re.MULTILINE)
    assert sorted(listed) == sorted(_project()["optional-dependencies"])


@pytest.fixture(scope="module")
def distributions() -> Mapping[str, list[str]]:
    """The packages that have installed each module: half a second to find out."""
    return packages_distributions()


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_the_module_that_identifies_an_extra_is_installed_with_the_extra(distributions, extra):
    packages = distributions.get(EXTRAS[extra])
    if packages is None:
        pytest.skip(f"{EXTRAS[extra]} is not installed")
    if extra == "box2d":
        return  # it comes with gymnasium[box2d]
    needs = {_normalized(re.split(r"[\[<>=]", need)[0]) for need in _project()["optional-dependencies"][extra]}
    assert {_normalized(package) for package in packages} & needs


def _normalized(package: str) -> str:
    return package.lower().replace("_", "-")


def test_the_required_packages_are_those_of_pyproject():
    assert sorted(REQUIRED.values()) == sorted(re.split(r"[<>=]", need)[0] for need in _project()["dependencies"])


def test_a_missing_module_of_the_user_is_not_reported_as_a_missing_dependency(monkeypatch):
    from offbeat.cli import main

    def fails(_arguments: object) -> Any:
        raise ModuleNotFoundError("No module named 'theirs'", name="theirs")

    monkeypatch.setattr(main, "_parse", fails)
    with pytest.raises(ModuleNotFoundError, match="theirs"):
        main.run(["doctor"])
