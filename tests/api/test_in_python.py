"""What a user of Python sees: names, representations, paths and progress."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from rlcompleter import Completer
from typing import Any

import pytest
from tests.support.own_code import make_pole
from tests.support.runs import loaded_by, small_run

import offbeat
from offbeat.algorithms.ppo import PPO
from offbeat.api.named_code import name_of_algorithm
from offbeat.cli.eval import Eval
from offbeat.cli.main import COMMANDS, _parse
from offbeat.config.resolve import resolve
from offbeat.core.argument_notation import flags_shown
from offbeat.core.errors import ConfigError
from offbeat.core.files import user_path


def test_dir_lists_exactly_the_public_names():
    assert dir(offbeat) == sorted([*offbeat.__all__, "__version__"])


def test_completion_shows_the_public_names():
    completer = Completer({"offbeat": offbeat})
    completer.complete("offbeat.", 0)
    shown = {name.removeprefix("offbeat.").rstrip("()") for name in vars(completer)["matches"]}
    assert shown >= set(offbeat.__all__)


def test_dir_and_completion_import_no_torch():
    code = (
        "import offbeat, rlcompleter\ndir(offbeat)\nrlcompleter.Completer({'offbeat': offbeat}).complete('offbeat.', 0)"
    )
    assert "torch" not in loaded_by(code)


def test_a_run_is_shown_in_one_line(tmp_path):
    run = small_run(tmp_path / "run", steps=64, eval_every=64, eval_episodes=1)
    reached = f"env_steps=64, eval_return_mean={run.metrics['eval_return_mean']:.6g}"
    assert repr(run) == f"Run('{tmp_path}/run', 'finished', {reached})"


def test_train_and_resume_print_lines_to_standard_error_unless_they_are_told_otherwise(tmp_path, capsys):
    settings = {key: value for key, value in NEW.items() if key != "progress"}
    offbeat.train("ppo", "CartPole-v1", run_dir=tmp_path / "run", eval_every=0, **settings)
    offbeat.resume(tmp_path / "run", steps=128)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("ppo on CartPole-v1") == 2
    assert "100% 64/64 env steps" in printed.err
    assert re.search(r"100% \d+/128 env steps", printed.err)


def test_a_class_that_is_built_in_is_the_algorithm_of_its_name():
    assert name_of_algorithm(PPO) == "ppo"
    assert name_of_algorithm(Subclass) == f"{__name__}:Subclass"


class Subclass(PPO):
    """An algorithm of a user."""


def test_train_and_resume_tell_how_the_run_ended_and_how_to_continue_it(tmp_path, capsys):
    settings = {key: value for key, value in NEW.items() if key not in ("progress", "steps")}
    path = tmp_path / "my run"
    with flags_shown(False):
        offbeat.train("ppo", make_pole, run_dir=path, eval_every=0, steps=128, stop_at=64, **settings)
    printed = capsys.readouterr().err
    call = f'`offbeat.resume("{path}", trust_code=True)`'  # the env is a function
    assert printed.endswith(f"interrupted: stopped at stop_at=64; {call} continues it\n")
    offbeat.resume(path)
    ended = r"\nfinished: learned from \d+ env steps: steps is 128, rounded up to whole batches\n$"
    assert re.search(ended, capsys.readouterr().err)


# --- the home directory ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home directory with a run in it."""
    path = tmp_path_factory.mktemp("home")
    small_run(path / "run", steps=64, eval_every=64, eval_episodes=1)
    (path / "policies.toml").write_text('[policies.all]\nagents = "*"\n')
    return path


@pytest.fixture
def in_home(home, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    yield home
    assert not list(tmp_path.iterdir()), "a path with ~ was taken as it is"


def test_a_run_is_accepted_where_a_run_directory_is(tmp_path):
    run = small_run(tmp_path / "run", steps=64)
    assert offbeat.load(run).trained.env_steps == 64
    assert offbeat.resume(run, steps=128, progress="none").metrics["env_steps"] >= 128
    with pytest.raises(ConfigError, match="one agent"):
        offbeat.match([run])


def test_export_names_the_file_itself(tmp_path):
    run = small_run(tmp_path / "run", steps=64)
    exported = offbeat.export(run, format="torchscript")
    assert exported.file == run.path / "policy.pt"
    assert repr(exported) == f"Exported('{run.path}/policy.pt', 'torchscript', ppo on CartPole-v1, env_steps=64)"


def test_user_path_replaces_the_home_directory_and_refuses_one_of_nobody(in_home):
    assert user_path("~/run") == in_home / "run"
    assert user_path(Path("a~/run")) == Path("a~/run")
    with pytest.raises(ConfigError, match="a user who does not exist"):
        user_path("~nobody-of-this-name/run")
    with pytest.raises(ConfigError, match="3 is given as a path, but text or a Path is expected"):
        user_path(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"the path 'r.udcff' has bytes that are not UTF-8"):
        user_path(os.fsdecode(b"r\xff"))
    with pytest.raises(ConfigError, match="run is 3, but a run directory or a Run is expected"):
        offbeat.load(3)  # type: ignore[arg-type]


NEW: dict[str, Any] = {"steps": 64, "envs_per_actor": 4, "unroll_length": 16, "minibatch_size": 32, "progress": "none"}
USES: dict[str, Callable[[], object]] = {
    "train(run_dir)": lambda: offbeat.train("ppo", "CartPole-v1", run_dir="~/new", **NEW),
    "train(policies)": lambda: resolve("ppo", "CartPole-v1", flags={"policies": "~/policies.toml"}),
    "train(init_from)": lambda: small_run(Path("~/from"), init_from="~/run", steps=64),
    "resume": lambda: offbeat.resume("~/run", steps=128),
    "load": lambda: offbeat.load("~/run"),
    "load_all": lambda: offbeat.load_all(Path("~/run")),
    "export": lambda: offbeat.export("~/run", "~/policy.pt", format="torchscript"),
    "load_snapshots": lambda: offbeat.load_snapshots("~/run"),
    "eval": lambda: Eval("~/run", episodes=1).run(),
}


@pytest.mark.usefixtures("in_home")
@pytest.mark.parametrize("use", USES)
def test_python_replaces_the_home_directory_in_paths(use):
    USES[use]()


COMMANDS_WITH_PATHS = [
    "train ppo CartPole-v1 --run-dir ~/new",
    "train ppo CartPole-v1 --run-dir=~/new",
    "resume ~/run",
    "watch RUN --video ~/episode.mp4",
    "match ~/run ~/other --out ~/wins.png --ratings ~/elo.png",
    "plot ~/run ~/other --out ~/return.png",
    "push ~/run user/name",
    "export runs/NAME --out ~/policy.onnx",
    "run ~/spec.toml --dir ~/experiment",
]


@pytest.mark.parametrize("command", COMMANDS_WITH_PATHS)
def test_the_command_line_replaces_the_home_directory_in_paths(in_home, command):
    parsed = _parse(command.split())
    values = [getattr(parsed, field.name) for field in fields(parsed)]
    paths = [path for value in values for path in (value if isinstance(value, tuple) else (value,))]
    given = [str(path) for path in paths if isinstance(path, Path)]
    assert len(given) == command.count("~")
    assert all(path.startswith(f"{in_home}/") for path in given)


def test_all_commands_with_paths_are_tested():
    with_paths = {name for name, kind in COMMANDS.items() if any("Path" in str(each.type) for each in fields(kind))}
    assert with_paths <= {command.split()[0] for command in COMMANDS_WITH_PATHS}
