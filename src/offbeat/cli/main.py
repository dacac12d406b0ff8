"""The command line: `offbeat COMMAND ...`. Each command is a dataclass with a `run` method, in a file of its own.

Nothing heavy is imported here: a command imports what it needs when it runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated

import tyro

from offbeat import __version__
from offbeat.cli.bench import Bench
from offbeat.cli.crashes import tell_crashes
from offbeat.cli.evaluate import Eval, Watch
from offbeat.cli.export import Export
from offbeat.cli.inspect import Check, Doctor, List
from offbeat.cli.packages import missing_package
from offbeat.cli.plot import Plot
from offbeat.cli.push import Push
from offbeat.cli.run import RunSpec
from offbeat.cli.train import Resume, Train
from offbeat.config.resolve import setting_names
from offbeat.core.errors import ConfigError, OffbeatError, in_words, unknown

COMMANDS = {
    "train": Train,
    "resume": Resume,
    "eval": Eval,
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
Command = (
    Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Resume, tyro.conf.subcommand("resume")]
    | Annotated[Eval, tyro.conf.subcommand("eval")]
    | Annotated[Watch, tyro.conf.subcommand("watch")]
    | Annotated[Plot, tyro.conf.subcommand("plot")]
    | Annotated[Push, tyro.conf.subcommand("push")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
    | Annotated[RunSpec, tyro.conf.subcommand("run")]
    | Annotated[Check, tyro.conf.subcommand("check")]
    | Annotated[List, tyro.conf.subcommand("list")]
    | Annotated[Doctor, tyro.conf.subcommand("doctor")]
)


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code: 0 done, 1 the run failed, 2 bad arguments or config, 130 stopped."""
    try:
        command = _parse(arguments)
        if not isinstance(command, Resume):  # which says so itself, in the log too
            tell_crashes(command)
        return command.run()
    except OffbeatError as error:
        print(f"offbeat: {in_words(error)}", file=sys.stderr)
        return error.exit_code
    except ModuleNotFoundError as error:
        if (package := missing_package(error)) is None:
            raise
        print(
            f"offbeat: `offbeat {arguments[0]}` needs {package}, which is not installed here: run pip install "
            f"{package}, or pip install offbeat once more; `offbeat doctor` lists what there is",
            file=sys.stderr,
        )
        return ConfigError.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read our output has gone
        return 0


def _parse(arguments: Sequence[str]) -> Command:
    if arguments and arguments[0] == "--version":
        print(f"offbeat {__version__}")
        sys.exit(0)
    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        raise unknown("command", arguments[0], COMMANDS, "`offbeat --help` lists them.")
    _refuse_keys_as_flags(arguments)
    return tyro.cli(
        Command,
        prog="offbeat",
        description="Asynchronous reinforcement learning under an explicit contract of how far "
        "acting and learning may drift apart.",
        args=list(arguments) or ["--help"],
        config=(tyro.conf.OmitSubcommandPrefixes,),
    )


def _refuse_keys_as_flags(arguments: Sequence[str]) -> None:
    """Say what to type where a setting that has no flag was given as one."""
    if not arguments or arguments[0] not in ("train", "bench"):
        return
    flags = {"import", "help", *(field.name for field in fields(COMMANDS[arguments[0]]))}
    names = [argument[2:].partition("=")[0].replace("-", "_") for argument in arguments if argument.startswith("--")]
    for name in names:
        if name not in flags and name in setting_names():
            raise ConfigError(f"--{name.replace('_', '-')} is no flag, but a setting: pass --set {name}=VALUE")
