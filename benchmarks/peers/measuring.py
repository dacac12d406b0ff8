"""What the scripts of the peers share: the work that was given, the curve of a run, and its report."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch

ACTIVATIONS = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}


class Curve:
    """Points [env_steps, wall_time_s, mean return of the last 100 training episodes]."""

    def __init__(self) -> None:
        """Start the clock."""
        self.returns: deque[float] = deque(maxlen=100)
        """Returns of the last training episodes, to which a script appends each episode's."""
        self.points: list[tuple[int, float, float | None]] = []
        self._started_s = time.perf_counter()

    def take(self, env_steps: int) -> None:
        """Append a point, once all env steps so far have been learned from."""
        mean = float(sum(self.returns)) / len(self.returns) if self.returns else None
        self.points.append((env_steps, time.perf_counter() - self._started_s, mean))


def given() -> dict[str, Any]:
    """Return the work that was given on the command line."""
    work: dict[str, Any] = json.loads(sys.argv[1])
    return work


def start_on_cpu(work: dict[str, Any]) -> None:
    """Seed what draws numbers and set the threads.

    Raises:
        SystemExit: the work is for another device.
    """
    if work.get("device", "cpu") != "cpu":
        raise SystemExit(f"this script trains on the CPU, not on {work['device']}")
    torch.set_num_threads(work["threads"])
    torch.manual_seed(work["seed"])
    np.random.seed(work["seed"])  # noqa: NPY002 - Tianshou draws from it


def installed(name: str) -> str | None:
    """Return the installed version of a package, None if it is not there."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def report(packages: tuple[str, ...], points: list[tuple[int, float, float | None]]) -> None:
    """Print the versions and the curve as one JSON object."""
    names = (*packages, "numpy", "gymnasium", "mujoco")
    print(json.dumps({"versions": {name: installed(name) for name in names}, "curve": points}))
