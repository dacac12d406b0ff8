"""What is trained for the table of scores, and where its results are kept."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS

SCORES = RESULTS / "scores"
RUNS = Path("runs/scores")


@dataclass(frozen=True)
class Work:
    """A preset on an env, trained for so many env steps with some seeds."""

    algorithm: str
    env: str
    steps: int
    """Env steps of a run."""
    seeds: int
    """The seeds are 1 to this number."""
    published: float
    """The best mean return that we know of which was published for about as many env steps."""
    source: str
    """Who published it, with the version of the env and the number of seeds."""
    runtime: str = "serial"
    preset: str = ""
    """The name of the preset; empty: the one for the algorithm and the env."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The settings in which a run differs from the preset."""

    @property
    def folder(self) -> Path:
        """Where the results are kept."""
        return SCORES / self.algorithm / self.runtime / self._directory

    def result_path(self, seed: int) -> Path:
        """Return where a seed's result is kept."""
        return self.folder / f"seed-{seed}.json"

    def run_directory(self, seed: int) -> Path:
        """Return where a seed is trained."""
        return RUNS / self.algorithm / self.runtime / self._directory / f"seed-{seed}"

    @property
    def _directory(self) -> str:
        env = self.env.replace(":", "-")  # not every file system has a colon
        changes = [f"{key.rpartition('.')[2]}-{value}" for key, value in self.settings.items()]
        return "-".join(filter(None, (env, self.preset, *changes)))

    def results(self) -> list[dict[str, Any]]:
        """Return the results that are there, by seed."""
        found = [json.loads(path.read_text()) for path in self.folder.glob("seed-*.json")]
        return sorted(found, key=lambda result: int(result["seed"]))


def all_works() -> list[Work]:
    """Return the works of works.toml."""
    return [Work(**table) for table in tomllib.loads(Path(__file__).with_name("works.toml").read_text())["work"]]
