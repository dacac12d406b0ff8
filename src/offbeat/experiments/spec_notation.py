"""How messages on a trial name settings: as a spec file writes them.

Messages are written with flags (core/argument_notation.py). A user who wrote a spec file has none, so `in_spec` writes

    --set learning_rate=0.001 epochs=4    as  learning_rate = 0.001, epochs = 4
    --set hidden_sizes=64,64              as  hidden_sizes = [64, 64]
    --runtime threads                     as  runtime = "threads"
    --env-kwargs size=8                   as  env.kwargs.size = 8
    a comma-separated list                as  a list

and leaves commands between backticks, flags without a value, and the flags of `offbeat run` itself.
"""

from __future__ import annotations

import json
import re

from offbeat.core.argument_notation import NOTATION, is_value, pairs_in, split_full_stop
from offbeat.core.errors import ConfigError

_OF_THE_COMMAND = ("trust-code", "workers")
"""Flags of `offbeat run`."""
_KEYS = {"import": "imports", "wrapper": "wrappers"}
"""Flags that are given once for each item -> the key, whose value is a list."""


def in_spec(message: str) -> str:
    """Return a message with its settings as they are written in TOML. A second call changes nothing."""
    return NOTATION.sub(_assignment, message)


def with_file(where: str, run: str, error: ConfigError) -> ConfigError:
    """Return the error of a run with the file of its spec, and its settings as they are written in TOML.

    Args:
        where: the file.
        run: which of its runs this is.
        error: the error.
    """
    return ConfigError(f"{where}, {run}: {in_spec(error.args[0])}")


def _assignment(found: re.Match[str]) -> str:
    if found["quoted"]:
        key, _, text = found["quoted"].partition("=")
        return f"{key} = {json.dumps(text)}"
    if pairs := found["settings"] or found["arguments"]:
        return _assignments(pairs, "env.kwargs." if found["arguments"] else "")
    if found["list"]:
        return "a list"
    flag, value = found["flag"], found["value"]
    if flag is None or flag in _OF_THE_COMMAND or value is None:
        return found[0]
    text, end = split_full_stop(value)
    if flag in _KEYS:
        return f"{_KEYS[flag]} = [{_toml(text)}]{end}"
    return f"{flag.replace('-', '_')} = {_toml(text)}{end}" if is_value(value) else found[0]


def _assignments(text: str, table: str) -> str:
    pairs, end = pairs_in(text)
    return ", ".join(f"{table}{key} = {_toml(value)}" for key, value in pairs) + end


def _toml(text: str) -> str:
    """Return a value of the command line as TOML. Placeholders, such as N or VALUE, stay."""
    if text in ("true", "false", "...") or text.startswith('"') or re.fullmatch(r"[A-Z]+", text):
        return text
    if re.fullmatch(r"[+-]?\d[\d_]*(\.\d+)?(e-?\d+)?", text):
        return text
    if "," in text or text.startswith("["):
        return f"[{', '.join(map(_toml, text.strip('[]').split(',')))}]"
    return json.dumps(text)
