"""Install each package of envs in an environment of its own, and check, train and evaluate one of its envs.

    python -m benchmarks.worlds                    all packages
    python -m benchmarks.worlds minigrid vizdoom   some of them
    python -m benchmarks.worlds --only-page        the page from the results that are there

A new virtual environment shares the packages of the one that runs this, so torch is not installed again; the package
and what it requires are installed into it. What happens is added to benchmarks/results/packages.json, and the table
in docs/how-to/packages.md is written from it. A package that has a result keeps it if it cannot be installed now, as
without a network: delete the result first if the package is to blame.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from benchmarks.common import die_with_the_parent, write_json
from benchmarks.options import new_parser
from benchmarks.worlds.packages import PACKAGES, Package
from benchmarks.worlds.page import RECORD, TOO_SLOW, recorded, write_page

STEPS = 512
"""Env steps of a training. It shows that the env can be trained on, not that something is learned."""
CHECK_STEPS = 200
"""Env steps of each env of a check."""
SHORT = {"ppo": "unroll_length=64", "sac": "warmup=256"}
"""Algorithm -> the setting with which so short a training has updates."""
SECONDS = 300.0
"""Time limit of each command."""
CONSTRAINTS = "constraints.txt"
"""File with the version of torch that is shared, so that no package installs another one of some gigabytes."""
LINES = 12
"""Last lines of a command's output that are kept, besides the messages of offbeat."""
MAX_LINE = 600
"""Characters of a line that are kept."""


def main() -> None:
    """Try packages and write what happened."""
    parser = new_parser(__doc__)
    parser.add_argument("packages", nargs="*", help="names of packages; default: all")
    parser.add_argument("--only-page", action="store_true", help="try nothing")
    options = parser.parse_args()
    names = [package.name for package in PACKAGES]
    if unknown := set(options.packages) - set(names):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    chosen = [] if options.only_page else options.packages or names
    for package in PACKAGES:
        if package.name in chosen and not package.untried:
            print(f"{package.name} ...", flush=True)
            result = tried(package)
            print(f"{package.name}: {result['failed'] or 'works'}", flush=True)
            if result["failed"] == "install" and package.name in recorded():
                print(f"{package.name}: the result of {recorded()[package.name]['date']} is kept", flush=True)
                continue
            write_json(RECORD, {**recorded(), package.name: result})
    write_page(recorded())


def tried(package: Package) -> dict[str, Any]:
    """Try a package. Return its version, the date, what failed ('' if nothing), and the last lines of each command."""
    folder = Path(tempfile.mkdtemp(prefix="offbeat-worlds-"))
    try:
        return _tried_in(folder, package)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _tried_in(folder: Path, package: Package) -> dict[str, Any]:
    python = shared_environment(folder / "environment")
    (folder / CONSTRAINTS).write_text(f"torch=={version('torch').partition('+')[0]}\n")
    result: dict[str, Any] = {"date": datetime.now(UTC).date().isoformat(), "failed": "", "said": {}}
    if package.wrapper:
        (folder / f"{package.env.partition(':')[0]}.py").write_text(package.wrapper.lstrip())
    for name, command in commands(python, package).items():
        began = time.monotonic()
        code, said = _run(command, folder, package.variables)
        result["said"][name] = {"code": code, "seconds": round(time.monotonic() - began, 1), "lines": said}
        if name in ("install", "afterwards"):
            result["versions"] = versions(python, package)
        if code:
            result["failed"] = name
            if name != "check":  # an env that check finds fault with may be trained all the same
                break
    return result


def shared_environment(folder: Path) -> Path:
    """Make a virtual environment that shares the packages of this one, except MuJoCo; return its Python.

    A package installs its own MuJoCo. Two versions would be mixed: MuJoCo searches all of `sys.path` for its parts.
    """
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    inside = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    shared = folder / "shared"
    shared.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith("mujoco"):
            (shared / entry.name).symlink_to(entry)
    (inside / "shared.pth").write_text(f"{shared}\n")
    return python


def commands(python: Path, package: Package) -> dict[str, list[str]]:
    """Return the commands that try a package, by name."""
    offbeat = [str(python), "-m", "offbeat"]
    settings = ["--set", SHORT[package.algorithm], *package.settings]
    of_env = [each for each in package.settings if each.partition("=")[0] not in ("core", "core_size", "encoder")]
    env_settings = ["--set", *of_env] if of_env else []
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", "torch"]
    training = [
        "--steps",
        str(STEPS),
        "--envs-per-actor",
        "4",
        "--eval-every",
        "0",
        "--progress",
        "lines",
        "--run-dir",
        "run",
    ]
    return {
        "install": [*pip, "--constraint", CONSTRAINTS, package.name, *package.extra],
        **({"afterwards": [*pip, *package.afterwards]} if package.afterwards else {}),
        "check": [*offbeat, "check", package.env, "--steps", str(CHECK_STEPS), *env_settings],
        "train": [*offbeat, "train", package.algorithm, package.env, *training, *settings],
        "eval": [*offbeat, "eval", "run", "--episodes", "2", "--max-episode-steps", "500", "--trust-code"],
    }


def versions(python: Path, package: Package) -> dict[str, str]:
    """Return the versions of the package and of the libraries that it may have replaced."""
    names = [package.name, "gymnasium", "numpy", "mujoco"]
    program = (
        "import json, sys\nfrom importlib.metadata import PackageNotFoundError, version\n"
        "found = {}\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n        found[name] = version(name)\n    except PackageNotFoundError:\n        pass\n"
        "print(json.dumps(found))"
    )
    done = subprocess.run([python, "-c", program, *names], check=False, capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else {}


def _run(command: list[str], folder: Path, variables: Sequence[str]) -> tuple[int, list[str]]:
    """Run a command in a folder. Return its exit code (TOO_SLOW: it was ended), and the last lines that it printed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "SDL_VIDEODRIVER": "dummy"}
    environment |= dict(each.split("=", 1) for each in variables)
    environment |= {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    with (folder / "output.txt").open("w+", errors="replace") as said:
        started = subprocess.Popen(
            command, cwd=folder, stdout=said, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment,
            start_new_session=True, preexec_fn=die_with_the_parent,  # noqa: PLW1509
        )  # fmt: skip
        code = _ended(started)
        return code, _last(_read(said), folder)


def _ended(started: subprocess.Popen[bytes]) -> int:
    """Wait for a command; end it and all that it started when it is too slow. Return its exit code, or TOO_SLOW."""
    try:
        return started.wait(SECONDS)
    except subprocess.TimeoutExpired:
        return TOO_SLOW
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def _read(said: IO[str]) -> str:
    said.seek(0)
    return said.read()


def _last(said: str, folder: Path) -> list[str]:
    """Return the last lines of an output, without the names of folders of this machine."""
    for own, shown in (
        (str(folder), "."),
        (sysconfig.get_path("purelib"), "site-packages"),
        (str(Path.cwd()), "offbeat"),
    ):
        said = said.replace(own, shown)
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith("WARNING: Location")]
    messages = [line for line in lines[:-LINES] if line.startswith("offbeat: ")]  # a long traceback may follow
    return [line[:MAX_LINE] for line in (*messages, *lines[-LINES:])]


if __name__ == "__main__":
    main()
