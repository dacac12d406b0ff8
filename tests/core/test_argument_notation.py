"""Each message is written once, with flags; Python shows the names of its arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
from tests.support.runs import offbeat as command

import offbeat
from offbeat.config.run_config import RunConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.argument_notation import FLAGS, FUNCTIONS, as_shown, flags_shown, in_python, value_for_reader
from offbeat.core.errors import ConfigError
from offbeat.core.field_definitions import flag_of, hints_of

SOURCES = Path(offbeat.__file__).parent


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("pass --set epochs=4", "pass epochs=4"),
        ("pass --set core=gru or --set core=lstm", 'pass core="gru" or core="lstm"'),
        ("pass --set gamma=0.9 epochs=2, or less", "pass gamma=0.9, epochs=2, or less"),
        ("Pass --set load_ahead=0.", "Pass load_ahead=0."),
        ("pass --set hidden_sizes=64,64: lists", "pass hidden_sizes=(64, 64): lists"),
        ("pass --set hidden_sizes=[64,64]", "pass hidden_sizes=(64, 64)"),
        ("--set devices=cpu,cpu for example", 'devices=("cpu", "cpu") for example'),
        ("pass --set temperature=none, so that", "pass temperature=None, so that"),
        ("pass --set utd_ratio=1/4 or more", 'pass utd_ratio="1/4" or more'),
        ('pass --set curriculum="gravity 0:9.8 0.5:20"', 'pass curriculum="gravity 0:9.8 0.5:20"'),
        ("pass --set wrappers=my_module:MyWrapper", 'pass wrappers=["my_module:MyWrapper"]'),
        ("`offbeat train ppo A-v0 --set wrappers=a:V,b:W`", '`offbeat.train("ppo", "A-v0", wrappers=["a:V", "b:W"])`'),
        ("`offbeat train ppo A-v0 --set wrappers=`", '`offbeat.train("ppo", "A-v0", wrappers=[])`'),
        ("pass --set league.window=4", 'pass league={"window": 4}'),
        (
            "`offbeat train ppo nim --set league.window=4 epochs=2 league.k_factor=8 env.kwargs.a=1 env.kwargs.b=2`",
            '`offbeat.train("ppo", "nim", league={"window": 4, "k_factor": 8}, epochs=2, env_kwargs={"a": 1, "b": 2})`',
        ),
        ("pass --set league.window=4 league.k_factor=8", 'pass league={"window": 4, "k_factor": 8}'),
        ("pass --set league.sides=...", 'pass league={"sides": ...}'),
        ("pass --set env.kwargs.size=8", 'pass env_kwargs={"size": 8}'),
        (
            "pass --set env.eval_kwargs.size=8 env.kwargs.size=4",
            'pass eval_kwargs={"size": 8}, env_kwargs={"size": 4}',
        ),
        ("pass --set env.eval_kwargs.NAME=VALUE", 'pass eval_kwargs={"NAME": VALUE}'),
        ("`offbeat resume a --set env.eval_kwargs.on=true`", '`offbeat.resume("a", eval_kwargs={"on": True})`'),
        ("pass --set encoder_kwargs.units=8", 'pass encoder_kwargs={"units": 8}'),
        (
            "pass --set encoder_kwargs.units=8 'encoder_kwargs.layers=[1, 2]' and leave out",
            'pass encoder_kwargs={"units": 8, "layers": (1, 2)} and leave out',
        ),
        ("pass --set 'goal=a b'.", 'pass goal="a b".'),
        (
            "`offbeat train ppo A --policies a.toml --set policies.a.settings.c=1 policies.b.settings.d=2`",
            '`offbeat.train("ppo", A, policies="a.toml", **{"policies.a.settings.c": 1, "policies.b.settings.d": 2})`',
        ),
        (
            "`offbeat resume a --set 'policies.a.settings.encoder_kwargs={units = 3, layers = [8, 8]}'`",
            """`offbeat.resume("a", **{"policies.a.settings.encoder_kwargs": {'units': 3, 'layers': (8, 8)}})`""",
        ),
        ("pass --set encoder_kwargs.NAME=VALUE", 'pass encoder_kwargs={"NAME": VALUE}'),
        (
            "`offbeat train ppo A-v0 --set encoder_kwargs.units=8 epochs=2 encoder_kwargs.on=yes`",
            '`offbeat.train("ppo", "A-v0", encoder_kwargs={"units": 8, "on": "yes"}, epochs=2)`',
        ),
        ("pass --set 'env.kwargs.goal={x = 1, y = 2}'", "pass env_kwargs={\"goal\": {'x': 1, 'y': 2}}"),
        ("pass --env-kwargs 'goal={x = 1, y = 2}'", "pass env_kwargs={\"goal\": {'x': 1, 'y': 2}}"),
        (
            "`offbeat check A-v0 --env-kwargs a=1 --set epochs=2 'env.kwargs.goal={x = 1, y = 2}' epochs=4`",
            """`offbeat.check("A-v0", env_kwargs={"a": 1, "goal": {'x': 1, 'y': 2}}, epochs=4)`""",
        ),
        ("pass --set league.env.kwargs.a=1", 'pass league={"env.kwargs.a": 1}'),
        ("pass --env-kwargs size=8 name=pole", 'pass env_kwargs={"size": 8, "name": "pole"}'),
        ("pass --env-kwargs NAME=VALUE", 'pass env_kwargs={"NAME": VALUE}'),
        ("the settings themselves with --set", "the settings themselves with settings"),
        ("pass another --run-dir", "pass another run_dir=..."),
        ("with --run-dir to go on", "with run_dir=... to go on"),
        ("--runtime threads or --runtime serial, which", 'runtime="threads" or runtime="serial", which'),
        ("pass another --runtime, or leave it out", "pass another runtime=..., or leave it out"),
        ("pass --max-lag 0 or more", "pass max_lag=0 or more"),
        ("pass --actors N --envs-per-actor N, and", "pass actors=N envs_per_actor=N, and"),
        ("pass --import my_module if", 'pass imports=["my_module"] if'),
        ("pass --import boats; or", 'pass imports=["boats"]; or'),
        ("each with --import if a module", "each with imports=... if a module"),
        ("pass --runtime own_threads", 'pass runtime="own_threads"'),
        ("pass --wrapper my_module:MyWrapper", 'pass wrappers=["my_module:MyWrapper"]'),
        ("name the modules with --import.", "name the modules with imports=...."),
        ("pass --trust-code, or", "pass trust_code=True, or"),
        ("leave out --snapshots and --average", "leave out snapshots=... and average=True"),
        ("pass --policies FILE.toml with tables", 'pass policies="FILE.toml" with tables'),
        ("Run `offbeat check MyEnv-v0` to", 'Run `offbeat.check("MyEnv-v0")` to'),
        (
            "`offbeat check a/B-v0 --import a --env-kwargs 'name=a b' --wrapper a:W --set frame_stack=4`",
            '`offbeat.check("a/B-v0", imports=["a"], env_kwargs={"name": "a b"}, wrappers=["a:W"], frame_stack=4)`',
        ),
        ("pass --preset none", 'pass preset="none"'),
        ("for example, --progress none.", 'for example, progress="none".'),
        ("run `offbeat resume 'my runs/a' --steps 100`", 'run `offbeat.resume("my runs/a", steps=100)`'),
        (
            "`offbeat train ppo ENV --init-from a --preset none`",
            '`offbeat.train("ppo", ENV, init_from="a", preset="none")`',
        ),
        (
            """`offbeat check A-v0 --set 'ignore_observations=["a,b", " c"]'`""",
            """`offbeat.check("A-v0", ignore_observations=('a,b', ' c'))`""",
        ),
        (
            "`offbeat check A-v0 --env-kwargs start=2020-01-01 mode=inf sizes='[1, 2]'`",
            '`offbeat.check("A-v0", env_kwargs={"start": "2020-01-01", "mode": "inf", "sizes": (1, 2)})`',
        ),
        ("resume `offbeat resume runs/lr=1,2`", 'resume `offbeat.resume("runs/lr=1,2")`'),
        ("""`offbeat resume 'runs/with"quote'`""", """`offbeat.resume('runs/with"quote')`"""),
        (
            "`offbeat train ppo ENV --init-from runs/lr=1,2 --run-dir true --policies none`",
            '`offbeat.train("ppo", ENV, init_from="runs/lr=1,2", run_dir="true", policies="none")`',
        ),
        ("pass --env-kwargs mode=none", 'pass env_kwargs={"mode": "none"}'),
        ("pass --set 'league.sides=red_*,blue_*'", 'pass league={"sides": ("red_*", "blue_*")}'),
        ("`offbeat resume runs/a --import a --import b`", '`offbeat.resume("runs/a", trust_code=True)`'),
        ("`offbeat eval runs/a --sampled`", '`offbeat.evaluate("runs/a", sampled=True)`'),
        ("that `offbeat train` has created", "that `offbeat.train` has created"),
        ("`offbeat bench ppo ENV --actors 2` measures it", "`offbeat bench ppo ENV --actors 2` measures it"),
        ("""pass --set 'ray_runtime_env={"pip": ["numpy"]}' or""", """pass ray_runtime_env='{"pip": ["numpy"]}' or"""),
        ("but a comma-separated list, each item text", "but a list or tuple, each item text"),
        ("the env said --verbose 3", "the env said --verbose 3"),
    ],
)
def test_python_shows_arguments(written, shown):
    assert in_python(written) == shown
    assert in_python(shown) == shown


@pytest.mark.parametrize(
    ("shows_flags", "texts"),
    [(False, ["None", "True", "0.5", "a", "(64, 64)", "[]"]), (True, ["none", "true", "0.5", "a", "64,64", "[]"])],
)
def test_a_value_is_shown_as_its_reader_writes_it(shows_flags, texts):
    values: list[object] = [None, True, 0.5, "a", (64, 64), []]
    with flags_shown(shows_flags):
        assert [value_for_reader(value) for value in values] == texts


def test_the_command_line_shows_flags():
    with flags_shown():
        assert as_shown("pass --max-lag 0") == "pass --max-lag 0"
        assert str(ConfigError("pass --max-lag 0")) == "pass --max-lag 0"
    with flags_shown(False):
        assert str(ConfigError("pass --max-lag 0")) == "pass max_lag=0"


@pytest.mark.parametrize(
    ("arguments", "words", "flag", "argument"),
    [
        ({"max_lag": -1}, ["--max-lag", "-1"], "--max-lag", "max_lag="),
        ({"unroll_length": 0}, ["--set", "unroll_length=0"], "--set unroll_length=", "unroll_length="),
        ({"policies": "none"}, ["--policies", "none"], "--policies shared", 'policies="shared"'),
        ({"run_dir": "."}, ["--run-dir", "."], "pass another --run-dir", "pass another run_dir=..."),
    ],
)
def test_one_mistake_is_told_with_the_flag_or_with_the_argument(arguments, words, flag, argument):
    with flags_shown(False), pytest.raises(ConfigError) as refused:
        offbeat.train("ppo", "CartPole-v1", **arguments)
    said = command("train", "ppo", "CartPole-v1", *words)
    assert flag in said.err
    with flags_shown(False):
        assert argument in str(refused.value)
        assert "--" not in str(refused.value)


# --- all messages ---------------------------------------------------------------------------------------------

ONLY_ON_THE_COMMAND_LINE = {
    *("address", "cpus", "dir", "dry-run", "gpus", "head", "object-store-memory", "repo", "resources", "seconds"),
    *("help", "json", "on"),
}
"""Flags of commands that have no function in Python, or of other programs."""


def messages(pattern: str = r"--[a-z]") -> Iterator[tuple[str, str]]:
    """Yield file and text of each string in the package with a flag, but for docstrings and help.

    Args:
        pattern: what the strings have instead.
    """
    return ((file, text) for file, text in texts() if re.search(pattern, text))


@cache
def texts() -> list[tuple[str, str]]:
    """Return file and text of each string with several words."""
    paths = [path for path in sorted(SOURCES.rglob("*.py")) if "cli" not in path.relative_to(SOURCES).parts]
    return [(path.name, text) for path in paths for text in texts_of(ast.parse(path.read_text())) if " " in text]


def texts_of(tree: ast.Module) -> Iterator[str]:
    nodes = list(ast.walk(tree))
    bodies = [vars(node)["body"] for node in nodes if isinstance(vars(node).get("body"), list)]
    documentation = {id(part.value) for body in bodies for part in body if isinstance(part, ast.Expr)}
    left_out = documentation | {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if id(node) in left_out:
            continue
        if isinstance(node, ast.JoinedStr):
            values = (str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values)
            yield re.sub(r"(?<=\w)\0", ", 1", "".join(values)).replace("\0", "1")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_python_shows_no_flag_in_any_message():
    found = list(messages())
    assert len(found) > 100
    for file, text in found:
        left = re.sub(r"`[^`]*`", "", in_python(text))
        flags = set(re.findall(r"(?<![\w-])--([a-z][a-z-]*)", left))
        assert flags <= ONLY_ON_THE_COMMAND_LINE, (file, text)


def test_commands_are_written_between_backticks_and_those_with_a_function_are_shown_as_calls():
    from offbeat.cli.main import COMMANDS

    named = re.compile(rf"offbeat ({'|'.join(COMMANDS)})\b")
    texts = [text for _, text in messages(named.pattern) if not named.match(text)]  # a command alone is put into one
    assert len(texts) > 30
    for text in texts:
        assert not named.search(re.sub(r"`[^`]*`", "", text)), text
        assert not set(named.findall(in_python(text))) & set(FUNCTIONS), text


def test_each_command_that_python_shows_as_a_call_has_its_function():
    assert set(FUNCTIONS.values()) <= set(dir(offbeat))


def test_no_message_names_a_file_that_pip_does_not_install():
    assert list(messages(r"\bdocs/|\w\.md\b")) == []


def test_the_flags_exist():
    from offbeat.cli.main import COMMANDS

    known = {field.name.replace("_", "-") for kind in COMMANDS.values() for field in fields(kind)}
    assert set(FLAGS) - {"import", "wrapper"} <= known


def test_each_flag_of_a_setting_is_shown_as_an_argument_in_python():
    hints = {key: hint for table in (RunConfig, RuntimeConfig) for key, hint in hints_of(table).items()}
    flags = {key.replace("_", "-") for key, hint in hints.items() if flag_of(hint)}
    assert "eval-every" in flags
    assert flags <= set(FLAGS)


def test_a_backtick_in_an_argument_of_an_env_leaves_the_command_as_it_is() -> None:
    message = "Run `offbeat check My-v0 --env-kwargs 'prompt=use `x`'` to find the fault"
    assert in_python(message) == message


def test_no_text_shows_a_boolean_of_toml_in_python():
    found = [
        *messages(r"=(true|false)\b"),
        ("other_libraries.toml", (SOURCES / "config/other_libraries.toml").read_text()),
    ]
    assert [(file, text) for file, text in found if re.search(r"[a-z]=(true|false)\b", in_python(text))] == []
