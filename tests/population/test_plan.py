"""What an invalid population gets: a message with the numbers and the remedy, exit code 2, and no file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomli_w
from tests.support.populations import CARTS, CARTS_POLICIES, SETTINGS, TABLE, begun, population, population_text
from tests.support.runs import contents, offbeat

from offbeat.cli import main
from offbeat.cli.train import Train
from offbeat.config.config import Config
from offbeat.config.importing import import_modules
from offbeat.core.errors import ConfigError
from offbeat.experiments.jobs import Job
from offbeat.experiments.spec import read_spec
from offbeat.population.plan import plan_of
from offbeat.population.population import Population

RATE: dict[str, Any] = {"low": 1e-5, "high": 1e-1}
RANGE: dict[str, Any] = {"low": 0.5, "high": 0.9}


def mutate(**genes: Any) -> dict[str, Any]:
    return {"table": {"mutate": genes}}


def settings(**changes: Any) -> dict[str, Any]:
    return {"settings": {**SETTINGS, **changes}}


OWN = "tests.support.own_code"
"""A module with an encoder."""


def worlds(objective: str = "return_mean", **genes: Any) -> dict[str, Any]:
    """Return the changes for a world with several policies, of which `genes` mutate: policy -> setting -> range."""
    own = {name: {"settings": ranges} for name, ranges in genes.items()}
    table = {"objective": objective, **({"mutate": {"policies": own}} if own else {})}
    fox = {"fox": {"agents": "cart_0", "train": False, "init_from": "runs/fox"}} if "fox" in genes else {}
    return {"table": table, "env": CARTS, "policies": {**fox, **CARTS_POLICIES}}


INVALID: list[tuple[dict[str, Any], list[str]]] = [
    ({"table": {"members": 1}}, ["members is 1", "at least 2", "[population]"]),
    ({"table": {"members": None}}, ["lacks members"]),
    ({"table": {"member": 4}}, ["unknown key 'member'", "'members'"]),
    ({"table": {"generation": 1000}}, ["steps is 768", "a generation has 1000 env steps", "steps = 2000"]),
    ({"table": {"generation": 100}}, ["steps is 768", "multiple", "steps = 800"]),
    ({"table": {"generation": 48}}, ["generation has 48 env steps", "64 rows"]),
    ({"table": {"lag": 2}}, ["lag is 2", "3 generations"]),
    ({"table": {"start": 513}}, ["start is 513", "after 512 env steps"]),
    ({"table": {"start": 257, "lag": 1}}, ["start is 257", "after 256 env steps"]),
    ({"table": {"replace_fraction": 0.6}}, ["replace_fraction is 0.6", "at most 0.5"]),
    ({"table": {"gap_std": -1}}, ["gap_std is -1", "at least 0"]),
    ({"table": {"mutation_rate": 2}}, ["mutation_rate is 2"]),
    ({"table": {"objective": "return_meen"}}, ["unknown objective 'return_meen'", "'return_mean'"]),
    ({"table": {"objective": "info/"}}, ["the objective is info/", "objective = 'info/success'"]),
    ({"table": {"objective": "info/a:best"}}, ["info_metrics has 'a:best'", "last, max, sum"]),
    (
        {"table": {"objective": "info/a_last"}, "settings": {**SETTINGS, "info_metrics": ["a:last"]}},
        ["objective is info/a_last: write objective = 'info/a:last', the name in info_metrics"],
    ),
    ({"table": {"objective": "policies/default/info/a"}}, ["one policy", "objective = 'info/a'"]),
    (worlds(objective="policies/dog/info/"), ["lacks the name of a number in the infos"]),
    ({"table": {"mutate": None}}, ["nothing to mutate"]),
    (mutate(lr=RATE), ["unknown key 'lr'. It is a name of RLlib, and offbeat calls it learning_rate", "has a range"]),
    (mutate(temperature=RATE), ["spec.toml: temperature is a setting of sac,", "not of the algorithm of this run"]),
    (mutate(learning_rat=RATE), ["unknown key 'learning_rat'", "'learning_rate'"]),
    (mutate(learning_rate=0.1), ["learning_rate is 0.1", "a range is expected"]),
    (mutate(learning_rate={"low": 1e-3}), ["lacks high"]),
    (mutate(learning_rate={"low": 1e-3, "high": "x"}), ["high of learning_rate is 'x'"]),
    (mutate(learning_rate={"low": 1e-2, "high": 1e-3}), ["from 0.01 to 0.001", "0 < low < high"]),
    (mutate(entropy_coef={"low": 0.0, "high": 0.1}), ["from 0 to 0.1", "multiplied by factors"]),
    (mutate(gamma={"low": 0.9, "high": 1.0}), ["from 0.9 to 1", "0 < low < high < 1"]),
    (mutate(gamma={"low": 0.9, "high": 2.0, "complement": False}), ["spec.toml, a member with gamma 2: gamma is 2"]),
    (mutate(learning_rate={**RATE, "factr": [1.2, 2.0]}), ["'factr'", "low, high, factor, complement, initial"]),
    (mutate(learning_rate={**RATE, "factor": [0.8, 1.2]}), ["factor of learning_rate is [0.8, 1.2]", "above 1"]),
    (mutate(learning_rate={**RATE, "initial": [1e-3]}), ["has 1 values, but there are 3 members"]),
    (mutate(learning_rate={**RATE, "initial": [1.0, 1e-3, 1e-3]}), ["starts at 1", "1e-05 to 0.1"]),
    ({**mutate(epochs={"low": 2, "high": 10, "initial": [4, 4, 4.5]}), **settings(epochs=None)}, ["epochs is 4.5"]),
    (mutate(learning_rate={**RATE, "initial": "random"}), ["initial of learning_rate is 'random'"]),
    (mutate(value_clip={"low": 0.1, "high": 1.0, "initial": "settings"}), ["value_clip has no number to start at"]),
    (mutate(epochs={"low": 1.5, "high": 4}), ["epochs accepts only whole numbers"]),
    (mutate(normalize_advantages=RATE), ["normalize_advantages cannot mutate"]),
    (
        mutate(**{"encoder_kwargs.units": RANGE, "encoder_kwargs": {"units": RANGE}}),
        ["[population.mutate] has 'encoder_kwargs.units' twice: keep one of them"],
    ),
    (mutate(encoder_kwargs={"units": RANGE}), ["encoder_kwargs.units cannot mutate", "or search over it"]),
    (mutate(envs_per_actor={"low": 1, "high": 8}), ["envs_per_actor cannot mutate", "tickets"]),
    (
        mutate(seed={"low": 1, "high": 8}),
        ["seed cannot mutate", "random stream", "each member has its own"],
    ),
    (
        mutate(**{"env.eval_kwargs.pay": RATE}),
        ["env.eval_kwargs.pay cannot mutate", "compared by their evaluations", "write it under [settings]"],
    ),
    (mutate(env={"eval_kwargs": {"pay": RATE}}), ["env.eval_kwargs.pay cannot mutate"]),
    (mutate(kwargs={"pay": RATE}), ["env.kwargs.pay cannot mutate", "under [population.mutate.curriculum]"]),
    (mutate(**{"env.kwargs.pay": RATE}), ["env.kwargs.pay cannot mutate", "under [population.mutate.curriculum]"]),
    (mutate(steps={"low": 100, "high": 800}), ["steps cannot mutate"]),
    (mutate(step_timeout_s={"low": 1, "high": 2}), ["step_timeout_s cannot mutate", "of the algorithm or the env"]),
    (mutate(minibatch_size={"low": 16, "high": 512, "initial": "settings"}), ["minibatch_size is 512", "= 64 rows"]),
    (
        {**mutate(minibatch_size={"low": 1, "high": 64}), **settings(minibatch_size=None)},
        ["spec.toml, a member on CartPole-v1 with minibatch_size 1: "],
    ),
    (
        {**mutate(curriculum={"size": RANGE}), **settings(curriculum='["size 0:2"]')},
        ["size mutates and is in curriculum under [settings]"],
    ),
    (mutate(curriculum={"wind": {"low": 0.1, "high": 1.0}}), ["curriculum sets wind", "no such attribute"]),
    (settings(learning_rate=1e-3), ["learning_rate is under [settings], but mutates"]),
    (settings(stop_at=100), ["stop_at is not supported by a population"]),
    (settings(stop_at_return=100), ["stop_at_return is not supported by a population"]),
    (settings(gama=1), ["spec.toml, CartPole-v1: unknown key 'gama'"]),
    (settings(clip=-1), ["spec.toml, CartPole-v1: clip is -1", "clip = 0."]),
    (settings(runtime="threads", max_lag=1, envs_per_actor=None), ["measure its own layout"]),
    (settings(league={"window": 5}), ["a league is not supported by a population", "snapshots"]),
    ({"table": {"objective": "team_return_mean"}}, ["the env has one agent", "return_mean"]),
    ({"table": {"objective": "eval_return_mean"}}, ["eval_every is 0", "such as return_mean"]),
    ({"table": {"objective": "eval_return_mean"}, **settings(eval_every=100)}, ["is 100", "eval_every = 256"]),
    ({"table": {"objective": "best_eval_return_mean"}}, ["a copy has replaced", "objective = 'eval_return_mean'"]),
    ({"table": {"objective": "policies/default/return_mean"}}, ["one policy", "objective = 'return_mean'"]),
    (worlds(objective="policies/do/return_mean"), ["unknown policy 'do'", "'dog'", "policies/do/return_mean"]),
    (worlds(objective="policies/dog/return_meen"), ["unknown objective", "'policies/dog/return_mean'"]),
    (worlds(objective="policies/dog/eval_return_mean"), ["eval_every is 0", "such as policies/dog/return_mean"]),
    (worlds(do={"gamma": RANGE}), ["unknown policy 'do'", "'dog'"]),
    (worlds(dog={"gamm": RANGE}), ["unknown key 'gamm'", "'gamma'"]),
    (worlds(dog={"learning_rate": RATE}), ["policies.dog.settings.learning_rate is under [policies.dog]"]),
    (worlds(dog={"unroll_length": {"low": 8, "high": 16}}), ["has unroll_length", "all policies of a run share"]),
    (worlds(dog={"epochs": {"low": 1.5, "high": 4}}), ["policies.dog.settings.epochs accepts only whole numbers"]),
    (worlds(fox={"gamma": RANGE}), ["policies.fox.settings.gamma cannot mutate", "does not learn"]),
    (mutate(policies={"dog": {"settings": {"gamma": RANGE}}}), ["there is no table [policies.dog]"]),
    (mutate(policies={"dog": {"gamma": RANGE}}), ["only policies.NAME.settings.KEY"]),
    ({"seeds": [1, 2]}, ["one seed"]),
    ({"env": None, "envs": ["CartPole-v1", "Acrobot-v1"]}, ["one env"]),
    ({"env": "CartPol-v1"}, ["'CartPole-v1'"]),
    ({"search": {"over": {"gamma": [0.9]}}}, ["[search] and [population]"]),
    ({"target_return": 3.0}, ["target_return is not supported"]),
]


@pytest.mark.parametrize(("changes", "says"), INVALID, ids=lambda part: str(part)[:60])
def test_an_invalid_population_is_refused_before_any_file_is_created(tmp_path, monkeypatch, changes, says):
    monkeypatch.chdir(tmp_path)
    tables = {key: value for key, value in changes.items() if key != "table"}
    if "settings" in tables:
        tables["settings"] = {key: value for key, value in tables["settings"].items() if value is not None}
    Path("spec.toml").write_text(population_text(changes.get("table"), **tables))
    before = contents(tmp_path)
    said = offbeat("run", "spec.toml", "--progress", "none")
    assert said.code == 2, said
    assert [fragment for fragment in says if fragment not in said.err] == [], said.err
    assert contents(tmp_path) == before


def test_a_dry_run_prints_the_first_command_of_each_member_and_creates_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("spec.toml").write_text(population_text())
    before = contents(tmp_path)
    said = offbeat("run", "spec.toml", "--dry-run")
    assert said.code == 0, said.err
    assert said.out.count("offbeat train ppo CartPole-v1 --run-dir experiments/spec/member-00") == 3
    assert "3 members, 3 generations of 256 env steps" in said.out
    assert contents(tmp_path) == before


@pytest.mark.parametrize(("number", "code"), [("entropy", 0), ("return_mean", 2), ("info/success", 2)])
def test_only_training_has_numbers_of_the_only_policy_if_it_has_a_name(tmp_path, monkeypatch, number, code):
    monkeypatch.chdir(tmp_path)
    changes = worlds(objective=f"policies/dog/{number}") | {"policies": {"dog": {"agents": "*"}}}
    Path("spec.toml").write_text(population_text(changes.pop("table"), **changes))
    said = offbeat("run", "spec.toml", "--dry-run")
    assert said.code == code, said.err


def test_members_are_given_the_modules_of_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("spec.toml").write_text(population_text())
    said = offbeat("run", "spec.toml", "--dry-run", "--import", OWN)
    assert said.out.count(f" --import {OWN} ") == 3, said.err


def test_members_have_the_same_number_of_workers_on_machines_with_other_cores(tmp_path, monkeypatch):
    def on_a_machine_with(cores: int) -> Population:
        monkeypatch.setattr("offbeat.config.resolve.usable_cores", lambda: cores)
        return population(tmp_path, settings={**SETTINGS, "runtime": "hogwild"})

    def configs(jobs: list[Job]) -> list[Config]:
        typed = [main._parse(job.arguments()) for job in jobs]
        return [each.config() for each in typed if isinstance(each, Train)]

    first = on_a_machine_with(3)
    jobs = first.known_jobs()
    assert [config.runtime.workers for config in configs(on_a_machine_with(2).known_jobs())] == [2, 2, 2]
    assert [config.runtime.workers for config in configs(jobs)] == [3, 3, 3]
    begun(first)
    latest = jobs[1].run.checkpoints_folder / "latest"
    latest.mkdir(parents=True)
    (latest / "policy.json").write_text('{"env_steps": 1}')
    configs(jobs)[1].save(jobs[1].run.config_file)
    continued = on_a_machine_with(4)
    begun(continued)
    assert configs(continued.known_jobs()[::2]) == configs(jobs[::2])


def test_a_dry_run_says_that_the_files_of_its_commands_are_not_there_yet(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("spec.toml").write_text(population_text(**worlds()))
    said = offbeat("run", "spec.toml", "--dry-run")
    assert "`offbeat run` writes the files of --policies" in said.out, said.err


def test_members_are_given_the_policies_of_a_file_once_and_the_modules_of_their_encoders(tmp_path):
    (tmp_path / "given.toml").write_text(
        f'[policies.cat]\nagents = "cart_1"\n[policies.dog]\nagents = "*"\nsettings = {{ encoder = "{OWN}:Rows" }}\n'
    )
    mutate = {"policies": {"cat": {"settings": {"learning_rate": {"low": 1e-4, "high": 1e-2}}}}}
    settings = {**SETTINGS, "policies": str(tmp_path / "given.toml")}
    import_modules((OWN,))
    one = population(tmp_path / "one", {"mutate": mutate}, env=CARTS, settings=settings)
    with one.directory.locked():
        one.write_files()
    typed = main._parse(one.known_jobs()[1].arguments())
    assert isinstance(typed, Train)
    assert typed.imports == (OWN,)
    stop_at, imports = one.plan.settings.generation, (OWN,)
    assert typed.config() == one.plan.configs[1].with_run(stop_at=stop_at, imports=imports)


def test_another_population_in_the_same_directory_is_refused(tmp_path):
    one = population(tmp_path)
    begun(one)
    with pytest.raises(ConfigError, match=r"population.members was 3 and is 4 now"):
        population(tmp_path, {"members": 4})


@pytest.mark.parametrize("table", [{"start": 512}, {"start": 256, "lag": 1}])
def test_the_last_start_and_lag_that_lead_to_a_decision_are_accepted(tmp_path, table):
    spec = tmp_path / "spec.toml"
    spec.write_text(population_text(table))
    assert plan_of(read_spec(spec)).generations == 3


@pytest.mark.parametrize(
    ("given", "names"),
    [("none", ()), ("a,b", ("a", "b")), ('["a,b"]', ("a,b",)), (["a", "success"], ("a",))],
    ids=str,
)
def test_the_metric_of_the_objective_is_added_to_a_list_in_any_notation(tmp_path, given, names):
    spec = tmp_path / "spec.toml"
    spec.write_text(population_text({"objective": "info/success"}, settings={**SETTINGS, "info_metrics": given}))
    plan = plan_of(read_spec(spec))
    assert plan.run_settings({})["info_metrics"] == (*names, "success")


def test_the_metric_of_an_objective_of_one_policy_is_added_with_its_reduction(tmp_path):
    changes = worlds(objective="policies/dog/info/success:last")
    spec = tmp_path / "spec.toml"
    spec.write_text(population_text({**changes.pop("table"), "mutate": {"gamma": RANGE}}, **changes))
    assert plan_of(read_spec(spec)).run_settings({})["info_metrics"] == ("success:last",)


@pytest.mark.parametrize("key", ["learning_rate", "gamma"])
def test_values_can_start_at_given_ones_or_at_those_of_the_settings(tmp_path, key):
    given = {"learning_rate": [1e-4, 1e-3, 1e-2], "gamma": "settings"}
    genes = {name: {**TABLE["mutate"][name], "initial": given[name]} for name in given}
    spec = tmp_path / "spec.toml"
    spec.write_text(population_text({"mutate": genes}, settings={**SETTINGS, "gamma": 0.95}))
    plan = plan_of(read_spec(spec))
    first = [plan.genome.first(member, 3, 1)[key] for member in range(3)]
    assert first == (given[key] if key == "learning_rate" else [0.95] * 3)


def test_all_members_have_the_same_policies_if_their_file_is_deleted_meanwhile(tmp_path):
    file, spec = tmp_path / "policies.toml", tmp_path / "spec.toml"
    file.write_text(tomli_w.dumps({"policies": CARTS_POLICIES}))
    spec.write_text(population_text(env=CARTS, settings={**SETTINGS, "policies": str(file)}))
    plan = plan_of(read_spec(spec))
    policies = plan.policies
    assert list(policies) == list(CARTS_POLICIES)
    file.unlink()
    assert plan.policies == policies
