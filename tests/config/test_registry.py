"""Names that users give to code of their own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
from tests.support.own_code import CarefulConfig, CarefulDQN, Pole, Rows, make_pole
from tests.support.registries import registries_kept
from tests.support.runs import CommandResult, offbeat, weights_of
from tests.support.thorough import thorough

from offbeat.algorithms.dqn import DQN, DQNConfig
from offbeat.api.resume import resume
from offbeat.api.train import Run, train
from offbeat.config import registry
from offbeat.config.config_file import load
from offbeat.config.env import EnvConfig
from offbeat.config.registry import algorithm_title, encoder_factory, register_algorithm, register_encoder
from offbeat.config.resolve import setting_names
from offbeat.core.errors import ConfigError

CODE, NAMES = "tests.support.own_code", "tests.support.own_names"
SMALL: dict[str, Any] = {
    "steps": 160,
    "warmup": 64,
    "batch_size": 32,
    "capacity": 500,
    "chunk_length": 4,
    "envs_per_actor": 2,
    "hidden_sizes": (8,),
    "ema_rate": 0.1,
    "ema_every": 1,
    "eval_every": 0,
    "checkpoint_every": 0,
}
TYPED = ["--set", *(f"{key}={value if key != 'hidden_sizes' else 8}" for key, value in SMALL.items())]


@pytest.fixture(autouse=True)
def _registries() -> Iterator[None]:
    with registries_kept(NAMES):
        yield


def forget() -> None:
    """Be as a program that has just been started: with nothing of the user's imported."""
    for names, own in ((registry.ALGORITHMS, "careful"), (registry.ENCODERS, "rows"), (gym.registry, "own/Pole-v0")):
        names.pop(own, None)
    sys.modules.pop(NAMES, None)


def typed(*arguments: Any) -> CommandResult:
    """Type a command for a program that has just been started."""
    forget()
    said = offbeat(*arguments)
    assert said.code == 0, said
    return said


def small_run(path: Path, algorithm: Any, env: Any = "CartPole-v1", **settings: Any) -> Run:
    return train(algorithm, env, run_dir=path, **{**SMALL, **settings})


# --- algorithms ---------------------------------------------------------------------------------------------


def test_an_algorithm_trains_the_same_by_name_by_import_path_and_as_a_class(tmp_path):
    register_algorithm("careful", CarefulDQN)
    names = {"name": "careful", "place": f"{CODE}:CarefulDQN", "class": CarefulDQN}
    runs = {way: small_run(tmp_path / way, algorithm, doubt=0.5) for way, algorithm in names.items()}
    assert len({weights_of(run.path) for run in runs.values()}) == 1
    for way, run in runs.items():
        saved = load(run.path / "config.toml")
        assert saved.run.algorithm == ("careful" if way == "name" else f"{CODE}:CarefulDQN")
        assert isinstance(saved.algorithm_settings, CarefulConfig)
        assert saved.algorithm_settings.doubt == run.metrics["doubt"] == 0.5
    assert weights_of(small_run(tmp_path / "other", "careful").path) != weights_of(runs["name"].path)


def test_settings_of_a_registered_algorithm_are_known_and_validated(tmp_path):
    register_algorithm("careful", CarefulDQN)
    assert "doubt" in setting_names()
    with pytest.raises(ConfigError, match=r"unknown key 'dout'. Did you mean 'doubt'"):
        small_run(tmp_path / "run", "careful", dout=1)
    with pytest.raises(ConfigError, match="doubt is 2, but a number at least 0 and at most 1"):
        small_run(tmp_path / "run", "careful", doubt=2)


def test_an_algorithm_that_cannot_be_imported_does_not_change_what_is_said_of_an_unknown_key(tmp_path):
    register_algorithm("lost", "not_there:Lost")
    for typed, key in (("learing_rate", "learning_rate"), ("exploration_final_eps", "final_epsilon")):
        with pytest.raises(ConfigError, match=f"unknown key '{typed}'.*{key}"):
            small_run(tmp_path / "run", "dqn", **{typed: 1})
    assert "unknown flag '--learing'" in offbeat("train", "dqn", "CartPole-v1", "--learing", 1).err


@pytest.mark.parametrize("algorithm", ["careful", *thorough(CarefulDQN)])
def test_worker_processes_find_a_registered_algorithm(tmp_path, algorithm):
    settings: dict[str, Any] = {"imports": (NAMES,)} if algorithm == "careful" else {}
    serial = small_run(tmp_path / "serial", algorithm, **settings)
    forget()
    settings |= {"runtime": "hogwild", "workers": 1}
    stopped = small_run(tmp_path / "run", algorithm, **settings, stop_at=100)
    forget()
    assert resume(stopped.path).state == "finished"
    assert weights_of(stopped.path) == weights_of(serial.path)


def test_every_command_finds_what_an_imported_module_registers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    imports, exact = ("--import", NAMES), ("max_ahead=1", "--lag", "exact", "--runtime")
    for runtime in ("serial", "processes"):
        typed("train", "careful", "own/Pole-v0", *imports, "--run-dir", runtime, *TYPED, *exact, runtime)
    assert weights_of(Path("serial")) == weights_of(Path("processes"))
    typed("resume", "processes", "--steps", 200)
    assert "own/Pole-v0, greedy" in typed("eval", "processes", "--episodes", 2).out
    assert "careful  DQN that doubts what it sees\n" in typed("list", "algorithms", *imports).out
    assert "own/Pole-v0\n" in typed("list", "envs", *imports).out
    top = f'algorithm = "careful"\nenv = "own/Pole-v0"\nseeds = [1]\nimports = ["{NAMES}"]\n'
    Path("spec.toml").write_text(f"{top}[search.over]\ndoubt = [0, 0.5]\n")
    assert "2 sessions" in typed("run", "spec.toml", "--dry-run").out


def test_an_algorithm_of_a_module_that_is_not_imported_is_refused_with_the_remedy():
    said = offbeat("train", "careful", "CartPole-v1")
    assert said.code == 2
    assert "unknown algorithm 'careful'" in said.err
    assert "pass my_module:MyAlgorithm, or --import my_module if that module registers it" in said.err


@dataclass(frozen=True)
class TakenConfig(DQNConfig):
    """Has a key that each run has."""

    seed: int = 3


class Taken(DQN):
    config_class = TakenConfig


class PlainConfig(DQNConfig):
    doubt: float = 0.25


class Plain(DQN):
    config_class = PlainConfig


@dataclass(frozen=True)
class ListsConfig(DQNConfig):
    sizes: list[int] = field(default_factory=list)


class Lists(DQN):
    config_class = ListsConfig


@dataclass(frozen=True)
class EitherConfig(DQNConfig):
    start: int | str = 3


class Either(DQN):
    config_class = EitherConfig


@dataclass(frozen=True)
class NoDefaultConfig(DQNConfig):
    doubt: float = field(kw_only=True)


class NoDefault(DQN):
    config_class = NoDefaultConfig  # type: ignore[assignment]


class Unset(DQN):
    config_class = None  # type: ignore[assignment]


class Foreign(DQN):
    config_class = EnvConfig  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("dqn", CarefulDQN),
            f"'dqn' is already the name of offbeat.algorithms.dqn:DQN: register {CODE}",
        ),
        (("runtime", CarefulDQN), "'runtime' is already the name of a table of the config"),
        (("My Algorithm", CarefulDQN), "'My Algorithm' cannot be the name of the algorithm.*'my_algorithm'"),
        (("careful", "my_module"), "'my_module' is not the path of the algorithm: pass 'my_module:MyClass'"),
        (("careful", Plain), r"PlainConfig is not a dataclass: write @dataclass\(frozen=True\) above it"),
        (("careful", Lists), r"ListsConfig.sizes has the type list\[int\], .* write int, .*tuple\[T, ...\]"),
        (("careful", Either), r"EitherConfig.start has the type int \| str, which no setting can have"),
        (("careful", Unset), "Unset has config_class None.*`config_class = MyConfig`"),
        (("careful", Foreign), "Foreign has config_class .*EnvConfig.* extends ReplayConfig or OnPolicyConfig"),
        (("careful", make_pole), "make_pole.*but a class is expected"),
    ],
)
def test_registering_an_invalid_algorithm_or_a_taken_name_is_refused(arguments, words):
    with pytest.raises(ConfigError, match=words):
        register_algorithm(*arguments)
    assert "careful" not in registry.ALGORITHMS


def test_registering_the_same_algorithm_again_is_allowed():
    register_algorithm("careful", CarefulDQN, "one")
    register_algorithm("careful", CarefulDQN, "other")
    assert registry.ALGORITHMS["careful"].summary == "other"


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        (
            Taken,
            "registry:Taken has a setting seed, which is already a setting of every run: rename the algorithm's",
        ),
        (NoDefault, "registry:NoDefault has a setting doubt without a default: pass it, .*--set doubt=0.5"),
        (f"{CODE}:CarfulDQN", f"{CODE}:CarfulDQN does not exist: {CODE} has no CarfulDQN. Did you mean 'CarefulDQN'"),
        ("no_module:DQN", "the module no_module cannot be imported .ModuleNotFoundError.*PYTHONPATH"),
        (CarefulConfig(), "algorithm is CarefulConfig.*but a name is expected, or a class or function"),
    ],
)
def test_an_algorithm_that_cannot_be_trained_is_refused_before_the_run_starts(tmp_path, algorithm, words):
    with pytest.raises(ConfigError, match=words):
        small_run(tmp_path / "run", algorithm)
    assert not any(tmp_path.iterdir())


def test_a_local_class_can_be_trained_by_name_but_not_in_other_processes(tmp_path):
    class Local(CarefulDQN):
        pass

    with pytest.raises(
        ConfigError, match=r"not a class or function at the top level of a module.*offbeat.register_algorithm\("
    ):
        small_run(tmp_path / "run", Local)
    register_algorithm("local", Local)
    assert small_run(tmp_path / "serial", "local").state == "finished"
    with pytest.raises(ConfigError, match=r"local, the class .*Local, cannot be sent .*my_module:Local; or pass --run"):
        small_run(tmp_path / "run", "local", runtime="hogwild", workers=1)
    assert not (tmp_path / "run").exists()


# --- envs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env", [Pole, *thorough(make_pole)])
def test_an_env_class_or_function_is_trained_in_processes_and_evaluated_by_its_import_path(tmp_path, env):
    serial = small_run(tmp_path / "serial", "dqn", env, lag="exact")
    run = small_run(tmp_path / "run", "dqn", env, lag="exact", runtime="processes", max_ahead=0)
    assert weights_of(run.path) == weights_of(serial.path)
    said = offbeat("eval", run.path, "--episodes", 1)
    assert said.out.startswith(f"{CODE}:{env.__name__}, greedy")


# --- encoders -----------------------------------------------------------------------------------------------


def test_an_encoder_is_found_by_name_and_by_import_path():
    register_encoder("rows", Rows)
    register_encoder("later", f"{CODE}:Rows")
    for name in ("rows", "later", f"{CODE}:Rows"):
        module = encoder_factory(name)("what is observed")
        assert module(torch.zeros(2, 3, 4)).shape == (2, 12)
        assert module.leaf == "what is observed"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("Rows", Rows), "'Rows' cannot be the name of the encoder"),
        (("rows", Rows(None)), r"the encoder rows is Rows Rows\(\), but a class or a function is expected"),
        (("rows", 5), "the encoder rows is int 5, but a class"),
        (("rows", "Rows"), "'Rows' is not the path of the encoder"),
        (("taken", Rows), f"'taken' is already the name of {CODE}:make_pole"),
    ],
)
def test_registering_an_invalid_encoder_is_refused(arguments, words):
    register_encoder("taken", f"{CODE}:make_pole")
    with pytest.raises(ConfigError, match=words):
        register_encoder(*arguments)


def test_an_unknown_encoder_is_refused_with_the_nearest_name():
    register_encoder("rows", Rows)
    with pytest.raises(ConfigError, match=r"unknown encoder 'row'. Did you mean 'rows'.*my_module:MyEncoder"):
        encoder_factory("row")


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("ppo", "PPO"),
        ("crossq", "CrossQ"),
        ("my_ppo", "my_ppo"),
        ("my_module:MyPPO", "MyPPO"),
        ("a.b:Outer.Own", "Outer.Own"),
        ("?", "?"),
    ],
)
def test_an_algorithm_is_titled_with_the_name_of_its_class_or_the_name_that_its_author_has_given(name, title):
    assert algorithm_title(name) == title
