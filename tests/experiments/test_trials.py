from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from tests.support.runs import offbeat, small_run, stop_in_evaluation
from tests.support.specs import TINY, grid, spec_text, write_spec

from offbeat.algorithms.on_policy_config import OnPolicyConfig
from offbeat.cli import main
from offbeat.cli.train import Resume, Train
from offbeat.config.resolve import resolve
from offbeat.core.errors import ConfigError
from offbeat.core.frozen_table import thawed
from offbeat.core.process.threads import usable_cores
from offbeat.experiments.directory import ExperimentDirectory
from offbeat.experiments.experiment import Experiment
from offbeat.experiments.launching import cores_of
from offbeat.experiments.report import row_of
from offbeat.experiments.sessions import Session
from offbeat.experiments.spec import Spec, spec_of
from offbeat.experiments.trials import read_trial, require_same_trial, trials_of, try_envs, write_trial
from offbeat.run_directory.directory import RunDirectory
from offbeat.runtime.evaluation.evaluators import InlineEvaluator

SIZED = "tests.support.own_code:Sized"


def spec(**changes: Any) -> Spec:
    return spec_of(tomllib.loads(spec_text(**changes)), "a.toml")


def test_a_trial_is_a_setting_on_one_env():
    trials = trials_of(spec(env=None, envs=["CartPole-v1", "Acrobot-v1"], search=grid(gamma=[0.9, 0.8])))
    told = [(trial.name, trial.env, trial.values, trial.config.settings_as(OnPolicyConfig).gamma) for trial in trials]
    assert told == [
        ("trial-000", "CartPole-v1", {"gamma": 0.9}, 0.9),
        ("trial-001", "Acrobot-v1", {"gamma": 0.9}, 0.9),
        ("trial-002", "CartPole-v1", {"gamma": 0.8}, 0.8),
        ("trial-003", "Acrobot-v1", {"gamma": 0.8}, 0.8),
    ]
    assert all(trial.config.run.steps == TINY["steps"] for trial in trials)


def test_without_a_search_there_is_one_trial():
    (trial,) = trials_of(spec())
    assert (trial.values, trial.label) == ({}, "")


@pytest.mark.parametrize(
    "changes",
    [
        {"search": grid(hidden_sizes=[[8], [16, 8]]), "settings": {"steps": 64, "normalize_returns": True}},
        {"algorithm": "sac", "env": "Pendulum-v1", "settings": {"utd_ratio": "1/4", "target_entropy": -1.5}},
        {"algorithm": "sac", "env": "Pendulum-v1", "settings": {"utd_ratio": 0.37, "warmup": 500}},
        {"preset": "ppo-cartpole-v1", "env": "Acrobot-v1", "imports": ["tests.sample_envs.run_envs"]},
        {"settings": {"runtime": "processes", "clip_schedule": "linear", "learner_threads": "none", "gamma": 1e-3}},
        {"settings": {"policies": "separate", "kwargs": {"size": 3, "text": "3", "pair": [0.5, "a,b"], "flag": True}}},
        {
            "settings": {"env": {"kwargs": {"size": 3}}},
            "policies": {
                "b": {"agents": "b*", "settings": {"gamma": 0.5}},
                "a": {"agents": "*", "settings": {"clip": 0.1}},
            },
        },
        {
            "search": {"over": {"policies": {"a": {"settings": {"hidden_sizes": [[8], [4, 4]]}}}}},
            "policies": {"a": {"agents": "*", "settings": {"clip": 0.1}}},
        },
        {"settings": {"runtime": "threads", "actors": 2, "max_lag": 2, "lag": "exact", "learner_cores": [0]}},
        {"settings": {"league": {"window": 3, "sides": ["red_*", "blue_*"]}}},
        {"settings": {"league": True}},
        {"settings": {"league": {}}},
        {"settings": {"ignore_observations": ["a,b", " c"], "kwargs": {"text": "\x7f"}}},
        {"settings": {"kwargs": {"wind": 1}}, "search": grid(**{"env.kwargs.size": [3, 4]})},
        {"env": "Ant-v5", "preset": "ppo-ant-v5", "settings": {"kwargs": {"frame_skip": 5}}},
    ],
    ids=str,
)
def test_the_command_of_a_session_resolves_to_its_config(changes, tmp_path):
    for trial in trials_of(spec(**changes)):
        write_trial(trial, tmp_path / "trial.toml")
        typed = main._parse(Session(trial, 7, tmp_path).arguments())
        assert isinstance(typed, Train)
        assert typed.run_dir == tmp_path / "seed-7"
        expected = trial.config.with_run(seed=7)
        made = typed.config()
        if "preset" not in changes:  # that is then chosen by itself, and named
            assert made == expected
        assert made.tables() == expected.tables()


@pytest.mark.parametrize(
    "over",
    [{"encoder_kwargs": [{}, {"units": 4, "layers": [8, 8]}]}, {"encoder": [SIZED, "tests.support.own_code:Rows"]}],
    ids=str,
)
def test_a_session_has_the_searched_encoder_of_a_policy_and_its_arguments(over, tmp_path):
    settings = {"encoder": SIZED, "encoder_kwargs": {"units": 3, "bias": False}}
    search = grid(**{f"policies.a.settings.{key}": values for key, values in over.items()})
    trials = trials_of(spec(policies={"a": {"agents": "*", "settings": settings}}, search=search))
    owns = []
    for trial in trials:
        write_trial(trial, tmp_path / "trial.toml")
        typed = main._parse(Session(trial, 7, tmp_path).arguments())
        assert isinstance(typed, Train)
        assert typed.config().policies == trial.config.policies
        owns.append(thawed(trial.config.policies["a"].settings))
    assert owns[0] == {**settings, **{key: values[0] for key, values in over.items()}}
    assert "bias" not in str(owns[1]), "they are the arguments of another encoder, or were replaced"


@pytest.mark.parametrize("preset", ["none", "ppo-acrobot-v1", None])
def test_a_session_has_the_preset_that_the_spec_names(preset, tmp_path):
    (trial,) = trials_of(spec(preset=preset, settings={"steps": 64}))
    wanted = resolve("ppo", "CartPole-v1", preset=preset, flags={"steps": 64, "seed": 7})
    typed = main._parse(Session(trial, 7, tmp_path).arguments())
    assert isinstance(typed, Train)
    assert typed.config() == trial.config.with_run(seed=7) == wanted


def test_a_resumed_session_gets_trust_code_only_from_a_caller_who_gave_it(tmp_path, monkeypatch):
    monkeypatch.setattr(Session, "status", lambda _: "unfinished")
    zoo = "tests.sample_envs.env_zoo"
    (trial,) = trials_of(spec(env=f"{zoo}:DictObservations", imports=["tests.sample_envs.run_envs"]))
    session = Session(trial, 7, tmp_path)
    resume = ["resume", str(session.run.path)]
    assert session.arguments()[:6] == [*resume, "--import", "tests.sample_envs.run_envs", "--import", zoo]
    ExperimentDirectory(tmp_path, trust_code=True)
    assert session.arguments()[:4] == [*resume, "--trust-code", "--progress"]


def test_a_session_imports_the_modules_of_the_caller_who_may_leave_them_out_later(tmp_path, monkeypatch):
    own, callers = "tests.sample_envs.run_envs", "tests.sample_envs.env_zoo"
    (trial,) = trials_of(spec(imports=[own]))
    session = Session(trial, 7, tmp_path, caller_imports=(callers, own))
    typed = main._parse(session.arguments())
    assert isinstance(typed, Train)
    assert typed.imports == (callers, own)
    session.run.path.mkdir()
    typed.config().save(session.run.config_file)
    session.require_same()
    Session(trial, 7, tmp_path).require_same()
    monkeypatch.setattr(Session, "status", lambda _: "unfinished")
    resumed = main._parse(session.arguments())
    assert isinstance(resumed, Resume)
    assert resumed.imports == (callers, own)


@pytest.mark.parametrize("place", ["settings", "search"])
def test_the_command_of_a_session_with_a_file_of_policies_resolves_to_its_config(place, tmp_path):
    file = tmp_path / "given.toml"
    file.write_text('[policies.a]\nagents = "*_0"\nsettings = { clip = 0.1 }\n[policies.b]\nagents = "*"\n')
    changes = {"settings": {"policies": str(file)}} if place == "settings" else {"search": grid(policies=[str(file)])}
    (trial,) = trials_of(spec(**changes))
    write_trial(trial, tmp_path / "trial.toml")
    typed = main._parse(Session(trial, 7, tmp_path).arguments())
    assert isinstance(typed, Train)
    assert typed.config() == trial.config.with_run(seed=7)


@pytest.mark.parametrize(
    ("over", "says"),
    [
        ({"learning_rat": [0.1]}, ["unknown key 'learning_rat'", "'learning_rate'"]),
        ({"gamma": [0.9, 2]}, ["gamma is 2", "at most 1", "CartPole-v1 with gamma 2"]),
        ({"env_groups": [1, 3]}, ["env_groups is 3", "with env_groups 3"]),
        ({"learning_rate": [-1.0]}, ["for example, learning_rate = 0.0003"]),
    ],
)
def test_an_invalid_setting_is_reported_with_its_trial(over, says):
    with pytest.raises(ConfigError) as refused:
        trials_of(spec(settings={k: v for k, v in TINY.items() if k not in over}, search={"over": over}))
    assert [fragment for fragment in says if fragment not in str(refused.value)] == [], refused.value


def drawn(key: str, low: float, high: float, **more: Any) -> list[Any]:
    search = {"method": "random", "trials": 4, "over": {key: {"low": low, "high": high, **more}}}
    settings = {name: value for name, value in TINY.items() if name != key}
    return [trial.values[key] for trial in trials_of(spec(settings=settings, search=search))]


@pytest.mark.parametrize("method", ["random", "optuna"])
def test_more_trials_than_different_settings_are_refused(method, tmp_path):
    if method == "optuna":
        pytest.importorskip("optuna")
    search = {"method": method, "trials": 7, **grid(gamma=[0.9, 0.8], epochs=[1, 2, 3])}
    settings = {"steps": 256}
    with pytest.raises(ConfigError, match=r"trials is 7, but only 6 different settings .* write trials = 6"):
        Experiment(write_spec(tmp_path / "a.toml", search=search, settings=settings), tmp_path / "experiment")


def test_the_type_of_the_key_decides_whether_a_range_has_integers():
    assert all(isinstance(value, int) for value in drawn("unroll_length", 16, 64, scale="log"))
    assert not any(value in (0, 1) for value in drawn("entropy_coef", 0, 1))
    assert all(isinstance(value, int) for value in drawn("learner_threads", 1, 4))
    assert all(isinstance(value, int) for value in drawn("league.window", 2, 20))


def test_a_range_of_an_argument_of_the_env_has_integers_if_its_bounds_and_step_are_integers():
    assert all(isinstance(value, int) for value in drawn("env.kwargs.size", 2, 8, step=2))
    assert not any(isinstance(value, int) for value in drawn("env.kwargs.size", 2, 8))
    assert not any(isinstance(value, int) for value in drawn("env.kwargs.size", 2, 8, step=0.5))
    assert not any(isinstance(value, int) for value in drawn("env.kwargs.size", 2.0, 8.0, step=2.0))


@pytest.mark.parametrize(
    ("key", "low", "high", "says"),
    [
        ("epochs", 1.5, 4, "^a.toml: epochs accepts only whole numbers"),
        ("activation", 1, 2, "^a.toml: activation .* does not accept numbers"),
        ("hidden_sizes", 8, 16, "hidden_sizes .* does not accept numbers"),
        ("normalize_returns", 0, 1, "normalize_returns .* does not accept numbers"),
    ],
)
def test_a_range_of_invalid_values_of_its_key_is_refused(key, low, high, says):
    with pytest.raises(ConfigError, match=says):
        drawn(key, low, high)


def test_a_written_trial_is_read_unchanged(tmp_path):
    wanted = spec(search=grid(gamma=[0.9, 0.8], value_clip=["none", 0.2]))
    for trial in trials_of(wanted):
        file = tmp_path / trial.name / "trial.toml"
        write_trial(trial, file)
        assert read_trial(wanted, trial.number, file) == trial
        require_same_trial(trial, file)


@pytest.mark.parametrize(
    "searched",
    [
        {"gamma": 0.9, "imports": ["os"]},
        {"gamma": 0.9, "wrappers": ["my_module:MyWrapper"]},
        {"gamma": 1.0, "encoder": "mlp"},
        {"gamma": 0.9, "encoder": "my_module:MyEncoder"},
        {"gamma": 0.9},
    ],
    ids=str,
)
def test_a_written_trial_with_values_that_the_spec_does_not_search_over_is_refused(searched, tmp_path):
    """Values can name code, and others may have written the file."""
    over = {"gamma": {"low": 0.8, "high": 0.95}, "encoder": ["mlp"]}
    wanted = spec(search={"method": "optuna", "trials": 1, "over": over})
    lines = [f"{key} = {json.dumps(value)}" for key, value in searched.items()]
    (tmp_path / "trial.toml").write_text("\n".join(["[searched]", *lines, "[run]", 'env = "CartPole-v1"']))
    with pytest.raises(ConfigError, match="that the spec does not search over: restore it"):
        read_trial(wanted, 0, tmp_path / "trial.toml")


def test_a_trial_of_other_settings_is_refused_with_the_difference(tmp_path):
    first, second = trials_of(spec(search=grid(gamma=[0.9, 0.8])))
    write_trial(first, tmp_path / "trial.toml")
    with pytest.raises(ConfigError, match=r"searched\.gamma was 0\.9 and is 0\.8 now"):
        require_same_trial(second, tmp_path / "trial.toml")


def test_a_new_config_key_does_not_make_an_older_trial_differ(tmp_path):
    (trial,) = trials_of(spec())
    write_trial(trial, tmp_path / "trial.toml")
    lines = (tmp_path / "trial.toml").read_text().splitlines()
    (tmp_path / "trial.toml").write_text("\n".join(line for line in lines if "adam_eps" not in line))
    require_same_trial(trial, tmp_path / "trial.toml")


def test_sessions_have_the_workers_of_their_trial_on_machines_with_other_cores(tmp_path, monkeypatch):
    file = write_spec(tmp_path / "spec.toml", settings={**TINY, "runtime": "hogwild"})

    def on_a_machine_with(cores: int) -> Experiment:
        monkeypatch.setattr("offbeat.config.resolve.usable_cores", lambda: cores)
        return Experiment(file, tmp_path / "experiment")

    first = on_a_machine_with(3)
    with first.directory.locked():
        first.directory.write_record(first.spec, b"")
        first.directory.write_trial(first.trials[0])
    started = on_a_machine_with(2).sessions(first.trials[0])[0]
    typed = main._parse(started.arguments())
    assert isinstance(typed, Train)
    assert typed.config().runtime.workers == 3
    started.run.path.mkdir()
    typed.config().save(started.run.config_file)
    (trial,) = on_a_machine_with(4).trials
    assert trial.config == first.trials[0].config
    assert trial.settings["workers"] == 3


def test_a_session_may_differ_from_its_trial_only_in_the_measured_topology(tmp_path):
    (trial,) = trials_of(spec(settings={"steps": 64, "runtime": "processes"}))
    assert trial.config.runtime.split == "measured"
    session = Session(trial, 1, tmp_path)
    session.run.path.mkdir()
    chosen = replace(trial.config.runtime, split="given", actors=2, envs_per_actor=4, unrolls_per_batch=2)
    there = replace(trial.config, runtime=chosen).with_run(seed=1)
    there.save(session.run.config_file)
    session.require_same()
    replace(there, runtime=replace(chosen, max_lag=3)).save(session.run.config_file)
    with pytest.raises(ConfigError, match="max_lag was 3 and is 1 now"):
        session.require_same()


@pytest.mark.parametrize(
    ("settings", "cores"),
    [
        ({}, 1),
        ({"runtime": "threads", "actors": 1}, 2),
        ({"runtime": "processes", "actors": 1000, "unrolls_per_batch": 1000}, 1000),
        ({"runtime": "processes", "actors": 1, "shards": 2, "devices": ("cpu", "cpu")}, 3),
        ({"runtime": "processes", "split": "measured"}, 1000),
    ],
    ids=str,
)
def test_a_session_uses_a_core_per_actor_and_learner_up_to_the_available_cores(settings, cores):
    (trial,) = trials_of(spec(settings={**TINY, **settings}))
    assert cores_of(trial.config) == min(cores, usable_cores())


@pytest.mark.parametrize(
    ("best", "unsaved", "status"),
    [(None, 0, "unfinished"), (-300.5, 0, "unfinished"), (-300, 0, "finished"), (-300, 1, "unfinished")],
)
def test_a_session_is_finished_when_what_has_reached_stop_at_return_is_saved(best, unsaved, status, tmp_path):
    limits: dict[str, Any] = {"steps": 10**6, "eval_every": 10**6, "stop_at_return": -300}
    (trial,) = trials_of(spec(settings={**TINY, **limits}))
    run = small_run(tmp_path / "seed-1", **{**TINY, **limits, "stop_at": 100})
    line = {**run.metrics, "env_steps": run.metrics["env_steps"] + unsaved, "best_eval_return_mean": best}
    with (run.path / "metrics.jsonl").open("a") as metrics:
        metrics.write(json.dumps(line) + "\n")
    assert Session(trial, 1, tmp_path).status() == status


@pytest.mark.parametrize("limits", [{"eval_every": TINY["steps"]}, {"eval_every": 1, "time": 1e-9}], ids=str)
def test_a_session_is_finished_when_the_last_evaluation_that_a_signal_has_stopped_is_made(limits, tmp_path):
    settings = {**TINY, **limits, "eval_episodes": 1, "evaluator": "inline"}
    session = Session(trials_of(spec(settings=settings))[0], 1, tmp_path)
    with patch.object(InlineEvaluator, "poll", stop_in_evaluation):
        assert offbeat(*session.arguments()).code == 130
    env_steps = session.run.saved_env_steps()
    assert (session.status(), session.last_line()["evaluations"]) == ("unfinished", 0)
    assert offbeat(*session.arguments()).code == 0
    assert (session.status(), session.last_line()["evaluations"]) == ("finished", 1)
    assert session.run.saved_env_steps() == env_steps


def test_a_finished_session_without_metrics_counts_as_finished_in_the_row_of_its_trial(tmp_path):
    (trial,) = trials_of(spec(settings=TINY))
    (small_run(tmp_path / "seed-1", **TINY).path / "metrics.jsonl").unlink()
    assert row_of([Session(trial, 1, tmp_path)], (), None, "training")["finished"] == 1


def test_a_session_with_several_policies_knows_its_saved_env_steps(tmp_path):
    (trial,) = trials_of(spec())
    settings = {"steps": 64, "envs_per_actor": 2, "policies": "separate", "runtime": "serial"}
    run = small_run(tmp_path / "seed-7", "offbeat.envs.testing.worlds:MixedSpaces", **settings)
    assert Session(trial, 7, tmp_path).run.saved_env_steps() == run.metrics["env_steps"]


def test_the_last_metrics_line_is_found_however_long_it_is(tmp_path):
    session = Session(trials_of(spec())[0], 1, tmp_path)
    session.run.path.mkdir()
    line = {f"policies/p{number}/episode_return_mean": float(number) for number in range(3000)}
    session.run.metrics_file.write_text(f'{{"env_steps": 1}}\n{json.dumps(line)}\n{{"env_st')
    assert session.last_line() == line


def test_a_session_has_the_limit_of_time_of_its_spec(tmp_path):
    (trial,) = trials_of(spec(settings={**TINY, "time": 600}))
    assert Session(trial, 1, tmp_path).time_s == 600.0


def test_arguments_of_the_env_can_be_searched_over():
    trials = trials_of(spec(search={"over": {"env": {"kwargs": {"size": [3, "three"]}}}}))
    assert [dict(trial.config.env.kwargs) for trial in trials] == [{"size": 3}, {"size": "three"}]
    assert [trial.label for trial in trials] == ["env.kwargs.size 3", "env.kwargs.size three"]


def test_arguments_of_an_own_encoder_can_be_searched_over():
    encoder = {"encoder": SIZED, "encoder_kwargs": {"bias": False}}
    changes: dict[str, Any] = {"imports": ["tests.support.own_code"], "settings": {**TINY, **encoder}}
    trials = trials_of(spec(**changes, search={"over": {"encoder_kwargs": {"units": [3, 5], "layers": [[4]]}}}))
    found = [thawed(trial.config.settings_as(OnPolicyConfig).encoder_kwargs) for trial in trials]
    assert found == [{"bias": False, "layers": [4], "units": units} for units in (3, 5)]
    assert [trial.label for trial in trials] == [f"encoder_kwargs.layers 4, encoder_kwargs.units {n}" for n in (3, 5)]
    ranges = {"low": 2, "high": 8, "step": 2}
    whole = spec(**changes, search={"method": "random", "trials": 4, "over": {"encoder_kwargs": {"units": ranges}}})
    assert {type(trial.values["encoder_kwargs.units"]) for trial in trials_of(whole)} == {int}
    misspelt = spec(**changes, search={"over": {"encoder_kwargs": {"unit": [3]}}})
    with pytest.raises(ConfigError, match=r"a trial on CartPole-v1 with .*:Sized has no argument 'unit'\. Did"):
        try_envs(trials_of(misspelt), misspelt)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"search": grid(kwargs=[{"sutton_barto_reward": True}, {"wings": 2}])},
            "^a.toml, a trial on CartPole-v1 with kwargs .*: CartPole-v1 has no argument 'wings'",
        ),
        (
            {
                "env": "offbeat/Recall-v0",
                "search": {"method": "random", "trials": 1, "over": {"env.kwargs.cues": {"low": 2, "high": 9}}},
            },
            r"with env.kwargs.cues [\d.]+: .*[^.]\. If env.kwargs.cues must be an integer, .* and step = 1\n",
        ),
        (
            {
                "env": "json:Env",
                "search": {"method": "random", "trials": 1, "over": {"env.kwargs.cues": {"low": 2, "high": 9}}},
            },
            r"unknown env 'json:Env'\. The module json has no class, function or env of this name\.$",
        ),
        (
            {"env": "late/Cart-v0", "imports": ["tests.sample_envs.run_envs"]},
            r"late/Cart-v0 is not registered by importing tests.sample_envs.run_envs: call gymnasium.register at ",
        ),
    ],
    ids=["unknown", "not an integer", "no env", "not registered"],
)
def test_an_env_that_refuses_the_arguments_of_a_trial_is_refused_with_the_trial(changes, says):
    tried = spec(**changes)
    with pytest.raises(ConfigError, match=says):
        try_envs(trials_of(tried), tried)


def test_a_gpu_that_is_missing_is_reported_as_a_setting_of_the_spec(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    on_gpu = spec(settings={**TINY, "device": "cuda"})
    with pytest.raises(ConfigError, match=r'^a.toml, CartPole-v1: device is cuda, .*: pass device = "cpu"$'):
        try_envs(trials_of(on_gpu), on_gpu)


CARTS = "offbeat.envs.testing.worlds:CartPoles"


def test_several_policies_of_a_lock_free_run_are_refused_before_it_starts():
    settings = {"steps": 256, "runtime": "hogwild", "workers": 2, "policies": "separate"}
    lock_free = spec(algorithm="a2c", env=CARTS, settings=settings)
    with pytest.raises(ConfigError, match="share the parameters of one policy"):
        try_envs(trials_of(lock_free), lock_free)


@pytest.mark.parametrize(
    ("env", "policies", "message"),
    [
        (CARTS, {"a": {"agents": "*", "init_policy": "fox"}}, "no policy 'fox': write init_policy = \"default\""),
        ("offbeat.envs.testing.games:Nim", {}, "trained on .*CartPoles, do not fit .*Nim: observation is"),
    ],
)
def test_initial_weights_that_a_run_lacks_or_of_other_spaces_are_refused_before_it_starts(
    env, policies, message, tmp_path
):
    run = small_run(tmp_path / "run", CARTS, steps=64)
    tables = {name: {**table, "init_from": str(run.path)} for name, table in policies.items()}
    settings = {**TINY, **({} if policies else {"init_from": str(run.path)})}
    initialized = spec(env=env, settings=settings, policies=tables or None)
    with pytest.raises(ConfigError, match=message):
        try_envs(trials_of(initialized), initialized)


TABLES = {"mine": {"agents": "*"}}


def test_a_session_of_another_policy_is_refused(tmp_path):
    (other,) = trials_of(spec(policies={"mine": {"agents": "*", "settings": {"gamma": 0.5}}}))
    (trial,) = trials_of(spec(policies=TABLES))
    RunDirectory.create(tmp_path / "seed-7", other.config.with_run(seed=7))
    with pytest.raises(ConfigError, match=r"mine was .*gamma.* now"):
        Session(trial, 7, tmp_path).require_same()


def test_the_tables_that_a_session_has_made_from_the_agents_of_its_world_are_no_other_settings(tmp_path):
    (trial,) = trials_of(spec(settings={**TINY, "policies": "separate"}))
    RunDirectory.create(tmp_path / "seed-7", trial.config.with_run(seed=7).with_agents(("a", "b")))
    Session(trial, 7, tmp_path).require_same()
