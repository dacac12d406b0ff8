"""The table of docs/how-to/packages.md, from the packages and from what happened when they were tried.

`benchmarks.worlds` writes it, and with `--only-page` writes it again from benchmarks/results/packages.json.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS, write_section
from benchmarks.worlds.packages import PACKAGES, Package

RECORD = RESULTS / "packages.json"
PAGE = Path(__file__).parents[2] / "docs/how-to/packages.md"
START, END = "<!-- packages: written by benchmarks/worlds -->\n", "<!-- end of packages -->\n"
TOO_SLOW = 124
"""Exit code of a command that was ended at its time limit."""
HEAD = ("| package | what to type | tried | good to know |", "| --- | --- | --- | --- |")


def recorded() -> dict[str, Any]:
    """Return the results so far, by the name of the package."""
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def write_page(results: Mapping[str, Any]) -> None:
    """Replace the table and the modules of the page."""
    write_section(PAGE, START, END, content(results))


def content(results: Mapping[str, Any]) -> str:
    """Return the table, and the modules of one's own that make some of the envs."""
    rows = (_row(package, results.get(package.name)) for package in PACKAGES)
    modules = "\n".join(_shown(package) for package in PACKAGES if package.wrapper)
    head = "The modules that the table names, each in a file of the folder in which you type the command:\n\n"
    return "\n".join([*HEAD, *rows, "", head + modules])


def _shown(package: Package) -> str:
    """Return the module of a package's env, which the tests of the pages cannot run."""
    note = f"<!-- only checked: needs {package.name} -->"
    return f"`{_module(package)}.py`:\n\n{note}\n```python\n{package.wrapper.strip()}\n```\n"


def _module(package: Package) -> str:
    return package.env.partition(":")[0]


def _row(package: Package, result: Mapping[str, Any] | None) -> str:
    settings = f" --set {shlex.join(package.settings)}" if package.settings else ""
    names = " ".join(f'"{name}"' if "<" in name or "[" in name else name for name in (package.name, *package.extra))
    later = f', then `"{" ".join(package.afterwards)}"`' if package.afterwards else ""
    installed = f"`{names}`{later}"
    variables = "".join(f"{each} " for each in package.variables)
    typed = f"`{variables}offbeat train {package.algorithm} {package.env}{settings}`"
    return f"| {installed} | {typed} | {_tried(package, result)} | {_note(package, result)} |"


def _tried(package: Package, result: Mapping[str, Any] | None) -> str:
    """Return the version and the date of the last try, and what it showed."""
    if package.untried:
        return f"no: {package.untried}"
    if result is None:
        return "not yet"
    version = result.get("versions", {}).get(package.name, "")
    outcome = _outcome(result)
    return ", ".join(filter(None, [outcome, version, result["date"]]))


def _outcome(result: Mapping[str, Any]) -> str:
    failed = result["failed"]
    if not failed:
        return "works"
    said = result["said"][failed]
    if said["code"] == TOO_SLOW:
        began = "trains; " * (failed == "check")
        return f"{began}`{failed}` did not end within {said['seconds']:.0f} s here"
    return "trains; `check` reports an error" if failed == "check" else f"{failed} fails"


def _note(package: Package, result: Mapping[str, Any] | None) -> str:
    notes = [package.note, *_replaced((result or {}).get("versions", {}))]
    if result is not None and result["failed"] not in ("", "check") and not package.note:
        notes.append(_last_line(result["said"][result["failed"]]["lines"]))
    return "; ".join(filter(None, notes))


def _replaced(versions: Mapping[str, str]) -> Iterable[str]:
    """Yield what the package has installed in place of a newer version."""
    for name, newest in (("gymnasium", "1."), ("numpy", "2.")):
        if name in versions and not versions[name].startswith(newest):
            yield f"installs {name} {versions[name]}"


def _last_line(lines: Iterable[str]) -> str:
    """Return the message of offbeat, or the last line of an output, as the cell of a table, not too long."""
    found = list(lines)
    last = [line for line in found if line.startswith("offbeat: ")][-1:] or found[-1:] or [""]
    text = last[0].strip().removeprefix("offbeat: ").replace("|", "/").replace("`", "'")
    return f"`{text[:160]}`" if text else ""
