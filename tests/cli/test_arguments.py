"""Arguments that a command does not take are refused in one style, with an example of what is expected."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import tyro
from tests.support.runs import offbeat

from offbeat.cli.arguments import Usage
from offbeat.cli.main import COMMANDS
from offbeat.core.errors import ConfigError

TABLE = """\
$ offbeat train
ALGO is missing: run, for example, offbeat train ppo CartPole-v1
$ offbeat train ppo
ENV is missing: run, for example, offbeat train ppo CartPole-v1
$ offbeat train CartPole-v1 ppo
the algorithm is 'CartPole-v1' and the env is 'ppo', an algorithm: swap them, as in `offbeat train ppo CartPole-v1`
$ offbeat train ppo ./my_envs.py:Point
./my_envs.py is the path of a file, but the name of a module is expected: pass my_envs in its place
$ offbeat check envs/my_envs.py:Point
envs/my_envs.py is the path of a file, but the name of a module is expected: pass my_envs in its place, in the folder envs or with it on PYTHONPATH
$ offbeat train ppo my_envs.py
my_envs.py is a file, but an env is expected: pass my_envs:MyEnv, the class of the env in it
$ offbeat check envs/my_envs.py
envs/my_envs.py is a file, but an env is expected: pass my_envs:MyEnv, the class of the env in it, in the folder envs or with it on PYTHONPATH
$ offbeat train ppo CartPole-v1 --import ./my_envs.py
./my_envs.py is the path of a file, but the name of a module is expected: pass my_envs in its place
$ offbeat train ppo CartPole-v1 --wrapper my_envs.py:Flat
my_envs.py is the path of a file, but the name of a module is expected: pass my_envs in its place
$ offbeat train ppo CartPole-v1 --set encoder=my_envs.py:Net
my_envs.py is the path of a file, but the name of a module is expected: pass my_envs in its place
$ offbeat train my_algorithm.py:Own CartPole-v1
my_algorithm.py is the path of a file, but the name of a module is expected: pass my_algorithm in its place
$ offbeat list settings ppo --env Nothing-v9
unknown env 'Nothing-v9'. Run `offbeat list envs` for a list. For an env of another package, type its module too: module:ID. For an env of your own, pass --import my_module, which registers it, or my_module:MyEnv
$ offbeat train ppo CartPole-v1 --set use_sde=true
unknown key 'use_sde': use_sde is a name of Stable-Baselines3; in offbeat, there is no state-dependent exploration: leave it out. `offbeat list settings ppo` shows all keys.
$ offbeat train ppo CartPole-v1 --set env=Acrobot-v1
env is no setting: it is the second argument, after the algorithm
$ offbeat train ppo CartPole-v1 --set algorithm=a2c
algorithm is no setting: it is the first argument
$ offbeat train ppo CartPole-v1 --set preset=ppo-cartpole-fast
preset is no setting: pass --preset ppo-cartpole-fast
$ offbeat train ppo CartPole-v1 --set total_steps=9
unknown key 'total_steps'. It is a name of other libraries, and offbeat calls it steps: pass --steps 9. `offbeat list settings ppo` shows all keys.
$ offbeat train ppo CartPole-v1 1000
'1000' is not expected: `offbeat train` takes ALGO ENV. Settings are passed with --set key=value
$ offbeat train ppo CartPole-v1 --step 5
unknown flag '--step'. Did you mean '--steps'? `offbeat train --help` shows the flags.
$ offbeat train ppo CartPole-v1 --m 5
unknown flag '--m'. Did you mean '--max-lag'? `offbeat train --help` shows the flags.
$ offbeat train ppo CartPole-v1 --st 5
unknown flag '--st'. Did you mean '--steps' or '--stop-at' or '--stop-at-return'? `offbeat train --help` shows the flags.
$ offbeat train ppo CartPole-v1 --set gamma=0.9 -lr 0.1
unknown flag '-lr'. `offbeat train --help` shows the flags.
$ offbeat check CartPole-v1 --t
unknown flag '--t'. `offbeat check --help` shows the flags.
$ offbeat check CartPole-v1 --learning-rate 0.1
unknown flag '--learning-rate'. `offbeat check --help` shows the flags.
$ offbeat check CartPole-v1 --cuda
unknown flag '--cuda'. `offbeat check --help` shows the flags.
$ offbeat match a b -seed 3
unknown flag '-seed'. Did you mean '--seed'? `offbeat match --help` shows the flags.
$ offbeat plot a --hel
unknown flag '--hel'. Did you mean '--help'? `offbeat plot --help` shows the flags.
$ offbeat plot a --title -x
--title has no value: pass, for example, --title text
$ offbeat plot a --title '- a title' --stop
unknown flag '--stop'. `offbeat plot --help` shows the flags.
$ offbeat train ppo CartPole-v1 --stop-at-return -inf --stpes 3
unknown flag '--stpes'. Did you mean '--steps'? `offbeat train --help` shows the flags.
$ offbeat train ppo CartPole-v1 --run-dir ''
--run-dir is empty: pass, for example, --run-dir runs/NAME
$ offbeat train ppo CartPole-v1 --init-from=
--init-from is empty: pass, for example, --init-from runs/NAME
$ offbeat train ppo CartPole-v1 --steps None
--steps is None: leave it out, or pass, for example, --steps 1000000
$ offbeat train ppo CartPole-v1 --run-dir=None
--run-dir is None: leave it out, or pass, for example, --run-dir runs/NAME
$ offbeat resume a --steps None
--steps is None: leave it out, or pass, for example, --steps 1000000
$ offbeat eval ''
RUN is empty: pass, for example, runs/NAME
$ offbeat list envs --import ''
--import is empty: pass, for example, --import my_module
$ offbeat match a b --sides ''
--sides is empty: pass, for example, --sides red_*,blue_*
$ offbeat eval a --episodes 1e99
episodes is '1e99', but a whole number has at most 128 bits: pass, for example, --episodes 20
$ offbeat export a --out
--out has no value: pass, for example, --out policy.onnx
$ offbeat train ppo CartPole-v1 --steps
--steps has no value: pass, for example, --steps 1000000
$ offbeat train ppo CartPole-v1 --steps 5 --seed 1 --steps 6
--steps is given twice: pass it once
$ offbeat eval a --sampled --no-sampled
--sampled is given twice: pass it once
$ offbeat train ppo CartPole-v1 --steps --seed 1
--steps has no value: pass, for example, --steps 1000000
$ offbeat train ppo CartPole-v1 --set
--set has no value: pass, for example, --set learning_rate=0.001
$ offbeat train ppo CartPole-v1 --lr 0.1
unknown flag '--lr'. It is a name of RLlib, and offbeat calls it learning_rate: pass --set learning_rate=0.1. `offbeat train --help` shows the flags.
$ offbeat train ppo CartPole-v1 --n_envs=8
unknown flag '--n-envs'. It is a name of Stable-Baselines3 and garage, and offbeat calls it envs_per_actor: pass --envs-per-actor 8. `offbeat train --help` shows the flags.
$ offbeat train dqn CartPole-v1 --n-steps 3
unknown flag '--n-steps'. It is a name of Stable-Baselines3, and offbeat calls it n_step: pass --set n_step=3. `offbeat train --help` shows the flags.
$ offbeat train ppo CartPole-v1 --gamma=0.9
--gamma is not a flag, but a setting: pass --set gamma=0.9
$ offbeat train ppo CartPole-v1 --window 4
--window is not a flag, but a setting: pass --set league.window=4
$ offbeat train ppo CartPole-v1 --set window=4
unknown key 'window': it is a key of the table [league]: pass --set league.window=4. `offbeat list settings ppo` shows all keys.
$ offbeat train my-spec.toml
my-spec.toml is no algorithm: a spec file is run by `offbeat run my-spec.toml`
$ offbeat train --algorithm ppo CartPole-v1
--algorithm is not a flag: leave out --algorithm, as in offbeat train ppo CartPole-v1
$ offbeat train ppo --env CartPole-v1
--env is not a flag: leave out --env, as in offbeat train ppo CartPole-v1
$ offbeat train ppo CartPole-v1 --progress dash
progress is 'dash', but one of dashboard, lines, none is expected: pass, for example, --progress dashboard
$ offbeat eval
RUN is missing: run, for example, offbeat eval runs/NAME
$ offbeat eval a b
'b' is not expected: `offbeat eval` takes RUN
$ offbeat eval a --checkpoint
--checkpoint has no value: pass, for example, --checkpoint best
$ offbeat eval a --episodes x
episodes is 'x', but a whole number is expected: pass, for example, --episodes 20
$ offbeat eval a --seed None
seed is 'None', but a whole number is expected: pass, for example, --seed 0
$ offbeat plot a --x None
x is 'None', but one of steps, frames, time, episodes is expected: pass, for example, --x steps
$ offbeat check CartPole-v1 --steps 0
steps is 0, but at least 1 is expected: pass --steps 1 or more
$ offbeat eval a --json=true
--json=true has a value, but --json takes none: pass --json
$ offbeat plot
RUN... is missing: run, for example, offbeat plot runs/NAME
$ offbeat plot a --x tim
x is 'tim', but one of steps, frames, time, episodes is expected: pass, for example, --x steps
$ offbeat push a
REPO is missing: run, for example, offbeat push runs/NAME me/my-agent
$ offbeat push a --repo b/c
--repo is not a flag: leave out --repo, as in offbeat push runs/NAME me/my-agent
$ offbeat export a --format onx
format is 'onx', but one of onnx, torchscript is expected: pass, for example, --format onnx
$ offbeat bench ppo CartPole-v1 --seconds x
seconds is 'x', but a number is expected: pass, for example, --seconds 5
$ offbeat run x.toml --jobs 0
jobs is '0', but a whole number at least 1 is expected: pass, for example, --jobs 2
$ offbeat list
WHAT (one of envs, algorithms, runtimes, presets, settings) is missing: run, for example, offbeat list envs
$ offbeat list nothing
WHAT is 'nothing', but one of envs, algorithms, runtimes, presets, settings is expected: pass, for example, envs
$ offbeat doctor now
'now' is not expected: `offbeat doctor` takes no argument but flags
$ offbeat --helpp
unknown flag '--helpp'. Did you mean '--help'? `offbeat --help` lists the commands.
$ offbeat train ppo CartPole-v1 --set env.size=3
unknown key 'env.size': an argument of the env's constructor is env.kwargs.NAME, one in evaluations alone env.eval_kwargs.NAME, and other keys have no prefix. `offbeat list settings ppo` shows all keys.
$ offbeat train ppo CartPole-v1 --eval-kwargs size=3
--eval-kwargs is not a flag, but a setting: pass --set env.eval_kwargs.size=3
$ offbeat train ppo CartPole-v1 --set eval_kwargs=3
eval_kwargs is 3, but a table of numbers, booleans, text, and lists and tables of these is expected: pass, for example, --set env.eval_kwargs.NAME=VALUE
$ offbeat train ppo CartPole-v1 --set league.window=0
league.window is '0', but a whole number at least 1 is expected: pass, for example, --set league.window=10
$ offbeat train ppo CartPole-v1 --set hidden_sizes=64x64
hidden_sizes is '64x64', but a comma-separated list, each item a whole number at least 1, or none is expected: pass, for example, --set hidden_sizes=64,64
"""  # noqa: E501 - as a terminal shows it
ROWS = re.findall(r"^\$ offbeat (.*)\n(.*)$", TABLE, re.MULTILINE)


@pytest.mark.parametrize(("typed", "message"), ROWS, ids=[typed for typed, _ in ROWS])
def test_a_wrong_argument_is_answered_in_one_line_with_an_example(tmp_path, monkeypatch, typed, message):
    monkeypatch.chdir(tmp_path)
    said = offbeat(*shlex.split(typed))
    assert (said.code, said.out, said.err) == (2, "", f"offbeat: {message}\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_arguments_of_a_command_are_those_that_its_parser_takes(command, capsys):
    with pytest.raises(SystemExit):
        tyro.cli(COMMANDS[command], args=["--help"], prog="offbeat")
    parsed = set(re.findall(r"--[a-z][a-z-]*", capsys.readouterr().out)) - {"--help"}
    assert set(Usage(command, COMMANDS[command]).flags) <= parsed


@pytest.mark.parametrize(
    "typed",
    [
        "train ppo CartPole-v1 --steps 10 --set a=1 b=2 --set c=3 --import one --import two --progress none",
        "train ppo CartPole-v1 --eval_every=5 --run-dir=x --seed -1",
        "eval run --episodes 3 --sampled --json --no-trust-code",
        "match a b c --episodes 2 --json",
        "list envs",
        "list settings ppo --env CartPole-v1",
        "plot a b --x time --out c.png",
        "doctor",
        "train --help",
        "train --nonsense --help",
    ],
)
def test_right_arguments_are_accepted(typed):
    command, *rest = typed.split()
    assert Usage(command, COMMANDS[command]).check(rest) == rest


@pytest.mark.parametrize(
    ("command", "typed", "field", "value"),
    [
        ("plot", "a --out c.png b", "runs", (Path("a"), Path("b"))),
        ("match", "a --json b --seed 1 c", "runs", (Path("a"), Path("b"), Path("c"))),
        ("train", "--set=gamma=0.9 ppo CartPole-v1", "env", "CartPole-v1"),
    ],
)
def test_flags_may_stand_before_and_between_positional_arguments(command, typed, field, value):
    checked = Usage(command, COMMANDS[command]).check(typed.split())
    assert getattr(tyro.cli(COMMANDS[command], args=checked), field) == value


def test_whole_numbers_may_be_written_with_an_exponent_in_each_command():
    typed = ["run", "--json", "--episodes", "1e3", "--seed=2e0", "--env", "1e3"]
    read = ["run", "--json", "--episodes", "1000", "--seed=2", "--env", "1e3"]
    assert Usage("eval", COMMANDS["eval"]).check(typed) == read


def test_help_does_not_keep_the_line_breaks_of_the_source(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert "Default: window for one run, none for several." in offbeat("match", "--help").out


def test_a_checkpoint_is_given_by_its_name():
    usages = [argument.usage for name, cls in COMMANDS.items() for argument in Usage(name, cls).arguments]
    assert {usage for usage in usages if usage.startswith("--checkpoint ")} == {"--checkpoint NAME"}


def test_each_example_of_a_missing_argument_is_itself_accepted():
    for command, cls in COMMANDS.items():
        try:
            Usage(command, cls).check([])
        except ConfigError as error:
            example = str(error).partition(f"offbeat {command} ")[2]
            Usage(command, cls).check(example.split())
