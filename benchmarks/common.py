"""What both benchmarks need: offbeat as a child process, its metrics, and the machine in words."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("offbeat", "torch", "numpy", "gymnasium", "mujoco")


def offbeat(*arguments: str, environment: dict[str, str] | None = None) -> str:
    """Run the command line in a process of its own and return what it printed.

    Raises:
        SystemExit: it failed; its messages are shown.
    """
    command = [str(Path(sys.executable).parent / "offbeat"), *arguments]
    return finish(command, {**os.environ, **(environment or {})})


def finish(command: list[str], environment: dict[str, str] | None = None) -> str:
    """Run a command to its end and return what it printed.

    Raises:
        SystemExit: it failed; its messages are shown.
    """
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics.jsonl."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def thinned(points: list[Any], count: int) -> list[Any]:
    """Return at most `count` of the points, evenly spaced, the first and the last among them."""
    if len(points) <= count:
        return points
    return [points[round(i * (len(points) - 1) / (count - 1))] for i in range(count)]


def machine() -> dict[str, Any]:
    """Return what speeds depend on: processor, cores, versions."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        **{name: installed(name) for name in PACKAGES},
    }


def describe(about: dict[str, Any]) -> str:
    """Return `machine()` as one line."""
    versions = ", ".join(f"{name} {about[name]}" for name in ("python", *PACKAGES))
    return f"{about['cpu']}, {about['cores']} cores, {about['system']}; {versions}"


def installed(name: str) -> str | None:
    """Return the installed version of a package, None if it is not there."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE) if info.exists() else None
    return found.group(1) if found else platform.processor() or platform.machine()


def write_json(path: Path, record: object) -> None:
    """Write a record as JSON, one line per item of the outer levels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1)
    numbers_in_one_line = re.sub(r"\[\s+([^\[\]{}]+?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text)
    path.write_text(numbers_in_one_line + "\n")


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown, numbers to the right of the first column."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "".join(f"| {' | '.join(row)} |\n" for row in [header, rule, *rows])
