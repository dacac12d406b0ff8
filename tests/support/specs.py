"""Small experiments: spec files as text, and what is left behind by them."""

from __future__ import annotations

import os
from contextlib import chdir
from pathlib import Path
from typing import Any
from unittest.mock import patch

import tomli_w
from tests.support.runs import SMALL, CommandResult, offbeat
from tests.support.warm import REPOSITORY

TINY: dict[str, Any] = {**SMALL, "steps": 256, "hidden_sizes": [16], "evaluator": "inline"}
"""Settings of sessions that are over at once."""


def spec_text(**changes: Any) -> str:
    """Return a spec of one trial with two sessions, with changes; None takes a key away."""
    tables = {"algorithm": "ppo", "env": "CartPole-v1", "seeds": [1, 2], "settings": TINY, **changes}
    return tomli_w.dumps({key: value for key, value in tables.items() if value is not None})


def write_spec(path: Path, **changes: Any) -> Path:
    path.write_text(spec_text(**changes))
    return path


def grid(**over: list[Any]) -> dict[str, Any]:
    return {"over": over}


def run_spec(folder: Path, *arguments: str) -> CommandResult:
    """Run `offbeat run spec.toml` to its end; its sessions are processes of their own."""
    where = {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]), "OMP_NUM_THREADS": "1"}
    with chdir(folder), patch.dict(os.environ, where):
        return offbeat("run", "spec.toml", *arguments)
