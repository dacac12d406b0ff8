from __future__ import annotations

import tomllib
from typing import Any

import pytest
from tests.support.specs import grid, spec_text

from offbeat.core.errors import ConfigError
from offbeat.experiments.spec import Spec, read_spec, spec_of


def spec(**changes: Any) -> Spec:
    return spec_of(tomllib.loads(spec_text(**changes)), "a.toml")


def test_the_number_of_sessions_gives_the_first_seeds():
    assert spec(seeds=None, sessions=3).seeds == (0, 1, 2)


def test_a_single_env_equals_a_list_of_one_env():
    assert spec().envs == ("CartPole-v1",)
    assert spec(env=None, envs=["A-v0", "B-v0"]).envs == ("A-v0", "B-v0")


def test_comments_and_key_order_do_not_change_the_identity_of_a_spec():
    one = 'algorithm = "a2c"\nenv = "E-v0"\nsessions = 2\n[search.over]\ngamma = [0.9, 0.8]\nclip = [1, 2]\n'
    other = '# all\nsessions = 2\nenv = "E-v0"\nalgorithm = "a2c"\n[search.over]\nclip = [1, 2]\ngamma = [0.9, 0.8]\n'
    one_spec, other_spec = (spec_of(tomllib.loads(text), "a.toml") for text in (one, other))
    assert one_spec.identity() == other_spec.identity()
    assert one_spec.search is not None
    assert other_spec.search is not None
    assert one_spec.search.settings() == other_spec.search.settings()


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": "ppo"},
        {"env": "Acrobot-v1"},
        {"preset": "ppo-cartpole-v1"},
        {"imports": ["os"]},
        {"settings": {"steps": 5}},
        {"search": grid(gamma=[0.9])},
        {"policies": {"mine": {"agents": "*"}}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_settings_that_define_sessions_change_the_identity_of_a_spec(changes):
    assert spec(**{"algorithm": "a2c", **changes}).identity() != spec(algorithm="a2c").identity()


@pytest.mark.parametrize("changes", [{"seeds": [1, 2, 3]}, {"target_return": 100}])
def test_more_seeds_and_a_target_do_not_change_the_identity_of_a_spec(changes):
    assert spec(**changes).identity() == spec().identity()


REFUSED: list[tuple[dict[str, Any], list[str]]] = [
    ({"algoritm": "ppo"}, ["unknown key 'algoritm'. Did you mean 'algorithm'?"]),
    ({"learning_rate": 0.1}, ["unknown key 'learning_rate'", "[settings]"]),
    ({"name": "study"}, ["unknown key 'name'", "the name of its file"]),
    ({"algorithm": None}, ["names no algorithm"]),
    ({"algorithm": "pppo"}, ["a.toml: unknown algorithm 'pppo'", "'ppo'"]),
    ({"algorithm": "a3c"}, ['A3C is a2c with runtime = "hogwild"']),
    ({"env": None}, ["env = ", "envs = "]),
    ({"envs": ["A-v0"]}, ["either env", "or envs"]),
    ({"env": None, "envs": []}, ["at least one"]),
    ({"env": None, "envs": ["A-v0", "A-v0"]}, ["envs has 'A-v0' twice"]),
    ({"env": 5}, ["env is 5", "text"]),
    ({"seeds": None}, ["seeds = [1, 2, 3]", "sessions = 3"]),
    ({"seeds": []}, ["seeds = [1, 2, 3]"]),
    ({"sessions": 3}, ["either seeds", "or sessions"]),
    ({"seeds": [1, 1]}, ["seeds has 1 twice"]),
    ({"seeds": 3}, ["seeds is 3", "seeds = [3]", "sessions = 3"]),
    ({"algo": "ppo"}, ["unknown key 'algo'", "'algorithm'"]),
    ({"steps": 9}, ["unknown key 'steps'", "belong under [settings]"]),
    ({"max_trial": 4}, ["a.toml: unknown key 'max_trial'", "trials = 4 under [search]"]),
    ({"max_session": 4}, ["unknown key 'max_session'", "sessions = 4 at its top", "workers = 4"]),
    ({"search_scheduler": {}}, ["unknown key 'search_scheduler'", "no trial is stopped early: leave it out"]),
    ({"meta": {"max_trial": 4}}, ["unknown key 'meta'", "trials under [search]"]),
    ({"max_frame": 4}, ["unknown key 'max_frame'", "calls it steps. Pass the env steps", "of a run belong under [set"]),
    ({"trials": 4}, ["unknown key 'trials': it belongs under [search]"]),
    ({"gama": 0.9}, ["unknown key 'gama'. Did you mean 'gamma'?", "of a run belong under [settings]"]),
    ({"colour": "red"}, ["unknown key 'colour'. Settings of a run", "of a search under [search]"]),
    ({"seeds": [-1]}, ["seeds is [-1], but a list, each item a whole number at least 0"]),
    ({"seeds": None, "sessions": 0}, ["sessions is 0", "at least 1"]),
    ({"seeds": None, "sessions": 10**10}, ["sessions is 10000000000", "at most 100000"]),
    ({"target_return": "much"}, ["target_return is 'much'", "a number"]),
    ({"settings": 5}, ["settings is 5", "[settings]"]),
    ({"settings": {"seed": 3}}, ["seed is under [settings]", "seeds = [1, 2, 3]"]),
    ({"settings": {"run_dir": "x"}}, ["run_dir is under [settings]", "--dir"]),
    ({"settings": {"preset": "x"}}, ["preset is under [settings]", "top of the file"]),
    ({"policies": {"mine": {"agent": "*"}}}, ["unknown key 'agent'", "'agents'", "[policies.mine]"]),
    ({"policies": 3}, ["policies is 3", "[policies]"]),
    ({"policies": {"a": {"agents": "*"}}, "settings": {"policies": "separate"}}, ["policies is both a setting and"]),
    ({"policies": {"a": {"agents": "*"}}, "search": grid(policies=["separate"])}, ["policies is both a setting and"]),
    ({"settings": {"policies": {"a": {"agents": "*"}}}}, ["policies.a.agents is under [settings]", "[policies.a]"]),
    ({"search": grid(policies=[{"a": {"agents": "*"}}])}, ["policies has tables under [search.over]", "files"]),
    ({"search": grid(seed=[1, 2])}, ["seed is under [search.over]", "seeds = [1, 2, 3]"]),
    (
        {"search": grid(**{"env.eval_kwargs.size": [1, 2]})},
        ["env.eval_kwargs.size is under [search.over]", "compared by their evaluations", "under [settings]"],
    ),
    ({"search": {"over": {"env": {"eval_kwargs": {"size": [1, 2]}}}}}, ["env.eval_kwargs.size is under [search.over]"]),
    ({"search": grid(eval_kwargs=[{"size": 1}, {"size": 2}])}, ["eval_kwargs is under [search.over]", "[settings]"]),
    ({"search": grid(steps=[1, 2])}, ["steps is both under [settings] and under [search.over]"]),
    (
        {"settings": {"encoder_kwargs": {"units": 3}}, "search": grid(encoder_kwargs=[{"units": 4}])},
        ["encoder_kwargs is searched over as a whole table", "encoder_kwargs.units is under [settings]"],
    ),
    (
        {"settings": {"env": {"kwargs": {"size": 3}}}, "search": grid(kwargs=[{"size": 4}])},
        ["kwargs is searched over as a whole table", "env.kwargs.size is under [settings]", "over env.kwargs.NAME"],
    ),
    (
        {"search": {"over": {"env": {"kwargs": {"size": [3]}}, "kwargs": [{"size": 4}]}}},
        ["kwargs is searched over as a whole table", "env.kwargs.size is under [search.over]"],
    ),
    (
        {"settings": {"league": {"window": 3}}, "search": grid(league=[{"window": 4}])},
        ["league is searched over as a whole table", "league.window is under [settings]"],
    ),
    ({"settings": {"env": {"max_episode_steps": 9}}}, ["[settings.env] is a table of a config.toml", "directly under"]),
    ({"settings": {"env": {"frame_skip": 2, "kwargs": {"a": 1}}}}, ["[settings.env] is a table of a config.toml"]),
    ({"settings": {"runtime": {"actors": 2}}}, ["[settings.runtime] is a table of a config.toml"]),
    ({"settings": {"run": {"steps": 2}}}, ["[settings.run] is a table of a config.toml"]),
    ({"settings": {"ppo": {"gamma": 0.9}}}, ["[settings.ppo] is a table of a config.toml"]),
    (
        {"settings": {"kwargs": {"size": 3}, "env": {"kwargs": {"size": 4}}}},
        ["env.kwargs.size is given twice under [settings], by 'kwargs' and by 'env': keep one of them"],
    ),
    (
        {"settings": {"encoder_kwargs.units": 3, "encoder_kwargs": {"units": 4}}},
        ["encoder_kwargs.units is given twice under [settings], by 'encoder_kwargs.units' and by 'encoder_kwargs'"],
    ),
    (
        {"settings": {"kwargs": {"size": 3}}, "search": grid(**{"env.kwargs.size": [4]})},
        ["env.kwargs.size is both under [settings] and under [search.over]"],
    ),
    ({"settings": {"env_kwargs": {"size": 8}}}, ["env_kwargs is under [settings]", "[settings.env.kwargs]"]),
    ({"settings": {"progress": "none"}}, ["progress is under [settings]", "--progress to `offbeat run`"]),
    ({"search": {"over": {"gamma": {"min": 0.9, "max": 1}}}}, ["unknown key 'min'", "low and high", "low = 1e-4"]),
    ({"search": {}}, ["nothing to search over", "[search.over]"]),
    ({"search": {"over": ["gamma"]}}, ["over is ['gamma'], but a table is expected: write [search.over]"]),
    ({"search": {"methud": "grid"}}, ["unknown key 'methud'", "'method'"]),
    ({"search": {"method": "gird", **grid(gamma=[0.9])}}, ["method is 'gird'", "grid, random, optuna"]),
    ({"search": {"trials": 3, **grid(gamma=[0.9])}}, ["leave out trials", "random"]),
    ({"search": {"seed": 3, **grid(gamma=[0.9])}}, ["leave out seed"]),
    ({"search": {"method": "random", **grid(gamma=[0.9])}}, ["add trials = 8"]),
    ({"search": {"method": "random", "trials": 0, **grid(gamma=[0.9])}}, ["trials is 0", "at least 1"]),
    (
        {"search": {"method": "random", "trials": 10**9, **grid(gamma=[0.9])}},
        ["trials is 1000000000", "at most 100000"],
    ),
    ({"search": grid(**{f"k{n}": [*range(10)] for n in range(9)})}, ["values: 1,000,000,000", "at most 100,000"]),
    (
        {"seeds": [*range(1001)], "search": grid(gamma=[n / 100 for n in range(100)])},
        ["100,100 sessions", "at most 100,000"],
    ),
    ({"seeds": None, "sessions": 10**5, "search": grid(gamma=[0.9, 0.8])}, ["200,000 sessions", "at most 100,000"]),
    (
        {"env": None, "envs": ["A-v0", "B-v0"], "search": {"method": "random", "trials": 10**5, **grid(gamma=[0.9])}},
        ["400,000 sessions", "envs: 2,"],
    ),
    ({"search": grid(gamma=[])}, ["gamma is []", "a list of values"]),
    ({"search": {"over": {"gamma": 0.9}}}, ["gamma is 0.9", "a list of values", "low = "]),
    ({"search": grid(gamma=[0.9, 0.9])}, ["gamma has 0.9 twice"]),
    ({"algorithm": "sac", "search": grid(utd_ratio=[0.5, "1/2"])}, ["utd_ratio has 0.5 and '1/2', which are the same"]),
    ({"settings": {}, "search": grid(hidden_sizes=["8,8", [8, 8]])}, ["hidden_sizes has '8,8' and [8, 8]"]),
    ({"search": {"over": {"gamma": {"low": 0.1, "high": 0.9}}}}, ["gamma is a range", "random"]),
]
RANGES: list[tuple[dict[str, Any], list[str]]] = [
    ({"low": 0.9, "high": 0.1}, ["from 0.9 to 0.1"]),
    ({"low": 0.1}, ["lacks high"]),
    ({"low": 0.1, "high": 0.9, "scale": "lin"}, ["'lin'", "linear, log"]),
    ({"low": 0.1, "hihg": 0.9}, ["'hihg'", "'high'"]),
    ({"low": 0, "high": 0.9, "scale": "log"}, ["above 0"]),
    ({"low": 0.1, "high": 0.9, "scale": "log", "step": 0.1}, ["no step"]),
    ({"low": 0.1, "high": 0.9, "step": 2}, ["step 2", "0.8"]),
    ({"low": 0.1, "high": 0.9, "step": 0}, ["step 0"]),
    ({"low": "a", "high": 0.9}, ["low of gamma is 'a'"]),
]
REFUSED += [({"search": {"method": "random", "trials": 2, "over": {"gamma": r}}}, says) for r, says in RANGES]


@pytest.mark.parametrize(("changes", "says"), REFUSED, ids=lambda part: str(part)[:60])
def test_an_invalid_spec_is_refused_with_the_remedy(changes, says):
    with pytest.raises(ConfigError) as refused:
        spec(**changes)
    assert [fragment for fragment in says if fragment not in str(refused.value)] == [], refused.value
    assert "--set" not in str(refused.value)


def test_a_spec_file_may_begin_with_a_byte_order_mark(tmp_path):
    (tmp_path / "a.toml").write_text(spec_text(), encoding="utf-8-sig")
    assert read_spec(tmp_path / "a.toml").identity() == spec().identity()


def test_a_spec_file_that_is_missing_or_invalid_toml_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_spec(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_spec(tmp_path)
    (tmp_path / "a.toml").write_text("[run\n")
    with pytest.raises(ConfigError, match="is not TOML"):
        read_spec(tmp_path / "a.toml")


def test_the_record_of_a_range_has_what_the_spec_says_of_it_alone():
    over = {"checkpoints_kept": {"low": 8, "high": 64, "step": 8}}
    (found,) = spec(search={"method": "random", "trials": 2, "over": over}).identity()["search"]["over"].values()
    assert found == {"low": 8, "high": 64, "scale": "linear", "step": 8, "integers": True}
