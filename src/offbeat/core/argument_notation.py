"""How messages name arguments: on the command line by flags, in Python by the arguments of functions.

Messages are written with flags. On the command line they are shown as they are written. In Python, `as_shown` writes

    --set learning_rate=0.001 epochs=4      as  learning_rate=0.001, epochs=4
    --runtime threads                       as  runtime="threads"
    another --run-dir                       as  another run_dir=...
    a comma-separated list                  as  a list or tuple
    --env-kwargs size=8, --set league.window=4  as  env_kwargs={"size": 8}, league={"window": 4}

    `offbeat resume runs/a --steps 100`     as  `offbeat.resume("runs/a", steps=100)`

and leaves the commands that Python has no function for, such as `offbeat bench`. Commands are written between
backticks. Texts of users' code may contain other flags, so only `FLAGS` are replaced.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from offbeat.core.typed_text import as_text, items_of, value_of

_SWITCHES = ("average", "sampled", "trust-code")
_LISTS = {"import": "imports", "wrapper": "wrappers"}
"""Flags that are given once for each item -> the argument."""
FLAGS = (
    *("actors", "checkpoint", "device", "env", "env-kwargs", "envs-per-actor", "episodes", "eval-every", "format"),
    *("init-from", "lag"),
    *("max-episode-steps", "max-lag", "max-steps", "out", "policies", "policy", "preset", "progress", "run-dir"),
    *("runtime", "seed", "set", "sides", "smooth", "snapshots", "steps", "stop-at", "stop-at-return"),
    *("time", "video", "workers", "x"),
    *(*_SWITCHES, *_LISTS),
)
"""The flags that are arguments of Python's functions too."""
_TEXTS = ("checkpoint", "init-from", "out", "policies", "policy", "preset", "progress", "run-dir", "video")
"""Flags whose values are names or paths: text, whatever they look like."""
_WORDS = (
    *("serial", "threads", "processes", "hogwild", "ray", "bounded", "exact", "auto", "cpu", "cuda", "shared"),
    *("separate", "onnx", "torchscript", "latest", "best", "all", "window", "none", "episodes", "frames", "my_module"),
)
"""Words that are values if they follow a flag, as are numbers, names with _ and paths. Other words belong to the
sentence."""
_CONJUNCTIONS = ("and", "for", "if", "or", "to", "with")
"""Words that are no modules."""

_VALUE = r"""(?:"[^"]*"|(?:[^\s,;:()]|[,:](?=[^\s,;:()]))+)"""
FUNCTIONS = {
    **{name: name for name in ("check", "export", "plot", "resume", "train", "watch")},
    "eval": "evaluate",
}
"""Command -> the function of Python that does the same, with the same arguments."""
_IMPORTING = ("check", "train")
"""Commands whose function has the argument `imports`. The others, which have --import too, have `trust_code`."""
_KWARGS = "env.kwargs."
_ARGUMENTS = {_KWARGS: "env_kwargs.", "env.eval_kwargs.": "eval_kwargs.", "encoder_kwargs.": "encoder_kwargs."}
"""Prefix of a key that sets an argument of a constructor -> the argument of Python's functions, with a dot."""
_POLICIES = "policies."
"""Prefix of a key that sets a policy's own value."""
_PAIR = rf"(?:[\w.]+={_VALUE}|'[\w.]+=[^']*')"
_PAIRS = rf"{_PAIR}(?: {_PAIR})*"
NOTATION = re.compile(
    r"(?P<command>`[^`]*`)"
    rf"|--set (?P<settings>{_PAIRS})"
    rf"|--env-kwargs (?P<arguments>{_PAIRS})"
    r"|(?P<list>\ba comma-separated list\b)"
    rf"|(?<![\w-])--(?P<flag>{'|'.join(sorted(FLAGS, key=len, reverse=True))})(?![\w-])(?: (?P<value>{_VALUE}))?"
)
"""What is written with flags in a message, or as a command."""

_flags_shown = False


@contextmanager
def flags_shown(shown: bool = True) -> Iterator[None]:
    """While entered, show flags, as on the command line; or else the arguments of Python."""
    global _flags_shown  # noqa: PLW0603 - a fact about the process
    before, _flags_shown = _flags_shown, shown
    try:
        yield
    finally:
        _flags_shown = before


def for_reader(flags: str, python: str) -> str:
    """Return a part of a message that is not the same for both: for the command line, or for a caller in Python."""
    return flags if _flags_shown else python


def value_for_reader(value: object) -> str:
    """Return a value as the reader writes it: none and 64,64 on the command line, None and (64, 64) in Python."""
    return for_reader(as_text(value) or str(value), str(value))


def is_for_python() -> bool:
    """Whether messages are for a caller in Python, not for the command line."""
    return not _flags_shown


def keep_flags() -> None:
    """Leave messages as they are written: in child processes, whose parent shows them."""
    global _flags_shown  # noqa: PLW0603 - as above
    _flags_shown = True


def as_shown(message: str) -> str:
    """Return a message as it is shown in this process. It may quote files of someone else."""
    plain = printable(message, but="\n\t")
    return plain if _flags_shown else in_python(plain)


def printable(text: str, but: str = "") -> str:
    """Return a text with escapes for all characters that are not printable, except those in `but`.

    A terminal obeys control characters: they could hide what comes before them.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in but else each.encode("unicode_escape").decode() for each in text
    )


def in_python(message: str) -> str:
    """Return a message that names arguments as Python does. A second call changes nothing."""
    return NOTATION.sub(_argument, message)


def _argument(found: re.Match[str]) -> str:
    if found["command"]:
        return _command(found[0])
    if found["settings"]:
        pairs, end = pairs_in(found["settings"])
        return ", ".join(_settings(pairs)) + end
    if found["arguments"]:
        pairs, end = pairs_in(found["arguments"])
        return _env_kwargs(pairs) + end
    if found["list"]:
        return "a list or tuple"
    return _of_flag(found["flag"], found["value"])


def _command(command: str) -> str:
    """Return the call for a command; a command that a backtick in an argument of the env has cut, as it is."""
    try:
        return _call(command)
    except ValueError:
        return command


def _call(command: str) -> str:
    """Return the call for a command, which is quoted as for a shell; other text as it is.

    Raises:
        ValueError: a quote is not closed.
    """
    program, _, rest = command.strip("`").partition(" ")
    name, *words = shlex.split(rest) if program == "offbeat" else [""]
    if name not in FUNCTIONS:
        return command
    if not words:
        return f"`offbeat.{FUNCTIONS[name]}`"
    given: dict[str, list[str]] = {"": []}
    flag = ""
    for word in words:
        if word.startswith("--"):
            flag = word[2:]
            given.setdefault(flag, [])
        elif flag == "set" and word.startswith(_KWARGS):  # one argument in Python, with those of the other flag
            given.setdefault("env-kwargs", []).append(word.removeprefix(_KWARGS))
        else:
            given[flag].append(word)
    if name not in _IMPORTING and "import" in given:
        del given["import"]
        given["trust-code"] = []
    arguments = [part for flag, values in given.items() for part in _arguments(flag, values)]
    return f"`offbeat.{FUNCTIONS[name]}({', '.join(arguments)})`"


def _arguments(flag: str, values: list[str]) -> list[str]:
    """Return the arguments for a flag of a command with its values; '' is the flag of those before all flags."""
    if flag == "":
        return [_text(each) for each in values]
    if flag == "set":
        return _settings(map(_pair, values))
    if flag == "env-kwargs":
        return [_env_kwargs(map(_pair, values))]
    if flag in _LISTS:
        return [f"{_LISTS[flag]}={_list(values)}"]
    return [f"{flag.replace('-', '_')}={_value_of(flag, each)}" for each in values or ["true"]]


def _pair(text: str) -> tuple[str, str]:
    """Return key and value of a 'key=value'."""
    key, _, value = text.partition("=")
    return key, value


def _env_kwargs(pairs: Iterable[tuple[str, str]]) -> str:
    """Return the argument for names and values of --env-kwargs."""
    items = ", ".join(f'"{name}": {_literal(value)}' for name, value in pairs)
    return f"env_kwargs={{{items}}}"


def _list(texts: list[str]) -> str:
    return f"[{', '.join(map(_literal, texts))}]"


def _literal(text: str) -> str:
    """Return an argument of an env's constructor, as it is typed, as Python code. The placeholder VALUE stays."""
    if text in ("VALUE", "..."):
        return text
    value = value_of(text)
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    """Return a text as Python code."""
    return repr(text) if {'"', "\\"} & set(text) or not text.isprintable() else f'"{text}"'


def _text(text: str) -> str:
    """Return a name or a path as Python code. Placeholders, such as RUN, stay, and what has quotes already."""
    return text if re.fullmatch(r'[A-Z]+|\.\.\.|"[^"]*"', text) else _quoted(text)


def _of_flag(flag: str, word: str | None) -> str:
    """Return the argument of a flag, and the word that follows it unless this is the flag's value."""
    rest = "" if word is None else f" {word}"
    if flag == "set":
        return f"settings{rest}"
    if flag in _SWITCHES:
        return f"{flag.replace('-', '_')}=True{rest}"
    value, end = "...", rest
    if word is not None and (is_value(word) or (flag in _LISTS and word not in _CONJUNCTIONS)):
        text, end = split_full_stop(word)
        value = _value_of(flag, text)
    if flag in _LISTS:
        return f"{_LISTS[flag]}={'...' if value == '...' else f'[{value}]'}{end}"
    return f"{flag.replace('-', '_')}={value}{end}"


def _value_of(flag: str, text: str) -> str:
    """Return the value of a flag as Python code."""
    return _text(text) if flag in _TEXTS else _python(text)


def is_value(word: str) -> bool:
    """Whether the word after a flag is its value, and not a word of the sentence."""
    return word.rstrip(".") in _WORDS or bool(re.match(r'["\d]|[A-Z][A-Z]|[A-Z]\b|.*[:/_]', word))


def pairs_in(text: str) -> tuple[list[tuple[str, str]], str]:
    """Return key and value of each 'key=value' of a message, and the full stop after the last one, if there is one."""
    text, end = split_full_stop(text)
    return [_pair(pair.strip("'")) for pair in re.findall(_PAIR, text)], end


def split_full_stop(text: str) -> tuple[str, str]:
    """Return a text without a full stop that ends the sentence, and the full stop or ''."""
    ends = text.endswith(".") and not text.endswith("...")
    return (text[:-1], ".") if ends else (text, "")


def _settings(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return the arguments for keys and values. Those of a table are one argument: Python accepts none twice.

    Of a key that is given twice, the last value counts.
    """
    arguments: dict[str, list[str]] = {}
    for key, value in pairs:
        if key.startswith(_POLICIES):  # beside the argument `policies`, which has the file
            arguments.setdefault("**.", []).append(f'"{key}": {_python(value)}')
            continue
        if key in _LISTS.values():
            arguments[key] = [_list(items_of(value))]
            continue
        prefix = next(filter(key.startswith, _ARGUMENTS), "")
        table, dot, name = f"{_ARGUMENTS.get(prefix, '')}{key.removeprefix(prefix)}".partition(".")
        code = _literal(value) if prefix else _python(value)
        arguments.setdefault(f"{table}{dot}", []).append(f'"{name}": {code}' if dot else code)
    return [
        f"{name[:-1]}{'' if name == '**.' else '='}{{{', '.join(items)}}}"
        if name.endswith(".")
        else f"{name}={items[-1]}"
        for name, items in arguments.items()
    ]


def _python(text: str) -> str:
    """Return a value of the command line as Python code. Placeholders, such as N or VALUE, stay."""
    constants = {"true": "True", "false": "False", "none": "None"}
    if text in constants:
        return constants[text]
    if text == "..." or text.startswith('"') or re.fullmatch(r"[A-Z]+|-?\d[\d_]*(\.\d+)?(e-?\d+)?", text):
        return text
    if text.startswith(('["', "{")):
        return _literal(text)
    if "," in text:
        return f"({', '.join(map(_python, text.strip('[]').split(',')))})"
    return _quoted(text)
