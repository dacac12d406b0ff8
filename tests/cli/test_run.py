"""`offbeat run`: what it refuses, changing nothing, and what it would do."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.support.runs import contents, files_up_to, offbeat, small_run
from tests.support.specs import TINY, grid, spec_text, write_spec
from tests.support.warm import REPOSITORY

from offbeat.cli import main
from offbeat.cli.run import RunSpec, _PopulationCommand
from offbeat.population.population import PopulationResult


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """A folder with a finished experiment of one session, its spec, and other things."""
    folder = tmp_path_factory.mktemp("prepared")
    write_spec(folder / "spec.toml", seeds=[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PYTHONPATH", str(REPOSITORY), prepend=os.pathsep)
        assert offbeat("run", "spec.toml", "--progress", "none").code == 0
    (folder / "mine").mkdir()
    (folder / "mine/notes.txt").write_text("mine")
    return folder


@pytest.fixture
def folder(prepared, tmp_path, monkeypatch) -> Path:
    shutil.copytree(prepared, tmp_path / "here", symlinks=True)
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def refused(folder: Path, *arguments: str) -> str:
    before = contents(folder)
    said = offbeat("run", *arguments, "--progress", "none")
    assert said.code == 2, said
    assert "Traceback" not in said.err
    assert contents(folder) == before
    return said.err


SPECS: list[tuple[dict[str, Any], list[str]]] = [
    ({"settings": {"learning_rat": 0.1}}, ["unknown key 'learning_rat'", "'learning_rate'"]),
    ({"search": grid(learning_rat=[0.1, 0.2])}, ["unknown key 'learning_rat'", "'learning_rate'"]),
    ({"search": grid(gamma=[0.9, 1.5])}, ["gamma is 1.5", "at most 1"]),
    ({"env": "CartPol-v1"}, ["'CartPol-v1'", "'CartPole-v1'"]),
    ({"env": None, "envs": ["CartPole-v1", "Acrobt-v1"]}, ["'Acrobt-v1'", "'Acrobot-v1'"]),
    ({"preset": "ppo-cartpol"}, ["'ppo-cartpol'", "'ppo-cartpole-v1'"]),
    ({"imports": ["no_such_module"]}, ["no_such_module"]),
    ({"settings": {"init_from": "nowhere"}}, ["nowhere is not a run directory"]),
    ({"algorithm": "sac", "settings": {"target_entropy": 0.7}}, ["target_entropy is 0.7"]),
]


if not torch.cuda.is_available():
    SPECS.append(({"settings": {"device": "cuda"}}, ["no CUDA GPU", 'device = "cpu"']))


@pytest.mark.parametrize(("changes", "says"), SPECS, ids=lambda part: str(part)[:50])
@pytest.mark.parametrize("more", [(), ("--dry-run",)], ids=["run", "dry-run"])
def test_an_invalid_spec_is_refused_before_any_file_is_created(folder, changes, says, more):
    write_spec(folder / "bad.toml", **changes)
    told = refused(folder, "bad.toml", *more)
    assert [fragment for fragment in says if fragment not in told] == [], told


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none.toml"], ["none.toml cannot be read"]),
        (["spec.toml", "--dir", "mine"], ["mine exists but is not an experiment", "--dir"]),
        (["spec.toml", "--dir", "spec.toml"], ["spec.toml exists but is not an experiment"]),
        (["spec.toml", "--dir", "spec.toml/new"], ["spec.toml/new cannot be created"]),
        (["spec.toml", "--jobs", "0"], ["jobs", "at least 1"]),
        (["spec.toml", "--jobs", "many"], ["jobs", "'many'"]),
        (["spec.toml", "--cpus", "2"], ["--cpus needs --on ray"]),
        (["spec.toml", "--ray-address", "auto"], ["--ray-address needs --on ray"]),
        (["spec.toml", "--on", "ray", "--cpus", "0"], ["cpus", "more than 0"]),
        (["spec.toml", "--on", "ray", "--gpus", "1.5"], ["gpus is 1.5", "fractions only below 1: pass 2"]),
        (["spec.toml", "--on", "ray", "--resources", "fast"], ["resources is 'fast'", "NAME=AMOUNT", "fast=1"]),
        (["spec.toml", "--on", "ray", "--resources", "fast=1,"], ["resources is 'fast=1,'", "NAME=AMOUNT"]),
        (["spec.toml", "--on", "ray", "--resources", "fast=1,fast=2"], ["has fast twice", "pass it once"]),
        (["spec.toml", "--on", "ray", "--resources", "GPU=1"], ["pass --gpus 1"]),
        (["spec.toml", "--on", "ray", "--resources", "memory=1"], ["has memory, which is not a custom resource"]),
    ],
    ids=" ".join,
)
def test_invalid_arguments_of_run_are_refused(folder, arguments, says):
    told = refused(folder, *arguments)
    assert [fragment for fragment in says if fragment not in told] == [], told


def other_setting(folder: Path) -> None:
    write_spec(folder / "spec.toml", seeds=[1], settings={**TINY, "epochs": 3})


def other_search(folder: Path) -> None:
    write_spec(folder / "spec.toml", seeds=[1], search=grid(gamma=[0.9]))


def fewer_seeds(folder: Path) -> None:
    write_spec(folder / "spec.toml", seeds=[2])


def changed_trial(folder: Path) -> None:
    file = folder / "experiments/spec/trial-000/trial.toml"
    file.write_text(file.read_text().replace("gamma = 0.98", "gamma = 0.5"))


def other_session(folder: Path) -> None:
    run = folder / "experiments/spec/trial-000/seed-1"
    shutil.rmtree(run)
    small_run(run, **{**TINY, "gamma": 0.5, "seed": 1})


def session_of_another_seed(folder: Path) -> None:
    run = folder / "experiments/spec/trial-000/seed-1"
    config = run / "config.toml"
    config.write_text(config.read_text().replace("seed = 1", "seed = 5"))


def session_of_another_algorithm(folder: Path) -> None:
    run = folder / "experiments/spec/trial-000/seed-1"
    shutil.rmtree(run)
    small_run(run, algorithm="a2c", steps=64, seed=1)


def no_record(folder: Path) -> None:
    (folder / "experiments/spec/experiment.json").write_text("{")


def another_record(folder: Path) -> None:
    (folder / "experiments/spec/experiment.json").write_text('{"spec": 5}')


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (
            other_setting,
            ["experiments/spec contains another experiment", "settings.epochs was 2 and is 3 now.", "--dir"],
        ),
        (other_search, ["contains another experiment", "search was not given"]),
        (fewer_seeds, ["has the seeds [1]", "lacks [1]"]),
        (changed_trial, ["ppo.gamma was 0.5 and is 0.98 now"]),
        (other_session, ["seed-1 has other settings than the spec", "gamma was 0.5 and is 0.98 now"]),
        (session_of_another_seed, ["seed was 5 and is 1 now"]),
        (session_of_another_algorithm, ["algorithm was a2c and is ppo now"]),
        (no_record, ["experiment.json is not JSON"]),
        (another_record, ["experiment.json was changed"]),
    ],
)
def test_a_directory_that_belongs_to_another_spec_is_refused(
    folder: Path, how: Callable[[Path], None], says: list[str]
):
    how(folder)
    told = refused(folder, "spec.toml")
    assert [fragment for fragment in says if fragment not in told] == [], told


def test_symlinks_out_of_the_directory_of_an_experiment_are_refused_unless_it_is_trusted(folder, tmp_path):
    target = tmp_path / "mine.txt"
    target.write_text("mine")
    run = Path("experiments/spec/trial-000/seed-1")
    policy = run / "checkpoints/latest/policy.json"
    policy.write_text(json.dumps(json.loads(policy.read_text()) | {"env_steps": 128}))
    (run / "status.json").unlink()
    for link in (run / "log.txt", Path("experiments/spec/table.md"), Path("experiments/spec/.lock")):
        before = link.read_bytes()
        link.unlink()
        link.symlink_to(target)
        for more in ((), ("--dry-run",)):
            assert f"{link.name} is a link to {target}, outside of the run" in refused(folder, "spec.toml", *more)
        link.unlink()
        link.write_bytes(before)
    (run / "log.txt").unlink()
    (run / "log.txt").symlink_to("../seed-2/log.txt")
    assert "--trust-code" not in offbeat("run", "spec.toml", "--dry-run").out, "the session itself refuses the link"
    (run / "log.txt").unlink()
    (run / "log.txt").symlink_to(target)
    said = offbeat("run", "spec.toml", "--dry-run", "--trust-code")
    assert (said.code, target.read_text()) == (0, "mine")
    assert f"offbeat resume {run} --trust-code" in said.out, "the session would refuse the link"


def test_a_spec_with_fewer_trials_than_the_experiment_and_a_record_of_wrong_types_are_refused(folder):
    search: dict[str, Any] = {"method": "random", "over": {"gamma": {"low": 0.9, "high": 0.99}}}
    write_spec(folder / "many.toml", search={**search, "trials": 3})
    (folder / "experiments/many").mkdir()
    before = offbeat("run", "many.toml", "--dry-run").out
    meaning = json.loads((folder / "experiments/spec/experiment.json").read_text())
    from offbeat.experiments.spec import read_spec

    record = {**meaning, "spec": read_spec(folder / "many.toml").identity(), "trials": 3}
    (folder / "experiments/many/experiment.json").write_text(json.dumps(record))
    write_spec(folder / "many.toml", search={**search, "trials": 2})
    assert "3 trials, but the spec has 2" in refused(folder, "many.toml")
    write_spec(folder / "many.toml", search={**search, "trials": 4})
    more = offbeat("run", "many.toml", "--dry-run").out.splitlines()
    for changes in ({"trials": None}, {"trials": True}, {"trials": "3"}, {"seeds": ["1"]}, {"seeds": None}):
        (folder / "experiments/many/experiment.json").write_text(json.dumps(record | changes))
        assert "experiment.json was changed: restore it" in refused(folder, "many.toml")
    assert more[: len(before.splitlines()) - 1] == before.splitlines()[:-1]  # the first three are what they were


def test_a_missing_optuna_is_reported_with_the_install_command(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    write_spec(folder / "bad.toml", search={"method": "optuna", "trials": 2, **grid(gamma=[0.9, 0.8])})
    assert 'pip install "offbeat[optuna]"' in refused(folder, "bad.toml")


def test_an_optuna_search_over_several_envs_or_with_invalid_values_is_refused(folder):
    pytest.importorskip("optuna")
    search = {"method": "optuna", "trials": 2, **grid(gamma=[0.9, 0.8])}
    write_spec(folder / "bad.toml", env=None, envs=["CartPole-v1", "Acrobot-v1"], search=search)
    assert "one spec per env" in refused(folder, "bad.toml")
    write_spec(folder / "bad.toml", search={**search, **grid(gamma=[0.9, 2])})
    assert "gamma is 2" in refused(folder, "bad.toml")


def test_a_dry_run_prints_every_run_that_would_start_and_creates_no_file(folder):
    write_spec(folder / "two.toml", seeds=[4, 5], search=grid(gamma=[0.9, 0.8]))
    before = contents(folder)
    said = offbeat("run", "two.toml", "--dry-run", "--jobs", "3")
    assert said.code == 0
    assert contents(folder) == before
    commands = [line for line in said.out.splitlines() if line.startswith("  offbeat train ppo CartPole-v1 ")]
    assert len(commands) == 4
    told = [[f"gamma={gamma}", f"seed={seed}"] for gamma in (0.9, 0.8) for seed in (4, 5)]
    assert all(word in line for line, words in zip(commands, told, strict=True) for word in words)
    assert "4 sessions, 3 at a time, in experiments/two" in said.out


def test_sessions_are_given_the_modules_of_the_command_which_make_no_other_experiment(folder):
    write_spec(folder / "spec.toml", seeds=[1, 2])
    said = offbeat("run", "spec.toml", "--dry-run", "--import", "tests.sample_envs.run_envs")
    assert said.code == 0, said.err
    assert "trial-000/seed-1: skip" in said.out
    assert " --import tests.sample_envs.run_envs " in said.out


def test_an_interrupted_dry_run_does_not_say_that_sessions_were_killed(folder, monkeypatch):
    class InterruptedOnce(io.StringIO):
        interrupted = False

        def write(self, text: str) -> int:
            if not self.interrupted:
                self.interrupted = True
                raise KeyboardInterrupt
            return super().write(text)

    write_spec(folder / "two.toml")
    monkeypatch.setattr("sys.stdout", written := InterruptedOnce())
    with pytest.raises(KeyboardInterrupt):
        main.run(["run", "two.toml", "--dry-run"])
    assert not written.getvalue()


def test_a_dry_run_says_that_the_files_of_its_commands_are_not_there_yet(folder):
    env = "offbeat.envs.testing.worlds:CartPoles"
    write_spec(folder / "several.toml", env=env, policies={"all": {"agents": "*"}})
    note = "`offbeat run` writes the files of --policies"
    assert note in offbeat("run", "several.toml", "--dry-run").out
    assert note not in offbeat("run", "spec.toml", "--dry-run").out


@pytest.mark.parametrize("what", ["experiments/spec", "experiments/spec/trial-000"])
def test_a_plot_without_returns_proposes_a_command_that_continues_the_experiment(folder, what):
    for metrics in folder.glob("experiments/spec/trial-*/seed-*/metrics.jsonl"):
        metrics.write_text("")
    refused = offbeat("plot", what)
    command = refused.err.partition("`offbeat ")[2].partition("`")[0]
    said = offbeat(*shlex.split(command), "--dry-run")
    assert said.code == 0, f"{refused.err} {said.err}"
    assert "trial-000/seed-1: skip" in said.out


def test_a_session_killed_after_its_last_checkpoint_counts_as_finished(folder):
    status = folder / "experiments/spec/trial-000/seed-1/status.json"
    status.write_text(status.read_text().replace("finished", "running"))
    assert "trial-000/seed-1: skip" in offbeat("run", "spec.toml", "--dry-run").out
    policy = folder / "experiments/spec/trial-000/seed-1/checkpoints/latest/policy.json"
    policy.write_text(json.dumps(json.loads(policy.read_text()) | {"env_steps": 128}))
    assert "trial-000/seed-1: resume" in offbeat("run", "spec.toml", "--dry-run").out
    policy.unlink()
    assert "trial-000/seed-1: start again" in offbeat("run", "spec.toml", "--dry-run").out


# --- a full disk --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
def test_a_full_disk_ends_an_experiment_with_one_message():
    with files_up_to(0):
        said = offbeat("run", "spec.toml", "--progress", "none")
    assert said.code == 1
    assert "experiments/spec cannot be written to (File too large): raise the limit of file sizes" in said.err
    assert "Traceback" not in said.err


def test_an_experiment_whose_graphs_cannot_be_written_says_so_and_prints_its_results(folder):
    for picture in folder.rglob("return-*.png"):
        picture.unlink()
    with files_up_to(10_000):
        said = offbeat("run", "spec.toml", "--progress", "lines")
    assert said.code == 0, said.err
    assert "trial-000 and spec are not plotted: " in said.err
    assert "File too large; to try again, run `offbeat plot experiments/spec`" in said.err
    assert "finished: 1 of 1 sessions finished" in said.out


def test_a_population_without_a_score_names_no_table(tmp_path, capsys):
    directory = SimpleNamespace(markdown=tmp_path / "table.md")
    result = PopulationResult(1, (), None, None)
    population = SimpleNamespace(path=tmp_path, directory=directory, run=lambda _launcher, _view: result)
    assert _PopulationCommand(population).run(None, None) == 1  # type: ignore[arg-type]
    assert capsys.readouterr().out.startswith("failed: no member has finished a generation\n")


def test_the_spec_that_an_experiment_has_saved_continues_it(folder):
    (folder / "experiments/spec").rename(folder / "experiments/mine")
    said = offbeat("run", "experiments/mine/spec.toml", "--dry-run")
    assert "trial-000/seed-1: skip" in said.out, said


@pytest.mark.parametrize("run", ["trial-000/seed-1", "member-000"])
def test_a_spec_beside_the_runs_of_an_experiment_without_its_record_is_refused(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    write_spec(tmp_path / "spec.toml", seeds=[1])
    (tmp_path / run).mkdir(parents=True)
    (tmp_path / run / "config.toml").touch()
    assert "not its experiment.json" in refused(tmp_path, "spec.toml")
    assert offbeat("run", "spec.toml", "--dir", "again", "--dry-run").code == 0


def test_comments_and_more_seeds_do_not_make_another_experiment(folder):
    write_spec(folder / "spec.toml", seeds=[3, 1])
    (folder / "spec.toml").write_text("# now with another seed\n" + spec_text(seeds=[3, 1]))
    said = offbeat("run", "spec.toml", "--dry-run")
    assert said.code == 0, said
    assert "trial-000/seed-3: start" in said.out
    assert "trial-000/seed-1: skip" in said.out


def test_the_flags_that_resume_an_experiment_are_those_that_it_was_started_with():
    words = ["--dir", "here", "--jobs", "2", "--on", "ray", "--cpus", "4", "--import", "my_env", "--trust-code"]
    typed = main._parse(["run", "spec.toml", *words])
    assert isinstance(typed, RunSpec)
    assert typed._flags() == words
