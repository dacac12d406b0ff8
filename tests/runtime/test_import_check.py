"""Before a run starts, it is checked whether other processes find an env that is not sent to them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from tests.support.registries import registries_kept
from tests.support.runs import lines_of, small_run

from offbeat.core.errors import ConfigError

MODULE = "tests.sample_envs.late_registration"
NOW, LATE = "registered/Now-v0", "registered/Late-v0"
RUN: dict[str, Any] = {"imports": (MODULE,), "steps": 64, "envs_per_actor": 2}


@pytest.fixture(autouse=True)
def _envs_of_this_program() -> Iterator[None]:
    with registries_kept(MODULE):
        import_module(MODULE).register_late()
        yield


@pytest.mark.parametrize(
    "layout",
    [{"runtime": "processes", "actors": 1}, {"runtime": "hogwild", "algorithm": "a2c", "workers": 1}],
    ids=lambda layout: layout["runtime"],
)
def test_an_env_that_no_import_registers_is_refused_before_a_run_in_processes(tmp_path, layout):
    with pytest.raises(ConfigError) as refused:
        small_run(tmp_path / "run", LATE, **RUN, **layout)
    said = str(refused.value)
    assert f"{LATE} is not registered by importing {MODULE}: call gymnasium.register at the top level" in said
    assert "or pass --runtime threads or --runtime serial" in said
    assert not (tmp_path / "run").exists()


def test_an_env_that_an_import_registers_is_trained_in_processes(tmp_path):
    run = small_run(tmp_path / "run", NOW, **RUN, runtime="processes", actors=1)
    assert run.state == "finished"
    assert lines_of(tmp_path / "run")[-1]["actor_restarts"] == 0


def test_an_env_that_no_import_registers_is_evaluated_in_the_process_of_the_learner(tmp_path, capsys):
    evaluations = {"eval_every": 64, "eval_episodes": 1, "progress": "lines"}
    run = small_run(tmp_path / "run", LATE, **{**RUN, **evaluations})
    assert run.state == "finished"
    said = capsys.readouterr().err
    assert f"an env that hangs stops the run: {LATE} is not registered by importing {MODULE}" in said
    assert lines_of(tmp_path / "run")[-1]["evaluations"] == 1
