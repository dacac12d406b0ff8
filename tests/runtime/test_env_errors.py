"""Where an env of the user's raises, the user sees the lines of their own code, and log.txt has all lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
from gymnasium.envs.registration import EnvSpec
from tests.sample_envs import raising_envs
from tests.sample_envs.run_envs import Wave
from tests.support.runs import CommandResult, offbeat, small_arguments, small_run

from offbeat.api.check import check
from offbeat.api.train import train
from offbeat.config.resolve import resolve
from offbeat.core.errors import ConfigError, EnvFailed, RunFailed
from offbeat.envs.make import make_envs
from offbeat.runtime import tested_envs

IMPORTS: dict[str, Any] = {"imports": ("tests.sample_envs.raising_envs",)}
OWN = Path(raising_envs.__file__).name


def said_of(tmp_path: Path, kind: type, **settings: Any) -> CommandResult:
    """Return what a person sees who trains on an env of this kind."""
    return offbeat(*small_arguments(tmp_path / "run", f"raising/{kind.__name__}-v0", **IMPORTS, **settings))


def frames_in(text: str) -> list[str]:
    """Return the names of the files of a traceback, in order."""
    lines = (line for line in text.splitlines() if line.startswith('  File "'))
    return [Path(line.split('"')[1]).name for line in lines]


@pytest.mark.parametrize("runtime", ["serial", "threads", "processes"])
def test_an_env_error_in_training_shows_only_lines_of_the_env(tmp_path, runtime):
    budget = {"restart_budget": 0, "actors": 1} if runtime == "processes" else {"actors": 1}
    said = said_of(tmp_path, raising_envs.RaisesLate, runtime=runtime, **budget)
    assert said.code == 1
    assert "step() raised ZeroDivisionError: float division by zero" in said.err
    assert frames_in(said.err) == [OWN, OWN]
    assert "in length_of" in said.err
    assert "return 1.0 / len(shares)" in said.err


def test_restarts_show_the_lines_of_the_env_once_and_log_every_traceback(tmp_path):
    settings = {"runtime": "processes", "actors": 1, "restart_budget": 2, "checkpoint_every": 64}
    said = said_of(tmp_path, raising_envs.RaisesLate, **settings)
    assert said.code == 1
    assert "restart 2 of 2" in said.err
    assert frames_in(said.err) == 2 * [OWN, OWN], "the first time, and at the end"
    logged = frames_in((tmp_path / "run" / "log.txt").read_text())
    assert {"actor.py", "supervisor.py", OWN} <= set(logged)
    assert logged.count("actor_process.py") == 3, "of two restarts, and of the end"


@pytest.mark.parametrize(
    "layout",
    [{"runtime": "processes", "actors": 1}, {"algorithm": "a2c", "runtime": "hogwild", "workers": 1}],
    ids=lambda layout: layout["runtime"],
)
def test_the_error_of_an_env_is_shown_if_the_env_then_hangs_in_close(tmp_path, layout):
    kind = f"raising/{raising_envs.HangsInCloseOnceRaised.__name__}-v0"
    limits = {"restart_budget": 0, "step_timeout_s": 1, "reset_timeout_s": 1}
    with pytest.raises(RunFailed, match="had an error and did not close in time") as failed:
        small_run(tmp_path / "run", kind, **IMPORTS, **limits, **layout)
    assert frames_in("\n".join(failed.value.__notes__)) == [OWN, OWN]
    assert "step() raised ZeroDivisionError" in (tmp_path / "run" / "log.txt").read_text()


def test_the_progress_counts_restarts_before_the_next_learning_step(tmp_path):
    settings = {"runtime": "processes", "actors": 1, "restart_budget": 2, "unroll_length": 128}
    said = said_of(tmp_path, raising_envs.RaisesLate, **settings)
    assert re.search(r"collecting the first batch .*  [12] restarts?$", said.err, re.MULTILINE)


@pytest.mark.parametrize("kind", [raising_envs.RaisesAtOnce, raising_envs.RaisesInReset, raising_envs.RaisesWhenMade])
def test_an_env_error_before_training_shows_only_lines_of_the_env(tmp_path, kind):
    said = said_of(tmp_path, kind)
    assert said.code == 2
    assert set(frames_in(said.err)) == {OWN}
    assert "return 1.0 / len(shares)" in said.err


class Counted(Wave):
    """At most `most` of them can be made. Knows how many are open."""

    made = opened = most = 0

    def __init__(self, **_arguments: Any) -> None:
        if Counted.made == Counted.most:
            raise ConnectionError("no port is free")
        Counted.made += 1
        Counted.opened += 1

    def close(self) -> None:
        Counted.opened -= 1


@pytest.mark.parametrize("most", [1, 3, 5], ids=["in a group", "in another group", "in another actor"])
@pytest.mark.parametrize("runtime", ["serial", "threads"])
def test_if_an_env_cannot_be_made_those_before_it_are_closed(tmp_path, runtime, most):
    Counted.made, Counted.opened, Counted.most = 0, 0, 1 + most  # one is made and closed before the run
    gym.register("raising/Counted-v0", Counted)
    try:
        with pytest.raises(ConfigError, match="no port is free"):
            small_run(tmp_path / "run", "raising/Counted-v0", runtime=runtime, actors=2, env_groups=2)
    finally:
        del gym.registry["raising/Counted-v0"]
    assert (Counted.made, Counted.opened) == (1 + most, 0)


class Stuck(Counted):
    """Raises in `close`, but not when it was made alone, to be tried."""

    def close(self) -> None:
        super().close()
        if Counted.made > 1:
            raise OSError("it is stuck")


@pytest.mark.parametrize("runtime", ["serial", "threads"])
@pytest.mark.filterwarnings("error:.*it is stuck")
def test_all_envs_are_closed_if_the_close_of_each_raises_and_warnings_are_errors(tmp_path, monkeypatch, runtime):
    Counted.made, Counted.opened, Counted.most = 0, 0, 9
    monkeypatch.setitem(gym.registry, "raising/Stuck-v0", EnvSpec("raising/Stuck-v0", Stuck))
    with pytest.raises(UserWarning, match="it is stuck"):
        small_run(tmp_path / "run", "raising/Stuck-v0", runtime=runtime, actors=2, env_groups=2, steps=128)
    assert (Counted.made, Counted.opened) == (9, 0)


def test_an_env_error_is_shown_with_its_cause_in_user_code(tmp_path):
    said = said_of(tmp_path, raising_envs.RaisesAfterMistake)
    assert frames_in(said.err) == [OWN, OWN, OWN]
    shown = said.err[said.err.index("Traceback") :]
    assert shown.index("ZeroDivisionError: float") < shown.index("direct cause") < shown.index("ValueError: no shares")


def test_an_env_error_in_an_evaluation_has_the_lines_of_the_env():
    envs = make_envs("raising/RaisesInReset-v0", 1, seed=0, role="evaluation")
    with pytest.raises(EnvFailed, match="ZeroDivisionError") as caught:
        envs.reset()
    assert frames_in("\n".join(caught.value.__notes__)) == [OWN, OWN]


def test_an_env_error_raised_by_train_has_the_lines_of_the_env(tmp_path):
    with pytest.raises(ConfigError, match="ZeroDivisionError") as caught:
        small_run(tmp_path / "run", "raising/RaisesAtOnce-v0", **IMPORTS)
    assert frames_in("\n".join(caught.value.__notes__)) == [OWN, OWN]


def test_an_error_in_an_imported_module_shows_the_lines_of_that_module(tmp_path, monkeypatch):
    (tmp_path / "broken_module.py").write_text("import json\n\njson.loads('nothing')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="broken_module") as caught:
        train("ppo", "CartPole-v1", imports=("broken_module",))
    assert frames_in("\n".join(caught.value.__notes__))[0] == "broken_module.py"


class SetsDefaultDtype(Wave):
    """Computes in float64, and sets torch's default dtype to do so."""

    def __init__(self, **_: Any) -> None:
        torch.set_default_dtype(torch.float64)


@pytest.mark.parametrize(
    "step_env",
    [lambda env: tested_envs.tested_env(resolve("ppo", env, flags={}), (), print), lambda env: check(env, steps=1)],
)
def test_an_env_that_sets_the_default_dtype_of_torch_is_refused_with_the_remedy(step_env, monkeypatch):
    monkeypatch.setitem(gym.registry, "Float64-v0", EnvSpec("Float64-v0", entry_point=SetsDefaultDtype))
    before = torch.get_default_dtype()
    try:
        with pytest.raises(ConfigError, match=r"default dtype is torch\.float64.*Float64-v0.*pass dtype="):
            step_env("Float64-v0")
    finally:
        torch.set_default_dtype(before)
