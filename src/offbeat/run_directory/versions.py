"""What a run was made with: versions of packages, the machine, and the state of the code in git.

`offbeat train` writes it into each run directory, `offbeat run` into the record of the experiment. It must cost a run
nothing: no call here is slow, git has a limit in time and in bytes, and whatever is missing is None.
"""

from __future__ import annotations

import json
import os
import platform
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from offbeat.core.strict_json import LARGEST_RECORD, read_json
from offbeat.core.threads import usable_cores

GIT_S = 2.0
"""Seconds that one call of git may take; where it takes longer, what it was asked for is not recorded."""
DIFF_BYTES = 2_000_000
"""Bytes of a diff that are kept."""
_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
"""Git, without what a repository's own settings may let it start or write."""
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_NVIDIA = Path("/proc/driver/nvidia/gpus")


def made_with() -> dict[str, Any]:
    """Return all of it as JSON has it; None where something is not there."""
    own = Path(__file__).parents[1]
    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "packages": packages(),
        "machine": machine(),
        "git": git_state(Path()),
        "offbeat_git": None if "site-packages" in own.parts else git_state(own),
    }


def record(directory: Path) -> list[str]:
    """Write versions.json and git.diff into a run directory; return what differs from those that were there.

    The files of an earlier part of the run are kept where they differ, as versions-1.json and git-1.diff.
    """
    now, diff = made_with(), git_diff(Path())
    written, patch = directory / "versions.json", directory / "git.diff"
    before = _read(written)
    changes = [] if before is None else list(differences(before, now))
    changed_diff = before is not None and (patch.read_bytes() if patch.is_file() else b"") != diff
    if changed_diff:
        changes.append("the uncommitted changes in git.diff are others")
    if changes:
        _save(directory)
    written.write_text(json.dumps(now, indent=1) + "\n")
    patch.unlink(missing_ok=True)
    if diff:
        patch.write_bytes(diff)
    return changes


def _read(file: Path) -> dict[str, Any] | None:
    """Return what a versions.json says; None where there is none, or one that is damaged."""
    with suppress(OSError, ValueError):
        return read_json(file, LARGEST_RECORD)
    return None


def _save(directory: Path) -> None:
    """Move the files of an earlier part of the run aside."""
    number = next(n for n in range(1, 1_000_000) if not (directory / f"versions-{n}.json").exists())
    (directory / "versions.json").rename(directory / f"versions-{number}.json")
    with suppress(FileNotFoundError):
        (directory / "git.diff").rename(directory / f"git-{number}.diff")


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Say what differs between two records: 'torch 2.12 there, 2.13 here'."""
    then, here = dict(_flat(before)), dict(_flat(now))
    for name in {**then, **here}:
        if name != "when" and then.get(name) != here.get(name):
            yield f"{name} {_said(then.get(name))} there, {_said(here.get(name))} here"


def _flat(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value under a name of its own; those of packages and of the machine go without a prefix."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _flat(value, "" if name in ("packages", "machine") else f"{name} ")
        else:
            yield prefix + name, value


def _said(value: Any) -> str:
    return "missing" if value is None else str(value)


# --- packages and machine -----------------------------------------------------------------------------------


def packages() -> dict[str, str | None]:
    """Return the versions of offbeat and of all that it may need, extras included, as far as it is installed."""
    try:
        needed = requires("offbeat") or []
    except PackageNotFoundError:  # a source tree that is not installed
        needed = ["torch", "numpy", "gymnasium"]
    wanted = (need for need in needed if "dev" not in need.partition("extra ==")[2])
    names = {found[0].lower() for need in wanted if (found := _NAME.match(need))}
    known = {name: installed(name) for name in sorted(names)}
    return {"offbeat": installed("offbeat"), **{name: found for name, found in known.items() if found}}


def installed(name: str) -> str | None:
    """Return the version of an installed package, None where it is missing."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def machine() -> dict[str, Any]:
    """Return processor, cores, memory, operating system and GPUs; nothing here waits for a driver."""
    system = platform.uname()
    return {
        "system": f"{system.system} {system.release} {system.machine}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "memory_gb": _memory_gb(),
        "gpus": _gpus(),
    }


def _processor() -> str | None:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return None


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (OSError, ValueError):
        return None


def _gpus() -> list[str]:
    """Return the names of NVIDIA's GPUs, as their driver shows them in a file."""
    names = []
    with suppress(OSError):
        for file in sorted(_NVIDIA.glob("*/information")):
            lines = (line.partition(":") for line in file.read_text(errors="replace").splitlines())
            names += [value.strip() for name, _, value in lines if name.strip() == "Model"]
    return names


# --- git ----------------------------------------------------------------------------------------------------


def git_state(folder: Path) -> dict[str, Any] | None:
    """Return the commit that a folder is at, and whether tracked files differ from it; None outside of git."""
    commit = _git(folder, 100, "rev-parse", "--verify", "HEAD")
    if not commit:
        return None
    if _has_filters(folder):
        return {"commit": commit.decode().strip(), "dirty": None}
    changes = _git(folder, 1, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules")
    return {"commit": commit.decode().strip(), "dirty": None if changes is None else bool(changes)}


def _has_filters(folder: Path) -> bool:
    """Whether the repository itself, not its user, names programs that git would run on the contents of files."""
    scopes = _git(folder, 1_000_000, "config", "--show-scope", "--name-only", "--get-regexp", "^filter[.]")
    return scopes is not None and any(line.startswith((b"local", b"worktree")) for line in scopes.splitlines())


def git_diff(folder: Path) -> bytes:
    """Return how tracked files differ from the commit, b'' where there is nothing to tell; one too long is cut."""
    if _has_filters(folder):
        return b""
    diff = _git(
        folder, DIFF_BYTES + 1, "diff", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules", "HEAD"
    )
    if diff is None or len(diff) <= DIFF_BYTES:
        return diff or b""
    whole_lines = diff[: diff.rindex(b"\n", 0, DIFF_BYTES) + 1] if b"\n" in diff[:DIFF_BYTES] else diff[:DIFF_BYTES]
    return whole_lines + f"\n[cut: offbeat keeps the first {DIFF_BYTES:,} bytes of a diff]\n".encode()


def _git(folder: Path, most: int, *arguments: str) -> bytes | None:
    """Return what git prints, as far as the first `most` bytes; None where it cannot, or takes too long."""
    try:
        process = subprocess.Popen(  # noqa: S603
            [*_GIT, "-C", str(folder), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
    except OSError:
        return None
    assert process.stdout is not None
    with process.stdout as pipe:
        printed, ended = _read_until(pipe.fileno(), most, time.monotonic() + GIT_S)
    try:
        ended = ended and process.wait(GIT_S) == 0
    except subprocess.TimeoutExpired:
        ended = False
    if not ended:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # also what it has started
        process.wait()
    return printed if ended or len(printed) >= most else None


def _read_until(pipe: int, most: int, deadline: float) -> tuple[bytes, bool]:
    """Return the first `most` bytes of a pipe, and whether it came to its end before these and the deadline."""
    printed, waiting = bytearray(), select.poll()
    waiting.register(pipe, select.POLLIN)
    while len(printed) < most:
        if not waiting.poll(max(0.0, 1000 * (deadline - time.monotonic()))):
            return bytes(printed), False
        part = os.read(pipe, min(65536, most - len(printed)))
        if not part:
            return bytes(printed), True
        printed += part
    return bytes(printed), False
