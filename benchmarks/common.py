"""What the benchmarks need: programs as child processes, what they cost, metrics, tables, the machine in words."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

Item = TypeVar("Item")

OFFBEAT = str(Path(sys.executable).parent / "offbeat")
"""The command line."""
RESULTS = Path(__file__).parent / "results"
PACKAGES = ("offbeat", "torch", "numpy", "gymnasium", "mujoco")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
"""Environment of a run whose libraries compute in one thread."""


def offbeat(*arguments: str, environment: dict[str, str] | None = None) -> str:
    """Run the command line in a process of its own and return what it printed.

    Raises:
        SystemExit: it failed; its messages are shown.
    """
    return finish([OFFBEAT, *arguments], {**os.environ, **(environment or {})})


def finish(command: list[str], environment: dict[str, str] | None = None) -> str:
    """Run a command to its end and return what it printed.

    Raises:
        SystemExit: it failed; its messages are shown.
    """
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def record_of(command: list[str]) -> dict[str, Any]:
    """Run a command in one thread, and return the JSON object in the last line that it printed.

    Raises:
        SystemExit: it failed; its messages are shown.
    """
    record: dict[str, Any] = json.loads(finish(command, {**os.environ, **ONE_THREAD}).splitlines()[-1])
    return record


# --- children and what they cost ----------------------------------------------------------------------------


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies: `reap` then knows them all (Linux)."""
    if sys.platform == "linux":
        pr_set_child_subreaper = 36
        ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1)


def die_with_the_parent() -> None:
    """Let this process be killed as soon as the one that started it has ended, however that ends (Linux)."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def reap(seconds: float) -> list[int]:
    """Wait for all children to end, at most so long; return the pids of those still alive."""
    until = time.monotonic() + seconds
    while _reap_ended():
        if time.monotonic() > until:
            return children()
        time.sleep(0.02)
    return []


def _reap_ended() -> bool:
    """Reap the children that have ended; return whether others are left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def children() -> list[int]:
    """Return the pids of this process's children (Linux)."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    return [int(pid) for pid in listed.read_text().split()] if listed.exists() else []


def cpu_s_of(*pids: int) -> float:
    """Return the CPU seconds of processes so far (Linux)."""
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")


def children_cpu_s() -> float:
    """Return the CPU seconds of all children that have been reaped, and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


# --- records ------------------------------------------------------------------------------------------------


def thinned(points: list[Any], count: int) -> list[Any]:
    """Return at most `count` of the points, evenly spaced, the first and the last among them."""
    if len(points) <= count:
        return points
    return [points[round(i * (len(points) - 1) / (count - 1))] for i in range(count)]


def machine() -> dict[str, Any]:
    """Return what speeds depend on: processor, cores, versions, and the load of the last 1, 5 and 15 minutes."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        **{name: installed(name) for name in PACKAGES},
        "load": [round(load, 1) for load in os.getloadavg()],
    }


def describe(about: dict[str, Any]) -> str:
    """Return `machine()` as one line, without the load."""
    versions = {name: about[name] for name in ("python", *PACKAGES)}
    return f"{about['cpu']}, {about['cores']} cores, {about['system']}; {in_words(versions)}"


def in_words(versions: dict[str, Any]) -> str:
    """Return versions by package in one line."""
    return ", ".join(f"{name} {number}" for name, number in versions.items())


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


def by_turns(items: Iterable[Item], rounds: int) -> Iterator[tuple[int, Item]]:
    """Yield each item with the number of its round, from 1 on: forward in odd rounds, backward in even ones."""
    forward = list(items)
    for number in range(1, rounds + 1):
        for item in forward if number % 2 else reversed(forward):
            yield number, item


def publish(out: Path, name: str, record: object, *paragraphs: str) -> None:
    """Write a record and the page that is made of it into a folder, as NAME.json and NAME.md, and print the page."""
    write_json(out / f"{name}.json", record)
    print(write_page(out / f"{name}.md", *paragraphs))


def write_page(path: Path, *paragraphs: str) -> str:
    """Write a page, and return its text."""
    text = "\n\n".join(paragraph.strip("\n") for paragraph in paragraphs) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return text


def write_json(path: Path, record: object) -> None:
    """Write a record as JSON, one line per item of the outer levels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1)
    numbers_in_one_line = re.sub(r"\[\s+([^\[\]{}]+?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text)
    path.write_text(numbers_in_one_line + "\n")


def spread(values: list[float], form: str) -> str:
    """Return 'median (least to most)'."""
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def median_reached(values: Sequence[float | None]) -> float | None:
    """Return the median of when something was reached; None, which is never, is later than all others."""
    never = float("inf")
    middle = median([never if value is None else value for value in values])
    return middle if middle < never else None


def spread_reached(values: Sequence[float | None], form: str) -> str:
    """Return 'median (least to most)' of when something was reached, as `median_reached`; a dash where that is never.

    The least and the most are of those that reached it.
    """
    reached = [value for value in values if value is not None]
    if not reached:
        return "-"
    middle = median_reached(values)
    return f"{'-' if middle is None else f'{middle:{form}}'} ({min(reached):{form}} to {max(reached):{form}})"


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown, numbers to the right of the first column."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "".join(f"| {' | '.join(row)} |\n" for row in [header, rule, *rows])


def read_section(page: Path, start: str, end: str) -> str:
    """Return the text of a page between two marks."""
    return page.read_text().partition(start)[2].partition(end)[0].strip()


def write_section(page: Path, start: str, end: str, text: str) -> None:
    """Replace the text of a page between two marks."""
    before, _, rest = page.read_text().partition(start)
    page.write_text(f"{before}{start}\n{text}\n{end}{rest.partition(end)[2]}")
