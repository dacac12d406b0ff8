"""Jobs: programs with a time limit, what they print, and the memory of the GPU while they run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from offbeat.metrics.sinks import read_metrics

Figures = dict[str, Any]
"""What a job has measured, by name."""

OFFBEAT = [sys.executable, "-c", "from offbeat.cli.entry import main; main()"]
"""The command `offbeat`, also where only the source is there."""
FOLDER = "{folder}"
"""Stands for the job's folder in its command."""
WARM_UP = 0.4
"""Share of a run before its speed is measured: kernels are loaded and chosen, memory is allocated."""


@dataclass(frozen=True)
class Job:
    """One program of a part."""

    name: str
    command: list[str]
    limit_s: float
    """Seconds after which it is killed, with all its children."""
    read: Callable[[Path, str], Figures]
    """From the job's folder and its output to what it has measured."""
    environment: Mapping[str, str] = field(default_factory=dict)


def run(job: Job, folder: Path) -> Figures:
    """Run a job in an empty folder, and return its figures; without them, `error` says why.

    Its output is in `output.txt` in the folder.
    """
    folder.mkdir(parents=True)
    output, started = folder / "output.txt", time.monotonic()
    with output.open("w") as file, GpuMemory() as gpu:
        process = subprocess.Popen(
            [word.replace(FOLDER, str(folder)) for word in job.command],
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **job.environment},
            start_new_session=True,
        )
        in_time = _wait(process, job.limit_s)
    figures: Figures = {"seconds": round(time.monotonic() - started, 1), **gpu.figures()}
    said = output.read_text(errors="replace")
    try:
        figures |= job.read(folder, said)
    except (OSError, ValueError, KeyError, IndexError, StopIteration) as error:
        why = _last_line(said) if process.returncode else f"{type(error).__name__}: {error}"
        figures["error"] = f"no results: {why}"
    if process.returncode and "error" not in figures:
        figures["error"] = f"ended with {process.returncode}: {_last_line(said)}"
    if not in_time:
        figures["error"] = f"stopped after its limit of {job.limit_s:.0f} s: {_last_line(said)}"
    return figures


def _wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a process; whether it ended in time. In any case its whole group is gone afterwards."""
    try:
        process.wait(seconds)
        in_time = True
    except subprocess.TimeoutExpired:
        in_time = False
        os.killpg(process.pid, signal.SIGTERM)  # so that it can print where it is
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return in_time


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][-300:] if lines else "no output"


# --- what jobs have measured --------------------------------------------------------------------------------


def read_training(folder: Path, _said: str) -> Figures:
    """Return speed, memory and the last metrics of a training run, in the folder `run`."""
    status = json.loads((folder / "run" / "status.json").read_text())
    if status["state"] == "failed":
        return {"error": status["reason"]}
    lines = read_metrics(folder / "run")
    last = lines[-1]
    first = next(line for line in lines if line["wall_time_s"] >= WARM_UP * last["wall_time_s"])
    seconds = last["wall_time_s"] - first["wall_time_s"]
    if seconds <= 0:
        return {"error": "only one metrics line: the run was too short to measure"}
    speeds = {key: round((last[of] - first[of]) / seconds, 1) for key, of in (("sps", "env_steps"), ("ups", "updates"))}
    names = (
        *("memory_main_mb", "memory_children_mb", "policy_lag_max", "updates_refused", "actor_restarts"),
        *("learner_grad_time_ms", "learner_wait_fraction", "actor_wait_fraction", "ratio_max_deviation_first"),
    )
    return {**speeds, **{name: last[name] for name in names if last.get(name) is not None}}


def read_json(_folder: Path, said: str) -> Figures:
    """Return the object that a program has printed last."""
    figures: Figures = json.loads(said[said.rindex("\n{") if "\n{" in said else said.index("{") :])
    return figures


def read_pytest(_folder: Path, said: str) -> Figures:
    """Return how many tests have passed and so on; the names of those that have failed."""
    end = next(line for line in reversed(said.splitlines()) if " in " in line and line[:1].isdigit())
    words = end.split(" in ")[0].replace(",", "").split()
    counts = {words[i + 1]: int(words[i]) for i in range(0, len(words) - 1, 2)}
    failed = [line.split()[1] for line in said.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return {**counts, **({"error": f"failed: {', '.join(failed)}"} if failed else {})}


def read_nothing(_folder: Path, said: str) -> Figures:
    """Return what a program has said last: its results are files."""
    return {"said": _last_line(said)}


class GpuMemory:
    """The largest memory in use on the first GPU, and how busy it is, while a block of code runs."""

    def __init__(self) -> None:
        self._memory: list[float] = []
        self._busy: list[float] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(10)

    def _watch(self) -> None:
        program = shutil.which("nvidia-smi")
        while program is not None and not self._ended.wait(0.5):
            asked = [program, "--query-gpu=memory.used,utilization.gpu", "--format=csv,noheader,nounits"]
            with suppress(OSError, ValueError, IndexError, subprocess.SubprocessError):
                said = subprocess.run(asked, check=True, capture_output=True, text=True, timeout=5).stdout
                memory, busy = said.splitlines()[0].split(",")
                self._memory.append(float(memory))
                self._busy.append(float(busy))

    def figures(self) -> Figures:
        """Return both in MiB and per cent; nothing without nvidia-smi."""
        if not self._memory:
            return {}
        return {"gpu_mib": max(self._memory), "gpu_busy_percent": round(sum(self._busy) / len(self._busy))}
