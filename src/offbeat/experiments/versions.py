"""What an experiment was made with: versions, machine, and the state of the code in git."""

from __future__ import annotations

import platform
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from offbeat.threads import usable_cores

_PACKAGES = ("offbeat", "torch", "numpy", "gymnasium")


def made_with() -> dict[str, Any]:
    """Return all of it as JSON has it; None where something is not there."""
    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        **{name: _installed(name) for name in _PACKAGES},
        "platform": platform.platform(),
        "cores": usable_cores(),
        "git": git_state(Path.cwd()),
        "offbeat_git": git_state(Path(__file__).parent),
    }


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def git_state(folder: Path) -> dict[str, Any] | None:
    """Return the commit that a folder is at, and whether tracked files differ from it; None outside of git."""
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": bool(changes)}


def _git(folder: Path, *arguments: str) -> str | None:
    """Return what git says, None where it cannot."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
