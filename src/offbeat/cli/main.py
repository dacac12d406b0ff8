"""The command line: `offbeat COMMAND ...`. Each command is a dataclass with a `run` method. All have their own
files, only `train.py` has resume too.

This module imports neither torch nor NumPy: a command imports what it needs in its `run` method.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, get_type_hints

import tyro

from offbeat import __version__
from offbeat.cli.arguments import Usage
from offbeat.cli.bench import Bench
from offbeat.cli.check import Check
from offbeat.cli.doctor import Doctor, missing_package
from offbeat.cli.eval import Eval
from offbeat.cli.export import Export
from offbeat.cli.listing import List
from offbeat.cli.match import Match
from offbeat.cli.plot import Plot
from offbeat.cli.push import Push
from offbeat.cli.run import RunSpec
from offbeat.cli.train import Resume, Train
from offbeat.cli.watch import Watch
from offbeat.core.argument_notation import flags_shown
from offbeat.core.errors import ConfigError, OffbeatError, RunWarning, message_with_notes, unknown
from offbeat.core.field_definitions import field_docstrings
from offbeat.core.files import is_utf8, require_current_folder, user_path
from offbeat.core.printing import print_text

COMMANDS = {
    "train": Train,
    "resume": Resume,
    "eval": Eval,
    "match": Match,
    "watch": Watch,
    "plot": Plot,
    "push": Push,
    "export": Export,
    "bench": Bench,
    "run": RunSpec,
    "check": Check,
    "list": List,
    "doctor": Doctor,
}
_NAME_WIDTH = 2 + max(map(len, COMMANDS))
"""Characters of a command and of the spaces after it in the list of commands."""


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code: 0 done, 1 the run failed, 2 bad arguments or config, 130 stopped."""
    with flags_shown():
        return _run(arguments)


def _run(arguments: Sequence[str]) -> int:
    try:
        require_current_folder()
        try:
            command = _parse(arguments)
        except SystemExit as ended:  # the help or the version was printed
            return ended.code if isinstance(ended.code, int) else 0
        if not isinstance(command, Resume):  # resume writes the warning itself, also to the log
            _warn_of_crashes(command)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RunWarning)  # the run shows it
            return int(command.run())
    except OffbeatError as error:
        print_text(f"offbeat: {message_with_notes(error)}", sys.stderr)
        return error.exit_code
    except ModuleNotFoundError as error:
        if (package := missing_package(error)) is None:
            raise
        print_text(
            f"offbeat: `offbeat {arguments[0]}` needs {package}, which is not installed here: run pip install "
            f"{package}, or install offbeat again; `offbeat doctor` lists the installed packages",
            sys.stderr,
        )
        return ConfigError.exit_code


def _parse(arguments: Sequence[str]) -> Any:
    _require_utf8(arguments)
    name, *words = arguments or ["--help"]
    if name == "--version":
        print(f"offbeat {__version__}")
        sys.exit(0)
    if name in ("-h", "--help"):
        _print_help()
        sys.exit(0)
    if name.startswith("-"):
        raise unknown("flag", name, ("--help", "--version"), "`offbeat --help` lists the commands.")
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS, "`offbeat --help` lists them.")
    _unwrap_docstrings(COMMANDS[name])
    words = Usage(name, COMMANDS[name]).check(words)
    return _with_user_paths(tyro.cli(COMMANDS[name], prog=f"offbeat {name}", args=words))


def _print_help() -> None:
    """Print the flags and the commands, each with the first paragraph of its help."""
    print_text("usage: offbeat [-h] [--version] COMMAND ...")
    about = "Asynchronous reinforcement learning with an explicit bound on the lag between acting and learning."
    print_text(f"\n{about}\n\ncommands:", indent=0)
    for name, command in COMMANDS.items():
        summary = " ".join((command.__doc__ or "").partition("\n\n")[0].split())
        print_text(f"  {name:{_NAME_WIDTH}}{summary}", indent=_NAME_WIDTH)
    print_text("\n`offbeat COMMAND --help` shows the arguments of a command.")


@cache
def _unwrap_docstrings(command: type) -> None:
    """Give tyro the docstring of each field on one line: it would keep the line breaks of indented docstrings."""
    texts = field_docstrings(command)
    hints = get_type_hints(command, include_extras=True)
    for name in texts.keys() & hints.keys():
        hint = hints[name]
        metadata = getattr(hint, "__metadata__", ())  # a help text in it has precedence
        plain: Any = hint.__origin__ if metadata else hint
        hints[name] = Annotated[(plain, tyro.conf.arg(help=texts[name]), *metadata)]
    command.__annotations__ = hints


def _require_utf8(arguments: Sequence[str]) -> None:
    """Refuse an argument that the files of a run cannot contain: Python has decoded it with another encoding."""
    for argument in arguments:
        if not is_utf8(argument):
            raise ConfigError(
                f"the argument {argument!a} has bytes that are not text in the encoding of this shell, "
                f"{sys.getfilesystemencoding()}: set LC_ALL to a locale with UTF-8, such as C.UTF-8, or pass other text"
            )


def _with_user_paths(command: Any) -> Any:
    """Return the command with `~` replaced in all paths: a shell does not do it in --run-dir=~/runs/a, or in quotes."""
    paths: dict[str, Any] = {}
    for field in fields(command):
        match getattr(command, field.name):
            case Path() as path:
                paths[field.name] = user_path(path)
            case (Path(), *_) as several:
                paths[field.name] = tuple(map(user_path, several))
    return replace(command, **paths)


def _warn_of_crashes(command: Any) -> None:
    """Print a warning to stderr for each run of the command that has crashed."""
    directories = getattr(command, "runs", None) or (getattr(command, "run_directory", None),)
    paths = [path for directory in directories if directory is not None for path in _runs_in(user_path(directory))]
    if not paths:
        return
    from offbeat.run_directory.directory import RunDirectory

    for path in paths:
        if crash := RunDirectory(path).crash_message():
            print_text(f"offbeat: {crash}: continue with `offbeat resume {quote(str(path))}`", sys.stderr)


def _runs_in(path: Path) -> list[Path]:
    """Return the directories with a status.json: the run itself, or the runs of an experiment or a population."""
    patterns = ("status.json", "seed-*/status.json", "trial-*/seed-*/status.json", "member-*/status.json")
    return sorted(status.parent for pattern in patterns for status in path.glob(pattern))
