"""How messages on a trial name settings: as a spec file writes them.

Messages are written with flags (core/argument_notation.py). A user who wrote a spec file has none, so `in_spec` writes

    --set learning_rate=0.001 epochs=4    as  learning_rate = 0.001, epochs = 4
    --set hidden_sizes=64,64              as  hidden_sizes = [64, 64]
    --runtime threads                     as  runtime = "threads"
    --env-kwargs size=8                   as  env.kwargs.size = 8
    another --runtime                     as  another runtime
    a comma-separated list                as  a list

and leaves commands between backticks, and the flags of `offbeat run` itself.
"""

from __future__ import annotations

import json
import re

from offbeat.core.argument_notation import NOTATION, is_value, pairs_in, split_full_stop
from offbeat.core.errors import ConfigError
from offbeat.core.typed_text import argument_text, value_of

_OF_THE_COMMAND = ("progress", "trust-code")
"""Flags of `offbeat run`."""
_OF_PAIRS = ("env-kwargs", "set")
"""Flags whose values are pairs. In a text without one, they stay: no key of a spec has their name."""
_KEYS = {"import": "imports", "wrapper": "wrappers"}
"""Flags that are given once for each item -> the key, whose value is a list."""


def in_spec(message: str) -> str:
    """Return a message with its settings as they are written in TOML. A second call changes nothing."""
    return NOTATION.sub(_assignment, message)


def with_place(where: str, error: ConfigError) -> ConfigError:
    """Return an error with its place, the file of the spec and what in it is wrong, and its settings as in TOML."""
    return ConfigError(f"{where}: {in_spec(error.args[0])}")


def _assignment(found: re.Match[str]) -> str:
    if pairs := found["settings"] or found["arguments"]:
        return _assignments(pairs, "env.kwargs." if found["arguments"] else "")
    if found["list"]:
        return "a list"
    if found["flag"] in (None, *_OF_THE_COMMAND, *_OF_PAIRS):
        return found[0]
    return _of_flag(found["flag"], found["value"])


def _of_flag(flag: str, value: str | None) -> str:
    """Return the key of a flag with the value; if the word after the flag is not one, with this word."""
    key = _KEYS.get(flag, flag.replace("-", "_"))
    if value is None:
        return key
    text, end = split_full_stop(value)
    if flag in _KEYS:
        return f"{key} = [{_toml(text)}]{end}"
    return f"{key} = {_toml(text)}{end}" if is_value(value) else f"{key} {value}"


def _assignments(text: str, table: str) -> str:
    pairs, end = pairs_in(text)
    return ", ".join(f"{table}{key} = {_toml(value)}" for key, value in pairs) + end


def _toml(text: str) -> str:
    """Return a value of the command line as TOML. Placeholders, such as N or VALUE, stay."""
    if text in ("true", "false", "...") or text.startswith(('"', "{")) or re.fullmatch(r"[A-Z]+", text):
        return text
    if re.fullmatch(r"[+-]?\d[\d_]*(\.\d+)?(e-?\d+)?", text):
        return text
    if isinstance(value := value_of(text), tuple):
        return argument_text(value)
    if text.startswith("[") or ("," in text and " " not in text):
        return f"[{', '.join(map(_toml, text.strip('[]').split(',')))}]"
    return json.dumps(text)
