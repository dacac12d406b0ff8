"""Records the versions of packages, the machine, and the state of the code in git, so that a run can be reproduced.

`offbeat train` writes them into the run directory, `offbeat run` into the record of the experiment. They must not delay
a run: no call here is slow, calls of git have limits in time and bytes, and values that cannot be determined are None.
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
from functools import cache
from pathlib import Path
from typing import Any

from offbeat.core.argument_notation import printable
from offbeat.core.files import replace_file
from offbeat.core.process.threads import usable_cores
from offbeat.core.strict_json import LARGEST_RECORD, read_json

GIT_S = 2.0
"""Time limit of one call of git, in seconds. If it takes longer, its result is not recorded."""
DIFF_BYTES = 2_000_000
"""Maximum size of a recorded diff, in bytes."""
_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
"""Git with options that keep it from running programs of the repository and from writing to it."""
_NO_FETCH = {"GIT_ALLOW_PROTOCOL": ""}
"""The environment of git in which it fetches nothing: for missing objects of a partial clone it would run a program."""
_NAME = re.compile(r"[A-Za-z0-9._-]+")
"""The name of a package at the start of a requirement."""
_NVIDIA = Path("/proc/driver/nvidia/gpus")


def current_versions() -> dict[str, Any]:
    """Return the versions as JSON. Values that cannot be determined are None."""
    library = Path(__file__).parents[1]
    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "packages": packages(),
        "machine": machine(),
        "git": git_state(Path()),
        "offbeat_git": None if "site-packages" in library.parts else git_state(library),
    }


def write_versions(directory: Path) -> list[str]:
    """Write versions.json and git.diff into a run directory; return the differences from the existing files.

    If there are differences, the existing files are renamed to versions-1.json and git-1.diff (or -2, ...).

    Raises:
        OSError: a file could not be written. The record of an earlier start is not lost.
    """
    now = current_versions()
    diff = git_diff(Path()) if now["git"] and now["git"]["dirty"] else b""
    versions, patch = directory / "versions.json", directory / "git.diff"
    before = _read(versions)
    changes = [] if before is None else list(differences(before, now))
    if before is not None and not _is_content(patch, diff):
        changes.append("the uncommitted changes in git.diff differ")
    if changes:
        _rename_existing(directory)
    replace_file(versions, (json.dumps(now, indent=1) + "\n").encode(), synced=False)
    if diff:
        replace_file(patch, diff, synced=False)
    else:
        patch.unlink(missing_ok=True)
    return changes


def _read(file: Path) -> dict[str, Any] | None:
    """Return the content of a versions.json; None if it does not exist or is damaged."""
    with suppress(OSError, ValueError):
        return read_json(file, LARGEST_RECORD)
    return None


def _is_content(file: Path, content: bytes) -> bool:
    """Whether a file has this content, which a file that does not exist has if it is empty.

    A file of another size is not read: a run directory from someone else may have one that does not fit into memory.
    """
    if not file.is_file():
        return not content
    return file.stat().st_size == len(content) and file.read_bytes() == content


def _rename_existing(directory: Path) -> None:
    """Rename versions.json and git.diff to the next free number."""
    number = next(n for n in range(1, 1_000_000) if not (directory / f"versions-{n}.json").exists())
    (directory / "versions.json").rename(directory / f"versions-{number}.json")
    with suppress(FileNotFoundError):
        (directory / "git.diff").rename(directory / f"git-{number}.diff")


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield the differences between two records, such as 'torch 2.12 before, 2.13 now'.

    The earlier record may come from someone else: control characters in it are escaped.
    """
    old, new = dict(_flat(before)), dict(_flat(now))
    for name in {**old, **new}:
        if name != "when" and old.get(name) != new.get(name):
            yield printable(f"{name} {_as_text(old.get(name))} before, {_as_text(new.get(name))} now")


def _flat(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of all values in nested tables. Packages and properties of the machine have no prefix."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _flat(value, "" if name in ("packages", "machine") else f"{name} ")
        else:
            yield prefix + name, value


def _as_text(value: Any) -> str:
    return "missing" if value is None else str(value)


# --- packages and machine -----------------------------------------------------------------------------------


def packages() -> dict[str, str | None]:
    """Return the versions of offbeat and of its installed dependencies, extras included."""
    from importlib.metadata import PackageNotFoundError, requires  # slow to import

    try:
        requirements = requires("offbeat") or []
    except PackageNotFoundError:  # a source tree that is not installed
        requirements = ["torch", "numpy", "gymnasium"]
    used = (requirement for requirement in requirements if "dev" not in requirement.partition("extra ==")[2])
    names = {found[0].lower() for requirement in used if (found := _NAME.match(requirement))}
    versions = {name: package_version(name) for name in sorted(names)}
    return {"offbeat": package_version("offbeat"), **{name: found for name, found in versions.items() if found}}


@cache
def package_version(name: str) -> str | None:
    """Return the version of a package; None if it is not installed. A process reads each version once."""
    from importlib.metadata import PackageNotFoundError, version  # slow to import

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def machine() -> dict[str, Any]:
    """Return processor, cores, memory, operating system and GPUs, without calling a GPU driver."""
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
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
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
    """Return the names of NVIDIA GPUs, from files that the driver provides."""
    names = []
    with suppress(OSError):
        for file in sorted(_NVIDIA.glob("*/information")):
            lines = (line.partition(":") for line in file.read_text(encoding="utf-8", errors="replace").splitlines())
            names += [value.strip() for name, _, value in lines if name.strip() == "Model"]
    return names


# --- git ----------------------------------------------------------------------------------------------------


def git_state(folder: Path) -> dict[str, Any] | None:
    """Return the commit of a folder, and whether tracked files differ from it; None outside of a repository."""
    commit = _git(folder, 100, "rev-parse", "--verify", "HEAD")
    if not commit:
        return None
    if _has_filters(folder):
        return {"commit": commit.decode().strip(), "dirty": None}
    changes = _git(folder, 1, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules")
    return {"commit": commit.decode().strip(), "dirty": None if changes is None else bool(changes)}


def _has_filters(folder: Path) -> bool:
    """Whether settings of the repository, not of the user, may name programs that git would run on files.

    If git cannot say it, because it is older than 2.26 or takes too long, they may. It also fails if it finds no name:
    those that start with `core` are always there.
    """
    scopes = _git(folder, 1_000_000, "config", "--show-scope", "--name-only", "--get-regexp", "^(filter|core)[.]")
    return scopes is None or any(re.match(rb"(local|worktree)\s+filter", line) for line in scopes.splitlines())


def git_diff(folder: Path) -> bytes:
    """Return the diff of tracked files from the commit, at most `DIFF_BYTES` long; b'' if there is none."""
    if _has_filters(folder):
        return b""
    diff = _git(
        folder, DIFF_BYTES + 1, "diff", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules", "HEAD"
    )
    if diff is None or len(diff) <= DIFF_BYTES:
        return diff or b""
    whole_lines = diff[: diff.rindex(b"\n", 0, DIFF_BYTES) + 1] if b"\n" in diff[:DIFF_BYTES] else diff[:DIFF_BYTES]
    return whole_lines + f"\n[cut: offbeat keeps the first {DIFF_BYTES:,} bytes of a diff]\n".encode()


def _git(folder: Path, max_bytes: int, *arguments: str) -> bytes | None:
    """Return the first `max_bytes` bytes of git's output; None if git fails or takes too long."""
    try:
        process = subprocess.Popen(  # noqa: S603
            [*_GIT, "-C", str(folder), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
            env={**os.environ, **_NO_FETCH},
        )
    except OSError:
        return None
    assert process.stdout is not None
    with process.stdout as pipe:
        printed, ended = _read_until(pipe.fileno(), max_bytes, time.monotonic() + GIT_S)
    try:
        ended = ended and process.wait(GIT_S) == 0
    except subprocess.TimeoutExpired:
        ended = False
    if not ended:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its child processes too
        with suppress(subprocess.TimeoutExpired):  # it may wait for a file system that does not answer
            process.wait(GIT_S)
    return printed if ended or len(printed) >= max_bytes else None


def _read_until(pipe: int, max_bytes: int, deadline: float) -> tuple[bytes, bool]:
    """Return the first `max_bytes` bytes of a pipe, and whether it ended before this size and the deadline."""
    printed, poll = bytearray(), select.poll()
    poll.register(pipe, select.POLLIN)
    while len(printed) < max_bytes:
        if not poll.poll(max(0.0, 1000 * (deadline - time.monotonic()))):
            return bytes(printed), False
        part = os.read(pipe, min(65536, max_bytes - len(printed)))
        if not part:
            return bytes(printed), True
        printed += part
    return bytes(printed), False
