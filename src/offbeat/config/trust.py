"""Which code a run directory, a policy or a spec file may name: a stranger's copy must not run any that is his choice.

Accepted is what the caller has named (in Python, on the command line, by `--import`) or what is installed as a package,
and of that only what can be nothing else: an env's class, an algorithm's, an encoder's that the caller has named. The
rest is refused, before anything is imported, unless the caller says `trust_code`.
"""

from __future__ import annotations

import json
import re
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, reduce
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import url2pathname

from offbeat.config.env import adapter_prefix
from offbeat.config.registry import accept, import_found, is_accepted
from offbeat.core.errors import ConfigError

HOW = "pass --trust-code (in Python trust_code=True)"
FLAG = "--trust-code"


@dataclass(frozen=True)
class Code:
    """What a file names that would be imported, or called."""

    imports: tuple[str, ...] = ()
    """Modules."""
    env: str = ""
    """An env's id, or its place, 'module:MyEnv'; the same for the next two."""
    algorithm: str = ""
    encoder: str = ""

    @property
    def places(self) -> dict[str, str]:
        """What is named by its place, by what it is to be."""
        named = {"env": self.env, "algorithm": self.algorithm, "encoder": self.encoder}
        return {kind: place for kind, place in named.items() if ":" in place and not adapter_prefix(place)}

    def __str__(self) -> str:
        modules = [f"import {module}" for module in self.imports]
        return ", ".join([*modules, *(f"import and call {place} as its {kind}" for kind, place in self.places.items())])

    def without_accepted(self) -> Code:
        """Return what of it the caller has not named."""
        places = {kind: "" for kind, place in self.places.items() if is_accepted(place)}
        return replace(self, imports=tuple(each for each in self.imports if not is_accepted(each)), **places)


def code_of(tables: Mapping[str, Any]) -> Code:
    """Return the code that the tables of a config.toml name."""
    run = _table(tables, "run")
    algorithm = _text(run, "algorithm")
    encoder = _text(_table(tables, algorithm), "encoder")
    return Code(modules_in(run.get("imports")), _text(run, "env"), algorithm, encoder)


def modules_in(value: object) -> tuple[str, ...]:
    """Return the modules that a value of `imports` names, as it is read: a list, or text with commas between."""
    return tuple(texts(value.split(",") if isinstance(value, str) else value))


def texts(value: object) -> Iterator[str]:
    """Yield what is text of a value of a TOML file: the value itself, or its items."""
    parts = value if isinstance(value, list | tuple) else (value,)
    return (part for part in parts if isinstance(part, str) and part)


def _table(tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = tables.get(name)
    return table if isinstance(table, Mapping) else {}


def _text(table: Mapping[str, Any], key: str) -> str:
    value = table.get(key)
    return value if isinstance(value, str) else ""


# --- what is decided ----------------------------------------------------------------------------------------


def require(code: Code, where: str, *, trust_code: bool = False) -> None:
    """Refuse code that the caller has not named and that is not installed; import what is installed and was named.

    Args:
        code: what is named.
        where: it is named.
        trust_code: accept all of it, and say on stderr what it is.

    Raises:
        ConfigError: with what was refused, and how to allow it; nothing of it was imported.
    """
    code = code.without_accepted()
    if trust_code:
        _trust(code, where)
        return
    if foreign := _foreign(code, modules_accepted=True):
        raise _refused(foreign, where)
    for module in code.imports:
        import_found(module)
    for kind, place in code.places.items():
        _require_class(kind, place, where)
    accept(*code.imports, *code.places.values())


def flag_for(code: Code) -> str:
    """Return ' --trust-code' where another process, which was given nothing, would ask for it; else ''."""
    functions = (place for kind, place in code.places.items() if kind == "env" and not _is_class(kind, place))
    return f" {FLAG}" if _foreign(code, modules_accepted=False) or any(functions) else ""


def _trust(code: Code, where: str) -> None:
    """Accept all code; say before what it is."""
    if str(code):
        sys.stderr.write(f"offbeat: trusting {where}, which will {code}\n")
    accept(*code.imports, *code.places.values())


def _foreign(code: Code, *, modules_accepted: bool) -> list[str]:
    """Return what of the code is neither installed nor, if that counts, in a module that the caller has named."""

    def is_open(module: str, *, installed: bool = True) -> bool:
        return (modules_accepted and is_accepted(module)) or (installed and is_installed(module))

    foreign = [f"import {module}" for module in code.imports if not is_open(module)]
    for kind, place in code.places.items():
        module = module_of(kind, place)
        if not is_open(module, installed=kind != "encoder"):
            foreign.append(f"import {module}, and call {place} as its {kind}")
    return foreign


def module_of(kind: str, place: str) -> str:
    """Return the module of a place; an env's id may have colons of its own before the last."""
    return place.rpartition(":")[0] if kind == "env" else place.partition(":")[0]


def _refused(foreign: list[str], where: str) -> ConfigError:
    encoder = " For an encoder, offbeat.load takes encoder=MyEncoder." if "encoder" in "".join(foreign) else ""
    return ConfigError(
        f"{where} would {'; '.join(foreign)}: code that is not installed as a package here, and that you have not "
        f"named. Nothing was imported. If the run is your own, or you have read that code, {HOW}, or name the modules "
        f"yourself with --import.{encoder} SECURITY.md says more"
    )


# --- what may be called -------------------------------------------------------------------------------------

_BASES = {"env": ("gymnasium", "Env", "envs"), "encoder": ("torch.nn", "Module", "torch modules")}


def _require_class(kind: str, place: str, where: str) -> None:
    """Refuse a place in an accepted module where there is no class of what is to be there: a call could do anything."""
    if kind != "algorithm" and not _is_class(kind, place):
        raise ConfigError(
            f"{where} would call {place} as its {kind}, which is not a class of {_BASES[kind][2]}. It was not called. "
            f"If the run is your own, or you have read that code, {HOW}. SECURITY.md says more"
        )


def _is_class(kind: str, place: str) -> bool:
    """Whether there is, at a place in a module that may be imported, such a class, or an env of that id."""
    module = module_of(kind, place)
    name = place[len(module) + 1 :]
    import_found(module)
    library, base, _ = _BASES[kind]
    import_found(library)
    if kind == "env" and name in sys.modules["gymnasium"].registry:
        return True
    try:
        found: Any = reduce(getattr, name.split("."), sys.modules[module])
    except AttributeError:
        return True  # nothing can be called: whoever looks for it says so
    return isinstance(found, type) and issubclass(found, getattr(sys.modules[library], base))


# --- what is installed --------------------------------------------------------------------------------------


@cache
def is_installed(module: str) -> bool:
    """Whether a module belongs to a package that is installed here; nothing is imported to find out.

    Python's own modules do not count, nor do programs, `__main__`: importing one may run it.
    """
    names = module.split(".")
    if not all(name.isidentifier() for name in names) or "__main__" in names:
        return False
    if names[0] == "offbeat":
        return True
    file = _file_of(names)
    return file is not None and (_is_in_site_packages(file) or _is_editable(names[0], file))


def _file_of(names: list[str]) -> Path | None:
    """Return the file that a module would be loaded from; None where there is none, or a folder without __init__.py."""
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
    return [*site.getsitepackages(), site.getusersitepackages(), paths["purelib"], paths["platlib"]]


def _is_in_site_packages(file: Path) -> bool:
    return any(file.is_relative_to(Path(folder).resolve()) for folder in _site_packages())


def _is_editable(package: str, file: Path) -> bool:
    """Whether a file is in the folder of a distribution that was installed from there to be edited, under its name."""
    return any(
        file.is_relative_to(folder)
        for distribution in distributions(path=_site_packages())  # not of the current folder
        if package in _packages(distribution)
        for folder in _edited_folders(distribution)
    )


def _packages(distribution: Distribution) -> set[str]:
    """Return the packages that a distribution says to bring, and its own name as a package is written."""
    listed = (distribution.read_text("top_level.txt") or "").split()
    return {*listed, re.sub(r"[-.]+", "_", distribution.metadata["Name"] or "").lower()}


def _edited_folders(distribution: Distribution) -> Iterator[Path]:
    try:
        record = json.loads(distribution.read_text("direct_url.json") or "{}")
        if record.get("dir_info", {}).get("editable"):
            yield Path(url2pathname(urlparse(record["url"]).path)).resolve()
    except (ValueError, KeyError, AttributeError):
        return
