"""Checks the code that a run directory, a policy or a spec file names: a file from another user must not run its code.

Accepted is code that the caller has named (in Python, on the command line, by `--import`), and code of installed
packages: modules, env classes and algorithm classes. An encoder must be named by the caller. All other code is refused
before anything is imported, unless the caller passes `trust_code`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import reduce
from itertools import chain
from typing import Any

from offbeat.config.env import EnvConfig, adapter_prefix
from offbeat.config.importing import accept, import_flags, import_found, is_accepted
from offbeat.config.installed import is_installed
from offbeat.config.runtimes import RUNTIMES
from offbeat.core.argument_notation import for_reader, printable
from offbeat.core.errors import ConfigError
from offbeat.core.field_definitions import hints_of
from offbeat.core.fields import read
from offbeat.core.frozen_table import EMPTY

TRUST_FLAG = "--trust-code"
"""Accepts all code."""


@dataclass(frozen=True)
class Code:
    """The code that a file names: loading the run would import and call it."""

    imports: tuple[str, ...] = ()
    """Modules."""
    envs: tuple[str, ...] = ()
    """Ids of envs, or their paths, 'module:MyEnv'; likewise `algorithms` and `encoders`."""
    algorithms: tuple[str, ...] = ()
    encoders: tuple[str, ...] = ()
    """Of the algorithm's table, and of the policies."""
    wrappers: tuple[str, ...] = ()
    """Paths of the env's wrappers."""
    clusters: tuple[str, ...] = ()
    """What a run would do on a Ray cluster: a cluster can run any code here, and a runtime environment on its nodes."""

    @property
    def paths(self) -> list[tuple[str, str]]:
        """Kind ("env", "algorithm", "encoder", "wrapper") and path. Registered names are no paths, and left out."""
        kinds = {"env": self.envs, "algorithm": self.algorithms, "encoder": self.encoders, "wrapper": self.wrappers}
        named = [(kind, path) for kind, paths in kinds.items() for path in paths]
        return [(kind, path) for kind, path in named if ":" in path and not (kind == "env" and adapter_prefix(path))]

    def __str__(self) -> str:
        modules = [f"import {module}" for module in self.imports]
        calls = (f"import and call {path} as its {kind}" for kind, path in self.paths)
        return ", ".join([*modules, *calls, *self.clusters])

    def without_accepted(self) -> Code:
        """Return the part that the caller has not accepted."""
        return Code(*(tuple(each for each in part if not is_accepted(each)) for part in self.parts()))

    def to_play(self) -> Code:
        """Return the part that episodes with saved policies would use."""
        return replace(self, algorithms=(), clusters=())

    def parts(self) -> Iterator[tuple[str, ...]]:
        """Yield the values of all fields."""
        return (getattr(self, part.name) for part in fields(self))

    @classmethod
    def joined(cls, codes: Iterable[Code]) -> Code:
        """Return the code of several places of a file, each part once."""
        parts = zip(*(code.parts() for code in codes), strict=True)
        return cls(*(tuple(dict.fromkeys(chain.from_iterable(part))) for part in parts))


def code_of(tables: Mapping[str, Any]) -> Code:
    """Return the code that the tables of a config.toml name."""
    run = _table(tables, "run")
    algorithm = _text(run, "algorithm")
    encoders = (_text(_table(tables, algorithm), "encoder"), *policies_code(tables.get("policies")).encoders)
    wrappers = wrappers_in(_table(tables, "env").get("wrappers"))
    return Code(modules_in(run.get("imports")), (_text(run, "env"),), (algorithm,), encoders, wrappers)


def code_to_run(tables: Mapping[str, Any], changes: Mapping[str, object] = EMPTY) -> Code:
    """Return the code that a run would use, its Ray cluster included.

    Args:
        tables: the tables of its config.toml.
        changes: settings that the caller has changed, by key.
    """
    settings = {**_table(tables, "runtime"), **changes}
    runtime = RUNTIMES.get(_text(settings, "runtime"))
    on_a_cluster = runtime is None or "ray_address" in runtime.supports  # None: of a module that is not imported yet
    return replace(code_of(tables), clusters=clusters_of(settings) if on_a_cluster else ())


def clusters_of(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what runs with these settings would do on Ray clusters that are not the user's own.

    A setting may have a list of values, as in a search.
    """
    addresses, prepared = texts(settings.get("ray_address")), texts(settings.get("ray_runtime_env"))
    return (
        *(f"connect to the Ray cluster {address}" for address in addresses if address not in ("none", "auto")),
        *(f"prepare the nodes of a Ray cluster with {env}" for env in prepared if env != "none"),
    )


def modules_of(code: Code) -> list[str]:
    """Return the modules of the paths in some code, each once."""
    return list(dict.fromkeys(module_of(kind, path) for kind, path in code.paths))


def policies_code(tables: object) -> Code:
    """Return the code that the tables [policies.NAME] name."""
    policies = tables.values() if isinstance(tables, Mapping) else ()
    settings = (_table(policy, "settings") for policy in policies if isinstance(policy, Mapping))
    return Code(encoders=tuple(encoder for own in settings for encoder in texts(own.get("encoder"))))


def wrappers_in(value: object) -> tuple[str, ...]:
    """Return the wrappers of a value of `wrappers`; none of an invalid value, which is refused when it is read."""
    with suppress(ConfigError):
        wrappers: tuple[str, ...] = read("wrappers", () if value is None else value, hints_of(EnvConfig)["wrappers"])
        return wrappers
    return ()


def modules_in(value: object) -> tuple[str, ...]:
    """Return the modules of a value of `imports`: a list, or a string with commas."""
    return tuple(texts(value.split(",") if isinstance(value, str) else value))


def texts(value: object) -> Iterator[str]:
    """Yield the strings of a value of a TOML file: the value itself, or its items."""
    parts = value if isinstance(value, list | tuple) else (value,)
    return (part for part in parts if isinstance(part, str) and part)


def _table(tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = tables.get(name)
    return table if isinstance(table, Mapping) else {}


def _text(table: Mapping[str, Any], key: str) -> str:
    value = table.get(key)
    return value if isinstance(value, str) else ""


# --- decisions ----------------------------------------------------------------------------------------------


OTHER_CLUSTER = "pass your own ray_address and ray_runtime_env, or none, with --set"
"""What to do about a cluster that a run directory names."""


def require(code: Code, where: str, *, trust_code: bool = False, other_cluster: str = OTHER_CLUSTER) -> None:
    """Refuse code that is neither named by the caller nor installed. Import the accepted modules.

    Args:
        code: the code that is named.
        where: the file or run that names it.
        trust_code: accept all code, and list it on stderr.
        other_cluster: how to choose another cluster, for the message.

    Raises:
        ConfigError: with the refused code and the flag that allows it. Nothing of it was imported.
    """
    code = code.without_accepted()
    if trust_code:
        _trust(code, where)
        return
    if refused := _not_accepted(code):
        raise _refusal(code, refused, where, other_cluster)
    for module in code.imports:
        import_found(module)
    for kind, path in code.paths:
        _require_class(kind, path, where)
    accept(*code.imports, *(path for _, path in code.paths), *code.clusters)


def flags_for(code: Code) -> list[str]:
    """Return the flags with which a new process, in which the caller has named nothing, accepts code of the caller.

    --import with each module where that is enough, else --trust-code; none where all is installed.
    """
    if code.clusters or not all(kind == "algorithm" or _is_class(kind, path) for kind, path in code.paths):
        return [TRUST_FLAG]
    return import_flags(modules_to_name(code))


def modules_to_name(code: Code) -> list[str]:
    """Return the modules that a new process must be given with --import, so that it accepts the classes in them."""
    named = [(module, True) for module in code.imports]
    named += [(module_of(kind, path), kind != "encoder") for kind, path in code.paths]
    return list(dict.fromkeys(module for module, installed in named if not (installed and is_installed(module))))


def _trust(code: Code, where: str) -> None:
    """Write a message to stderr that lists all code, and accept the code."""
    if str(code):
        sys.stderr.write(f"offbeat: trusting {where}, which will {printable(str(code))}\n")
    accept(*code.imports, *(path for _, path in code.paths), *code.clusters)


def _not_accepted(code: Code) -> list[str]:
    """Return the code that is neither installed nor in a module that the caller has named, each module once."""
    refused = [module for module in code.imports if not (is_accepted(module) or is_installed(module))]
    calls: dict[str, list[str]] = {module: [] for module in refused}
    for kind, path in code.paths:
        module = module_of(kind, path)
        if not (is_accepted(module) or (kind != "encoder" and is_installed(module))):
            calls.setdefault(module, []).append(f"{path} as its {kind}")
    modules = (f"import {module}" + f", and call {' and '.join(of)}" * bool(of) for module, of in calls.items())
    return [*modules, *code.clusters]


def module_of(kind: str, path: str) -> str:
    """Return the module of a path. The path of an env may contain more colons; the last one counts."""
    return path.rpartition(":")[0] if kind == "env" else path.partition(":")[0]


def _refusal(code: Code, refused: list[str], where: str, other_cluster: str) -> ConfigError:
    has_encoder = any(kind == "encoder" for kind, _ in code.paths)
    encoder = "" if not has_encoder else for_reader("", " For an encoder, offbeat.load takes encoder=MyEncoder.")
    cluster = f" Or {other_cluster}." if code.clusters else ""
    if refused == list(code.clusters):
        return ConfigError(
            f"{where} would {printable('; '.join(refused))}. A cluster can run any code here, so no file may choose "
            f"it. If the run and the cluster are your own, pass {TRUST_FLAG}.{cluster}"
        )
    return ConfigError(
        f"{where} would {printable('; '.join(refused))}: code that is neither part of an installed package nor "
        f"named by you. Nothing was imported. If the code is your own, or you have read it, {_imports_of(code)}pass "
        f"{TRUST_FLAG}.{encoder}{cluster}"
    )


def _imports_of(code: Code) -> str:
    """Return the start of a remedy: how to trust only the modules that code names; '' if that is not enough.

    The names may come from someone else, and are only shown as a command if a shell reads each as one plain word.
    """
    modules = modules_to_name(code)
    if code.clusters or not all(part.isidentifier() for module in modules for part in module.split(".")):
        return ""
    flags = " ".join(f"--import {module}" for module in modules)
    these = "this module" if len(modules) == 1 else "these modules"
    return for_reader(f"pass {flags}, which trusts only {these}, or ", "")


# --- callable code ------------------------------------------------------------------------------------------

_BASES = {
    "env": ("gymnasium", "Env", "envs"),
    "encoder": ("torch.nn", "Module", "torch modules"),
    "wrapper": ("gymnasium", "Wrapper", "wrappers"),
}
"""Kind -> module and name of the required base class, and the plural for messages."""


def _require_class(kind: str, path: str, where: str) -> None:
    """Refuse a path in an accepted module that is not a class of the right kind: a call of it could do anything."""
    if kind != "algorithm" and not _is_class(kind, path):
        raise ConfigError(
            f"{where} would call {path} as its {kind}, which is not a class of {_BASES[kind][2]}. It was not called. "
            f"If the code is your own, or you have read it, pass {TRUST_FLAG}"
        )


def _is_class(kind: str, path: str) -> bool:
    """Whether a path in an accepted module is a class of the right kind, or a registered env id."""
    module = module_of(kind, path)
    name = path[len(module) + 1 :]
    import_found(module)
    library, base, _ = _BASES[kind]
    import_found(library)
    if kind == "env" and name in sys.modules["gymnasium"].registry:
        return True
    try:
        found: Any = reduce(getattr, name.split("."), sys.modules[module])
    except AttributeError:
        return True  # nothing can be called; the error is raised when it is looked up
    if not isinstance(found, type):
        return False
    return issubclass(found, getattr(sys.modules[library], base)) or (kind == "env" and _is_world(found))


def _is_world(found: type) -> bool:
    """Whether a class has the methods of an env with several agents, in one of PettingZoo's APIs."""
    methods = ("reset", "step", "observation_space", "action_space")
    return all(callable(getattr(found, name, None)) for name in methods)
