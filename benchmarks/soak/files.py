"""The files of one run of the soak: its run directory, what it printed, and which envs have failed."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.soak.envs import RUNTIME, TAKEN
from benchmarks.soak.plan import TABLES, Plan
from offbeat.core.errors import ConfigError
from offbeat.metrics.sinks import read_metrics

TAIL = 1 << 14
"""Bytes at the end of metrics.jsonl in which its last whole line is looked for."""


class RunFiles:
    """See the module's docstring. All reading is of a run that may be writing, or of one that was broken off."""

    def __init__(self, folder: Path, *, on_a_disk: bool) -> None:
        """Address the files in a folder; the run directory may be on a disk of its own."""
        self.folder = folder
        self.disk = folder / "disk" if on_a_disk else None
        self.run = (self.disk or folder) / "run"
        self._parts = 0

    @property
    def tables(self) -> Path:
        return self.folder / TABLES

    def environment(self, plan: Plan, runtime: str = "") -> dict[str, str]:
        """Return the environment of a program that runs in this runtime."""
        path = os.pathsep.join([str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])])
        return os.environ | {"PYTHONPATH": path, "PYTHONFAULTHANDLER": "1", RUNTIME: runtime or plan.runtime}

    def begin_part(self) -> None:
        """From now on another process trains, or goes on, and prints to files of its own."""
        self._parts += 1

    @property
    def stdout(self) -> Path:
        return self.folder / f"stdout-{self._parts}.txt"

    @property
    def stderr(self) -> Path:
        return self.folder / f"stderr-{self._parts}.txt"

    def output(self) -> str:
        """Return what was printed since the last start."""
        return "".join(f.read_text(errors="replace") for f in (self.stdout, self.stderr) if f.exists())

    def status(self) -> dict[str, Any]:
        """Return status.json, empty while there is none."""
        with suppress(OSError, ValueError):
            status: dict[str, Any] = json.loads((self.run / "status.json").read_text())
            return status
        return {}

    def state(self) -> str | None:
        return self.status().get("state")

    def pids(self, *roles: str) -> list[int]:
        """Return the pids of the processes in these roles."""
        return [process["pid"] for process in self.status().get("processes", []) if process["role"] in roles]

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl, none while there is none that is whole."""
        with suppress(OSError, ConfigError):
            return read_metrics(self.run)
        return []

    def env_steps(self) -> int:
        """Return the env steps of the last whole line of metrics.jsonl; -1 while there is none."""
        return last_env_steps(self.run)

    def taken(self, by: str = "") -> list[str]:
        """Return the failures of envs that took place, in the main process or in child processes: main, child."""
        return [path.name for path in (self.folder / TAKEN).iterdir() if path.name.startswith(by)]


def last_env_steps(run: Path) -> int:
    """Return the env steps of the last whole line of a run's metrics.jsonl; -1 while there is none."""
    with suppress(OSError), (run / "metrics.jsonl").open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - TAIL))
        for text in reversed(file.read().split(b"\n")):
            with suppress(ValueError):
                return int(json.loads(text)["env_steps"])
    return -1
