"""A stand-in for Trackio that writes down what it is told, and fails in the way that STRANGE_TRACKER names."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

_HOW = os.environ.get("STRANGE_TRACKER", "")
"""'raise in log', 'hang in finish', 'die in init', ...: what it does, and where."""


def init(project: str, name: str | None = None, config: dict[str, Any] | None = None, resume: str = "never") -> Run:
    """Begin a run, as Trackio does; a name that is taken is replaced where nothing is to be resumed."""
    taken = (_folder() / f"{name}.jsonl").exists()
    run = Run(f"{name}-2" if taken and resume == "never" else str(name))
    run.write({"project": project, "config": config, "resume": resume})
    _fail("init")
    return run


class Run:
    """A run of the stand-in."""

    def __init__(self, name: str) -> None:
        self.name = name

    def log(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Write figures down."""
        _fail("log")
        self.write({"step": step, **metrics})

    def finish(self) -> None:
        """Write down that this is the end."""
        _fail("finish")
        self.write({"finished": True})

    def write(self, what: dict[str, Any]) -> None:
        """Append a line to the run's file."""
        with (_folder() / f"{self.name}.jsonl").open("a") as file:
            file.write(json.dumps(what) + "\n")


def _folder() -> Path:
    return Path(os.environ["STRANGE_TRACKER_FOLDER"])


def _fail(where: str) -> None:
    sys.stdout.write(f"printed in {where}\n")
    if not _HOW.endswith(f"in {where}"):
        return
    if _HOW.startswith("raise"):
        raise ConnectionError("the network\nis gone")
    if _HOW.startswith("die"):
        os._exit(7)
    time.sleep(1000)
