"""A package of envs may have installed a Gymnasium that offbeat does not work with."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.support.thorough import thorough

from offbeat.envs import requirements
from offbeat.envs.requirements import OLDEST_GYMNASIUM

ROOT = Path(__file__).parents[2]


def test_the_oldest_gymnasium_is_that_of_the_package():
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert [each for each in required if re.match(rf"gymnasium>={'.'.join(map(str, OLDEST_GYMNASIUM))},", each)]


@pytest.mark.parametrize("version", ["1.0rc1", *thorough("0.29.0", "1.0.0")])
def test_an_old_gymnasium_is_refused_with_the_command_that_installs_a_newer_one(tmp_path, version):
    (tmp_path / "gymnasium").mkdir()
    (tmp_path / "gymnasium/__init__.py").write_text("raise SystemExit('imported')\n")
    about = tmp_path / f"gymnasium-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: gymnasium\nVersion: {version}\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
    done = subprocess.run(
        [sys.executable, "-m", "offbeat", "check", "CartPole-v1"],
        check=False, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 2
    assert f"gymnasium {version} is installed, but 1.1 or newer is expected" in done.stderr
    assert 'pip install "gymnasium>=1.1,<2"' in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("version", ["1.1rc1", "1.4.0", "2.0.0a1", "2"])
def test_a_new_gymnasium_is_accepted_also_as_a_prerelease(monkeypatch, version):
    monkeypatch.setattr(requirements, "version", lambda _package: version)
    requirements.require_gymnasium()
