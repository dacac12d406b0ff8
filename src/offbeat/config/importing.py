"""Imports the code that a caller names: modules, and objects at a path, 'my_module:MyClass'.

It also remembers what the caller has named or accepted, because files may name only this code (`trust.py`).
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import reduce
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from offbeat.config.installed import is_installed
from offbeat.core.errors import FAILURES, ConfigError, suggestion, with_traceback_of, without_full_stop
from offbeat.core.process.stop_signals import replaceable_handlers
from offbeat.core.process.threads import forbid_spinning

_ACCEPTED: set[str] = set()
"""Modules, and paths 'module:Name', that the caller has named or accepted."""


def accept(*names: str) -> None:
    """Add modules and paths to those that the caller has named or accepted."""
    _ACCEPTED.update(names)


def accepted_modules() -> list[str]:
    """Return the modules that the caller has named or accepted, without offbeat's."""
    return sorted(name for name in _ACCEPTED if name in sys.modules and name.partition(".")[0] != "offbeat")


def is_accepted(name: str) -> bool:
    """Whether the caller has named or accepted this module or path."""
    return name in _ACCEPTED


# --- modules ------------------------------------------------------------------------------------------------


def import_modules(names: tuple[str, ...]) -> None:
    """Import modules, which may register algorithms. For those of no installed package, the current folder is searched.

    For installed ones it is not: in the folder of a stranger's run, its files could take their place.

    Raises:
        ConfigError: one cannot be imported.
    """
    folder, own = str(Path.cwd()), [name for name in names if name not in sys.modules and not is_installed(name)]
    for name in names:
        if name not in own:
            import_found(name)
    if own and folder not in sys.path:
        sys.path.insert(0, folder)
    for name in own:
        import_found(name)
    accept(*names)


def import_flags(modules: Iterable[str]) -> list[str]:
    """Return `--import` for each of the modules, once."""
    return [word for module in dict.fromkeys(modules) for word in ("--import", module)]


def import_found(name: str) -> None:
    """Import a module from `sys.path`.

    Raises:
        ConfigError: it cannot be imported.
    """
    _refuse_file(name)
    forbid_spinning()  # the module may load torch
    try:
        import_module(name)
    except FAILURES as error:
        what = ": ".join(filter(None, (type(error).__name__, without_full_stop(error))))
        refused = ConfigError(f"the module {name} cannot be imported ({what}): {_remedy_for_import(name, error)}")
        raise with_traceback_of(refused, error) from error


def _refuse_file(name: str) -> None:
    """Refuse the path of a file in place of the name of a module.

    Raises:
        ConfigError: with the name to pass.
    """
    if not (name.endswith(".py") or "/" in name or name.startswith(".")):
        return
    module, where = module_of_file(name)
    raise ConfigError(
        f"{name} is the path of a file, but the name of a module is expected: pass {module} in its place{where}"
    )


def module_of_file(name: str) -> tuple[str, str]:
    """Return the name of the module in a file, and where it is found: '' for the current folder, else a clause."""
    path = Path(name)
    where = "" if path.parent in (Path(), Path.cwd()) else f", in the folder {path.parent} or with it on PYTHONPATH"
    return path.stem or "my_module", where


def _remedy_for_import(name: str, error: BaseException) -> str:
    """Return what to do about an error at the import of a module."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing is not None and f"{name}.".startswith(f"{missing}."):
        return (
            "check the name; install its package with pip, or see that its folder is on PYTHONPATH or is the current "
            "folder"
        )
    if missing is not None:
        return f"it was found, but it needs {missing}, which is not installed"
    return "it was found, but raised this when it was imported, as the traceback shows"


@contextmanager
def defer_signals() -> Iterator[None]:
    """Defer stop signals to the end of the block.

    An exception during torch's import would abort the process, and one during matplotlib's would become another one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    handlers = replaceable_handlers()
    for number in handlers:
        signal.signal(number, lambda number, _frame: received.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for deferred in dict.fromkeys(received):  # each once: a handler may ignore one of them
            signal.raise_signal(deferred)


# --- paths --------------------------------------------------------------------------------------------------


def import_path(path: str) -> Any:
    """Return the object at a path, 'module:Name'.

    Raises:
        ConfigError: the module cannot be imported, or has no object of that name.
    """
    module, _, name = path.partition(":")
    accept(path)
    if module.partition(".")[0] != "offbeat":
        import_modules((module,))
    imported = import_module(module)
    try:
        return reduce(getattr, name.split("."), imported)
    except AttributeError:
        where = "the main program" if module == "__main__" else module
        meant = f"{suggestion(name, names_of_code(module))} {_remedy_for_name(module, imported)}"
        raise ConfigError(f"{path} does not exist: {where} has no {name}.{meant}") from None


def is_code_of(code: Any, module: str) -> bool:
    """Whether a class, a function, or the path of one, is in a module or its submodules."""
    name = code if isinstance(code, str) else getattr(code, "__module__", None) or ""
    return f"{name.partition(':')[0]}.".startswith(f"{module}.")


def names_of_code(module: str) -> list[str]:
    """Return the names of the classes and functions of an imported module, without those from other modules."""
    return [name for name, value in vars(sys.modules[module]).items() if callable(value) and is_code_of(value, module)]


IN_ANOTHER_PROGRAM = "If it was trained by another program, define it at the top level of this one, too"
"""What to do about code of a main program that is not in this one."""


def _remedy_for_name(module: str, imported: ModuleType) -> str:
    """Return what to do about a name that a module does not have."""
    if module == "__main__":
        return IN_ANOTHER_PROGRAM
    return f"Check the name: it must be at the top level of {getattr(imported, '__file__', None) or 'the module'}"


def path_of(code: object, remedy: str) -> str:
    """Return the path of a class or a function, 'module:Name', by which other processes can import it.

    Args:
        code: the class or function.
        remedy: the code to write instead if `code` has no such path; '' if there is none.

    Raises:
        ConfigError: `code` cannot be imported by its name.
    """
    path = path_text(code)
    try:
        found = import_path(path)
    except ConfigError:
        found = None
    if found is not code and not (callable(code) and (path := _path_in_modules(code))):
        raise ConfigError(
            f"{code!r} cannot be imported by its name, as it is not a class or function at the top level of a module. "
            "A run keeps only the name, by which actors, `offbeat resume` and `offbeat eval` find it again: define it "
            f"at the top level of a module{remedy and ', or write '}{remedy}"
        )
    accept(path)
    return path


def _path_in_modules(code: object) -> str:
    """Return the shortest path of a class or a function in the imported modules, without the main program; or ''.

    The own name of a function that another one has made, such as PettingZoo's `parallel_env`, is not its path.
    """
    paths = [
        f"{module}:{name}"
        for module, imported in list(sys.modules.items())
        if module != "builtins" and imported is not sys.modules["__main__"]  # `_` of Python's prompt is in builtins
        for name, value in list(getattr(imported, "__dict__", {}).items())
        if value is code
    ]
    return min(paths, key=lambda each: (len(each), each), default="")


def path_text(code: object) -> str:
    """Return the path of code, 'module:Name', without a check that it can be imported from there."""
    if isinstance(code, str):
        return code
    return f"{getattr(code, '__module__', None)}:{getattr(code, '__qualname__', None)}"
