"""Whether a module belongs to an installed package, of which no file in another folder can take the place."""

from __future__ import annotations

import json
import re
import site
import sysconfig
from collections.abc import Iterator
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import Distribution


@cache
def is_installed(module: str) -> bool:
    """Whether a module belongs to an installed package. Nothing is imported for this check.

    Modules of the standard library do not count, nor does `__main__`: its import may run a program.
    """
    names = module.split(".")
    if not all(name.isidentifier() for name in names) or "__main__" in names:
        return False
    if names[0] == "offbeat":
        return True
    file = _file_of(names)
    return file is not None and (_is_in_site_packages(file) or _is_editable(names[0], file))


def _file_of(names: list[str]) -> Path | None:
    """Return the file that a module would be loaded from; None if there is none, as in a namespace package."""
    try:
        spec: ModuleSpec | None = find_spec(names[0])
    except (ValueError, ImportError):
        return None
    for depth in range(2, len(names) + 1):
        if spec is None or not spec.has_location:
            return None
        spec = PathFinder.find_spec(".".join(names[:depth]), list(spec.submodule_search_locations or []))
    return Path(spec.origin).resolve() if spec is not None and spec.has_location and spec.origin else None


def _site_packages() -> list[str]:
    paths = sysconfig.get_paths()
    every = [*site.getsitepackages(), site.getusersitepackages(), paths["purelib"], paths["platlib"]]
    return list(dict.fromkeys(every))  # mostly the same folder, which is slow to search


def _is_in_site_packages(file: Path) -> bool:
    return any(file.is_relative_to(Path(folder).resolve()) for folder in _site_packages())


def _is_editable(package: str, file: Path) -> bool:
    """Whether a file belongs to a package of an editable installation."""
    from importlib.metadata import distributions  # slow to import, and seldom needed

    return any(
        file.is_relative_to(folder)
        for distribution in distributions(path=_site_packages())  # not those of the current folder
        for folder in _editable_folders(distribution)
        if package in _packages(distribution)
    )


def _packages(distribution: Distribution) -> set[str]:
    """Return the top-level packages of a distribution, and its own name in the form of a package name."""
    listed = (distribution.read_text("top_level.txt") or "").split()
    return {*listed, re.sub(r"[-.]+", "_", distribution.metadata["Name"] or "").lower()}


def _editable_folders(distribution: Distribution) -> Iterator[Path]:
    """Yield the source folder of a distribution that is installed in editable mode."""
    from urllib.parse import urlparse
    from urllib.request import url2pathname  # slow to import, and seldom needed

    try:
        record = json.loads(distribution.read_text("direct_url.json") or "{}")
        if record.get("dir_info", {}).get("editable"):
            yield Path(url2pathname(urlparse(record["url"]).path)).resolve()
    except (ValueError, KeyError, AttributeError):
        return
