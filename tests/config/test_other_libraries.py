"""Names of other libraries are recognised in errors, and are on the pages for those who come from there."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from inspect import signature
from typing import get_args

import pytest
from tests.support.pages import ROOT

import offbeat
from offbeat.api.playing.loaded_policy import LoadedPolicy
from offbeat.config.env import EnvConfig
from offbeat.config.league import LeagueConfig
from offbeat.config.other_libraries import other_calls, other_names
from offbeat.config.registry import ALGORITHMS, OUR_ENCODERS
from offbeat.config.resolve import resolve, setting_names
from offbeat.config.run_config import RunConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.config.unknown_keys import ARGUMENTS, is_valid
from offbeat.core.argument_notation import FLAGS
from offbeat.core.errors import ConfigError
from offbeat.core.field_definitions import hints_of
from offbeat.metrics.names import METRICS
from offbeat.metrics.progress.views import ProgressKind


@pytest.mark.parametrize(
    ("algorithm", "given", "says"),
    [
        ("ppo", {"n_envs": 8}, ["Stable-Baselines3", "calls it envs_per_actor", "--envs-per-actor 8"]),
        ("ppo", {"clip_range": 0.1}, ["calls it clip:", "--set clip=0.1"]),
        ("ppo", {"total_timesteps": 1e6}, ["Stable-Baselines3 and CleanRL", "calls it steps", "--steps 1000000"]),
        ("ppo", {"lr": 3e-4}, ["RLlib", "calls it learning_rate", "--set learning_rate=0.0003"]),
        ("ppo", {"ent_coef": 0.01}, ["calls it entropy_coef"]),
        ("sac", {"ent_coef": 0.01}, ["calls it temperature"]),
        ("sac", {"ent_coef": "auto"}, ["calls it temperature: pass --set temperature=none"]),
        ("ppo", {"n_steps": 2048}, ["calls it unroll_length"]),
        ("dqn", {"n_steps": 3}, ["calls it n_step:"]),
        ("ppo", {"num_workers": 4}, ["RLlib and Sample Factory", "calls it actors", "--actors 4"]),
        ("ppo", {"batch_size": 64}, ["Sample Factory", "calls it minibatch_size"]),
        ("ppo", {"num_minibatches": 4}, ["calls it minibatch_size", "not the number of minibatches"]),
        ("sac", {"clip_range": 0.1}, ["calls it clip, which the algorithm of this run does not have"]),
        ("ppo", {"with_vtrace": True}, ["calls it clip_reference. Pass proximal for V-trace, or behavior without it."]),
        ("impala", {"vtrace": True}, ["calls it clip_reference, which the algorithm of this run does not have"]),
        ("ppo", {"vf_coef": 1}, ["calls it value_coef. Pass twice their value: theirs"]),
        (
            "ppo",
            {"vf_coef": 0.5},
            [
                "With the meaning of CleanRL, offbeat calls it value_coef: pass",
                "With the meaning of Stable-Baselines3,",
            ],
        ),
        ("ppo", {"verbose": 1}, ["calls it progress. Pass none, lines or dashboard; for example, --progress none"]),
        (
            "ppo",
            {"callback": print},
            ["calls it callbacks. Pass a list", "callbacks=[my_function]"],
        ),
        ("ppo", {"time_horizon": 64}, ["ML-Agents and SLM Lab", "calls it unroll_length"]),
        ("ppo", {"max_steps": 5000}, ["ML-Agents", "calls it steps. Pass a number of env steps"]),
        ("ppo", {"save_steps": 50}, ["ML-Agents", "--set league.snapshot_every=50"]),
        ("ppo", {"league.swap_steps": 50}, ["unknown key 'league.swap_steps'", "ML-Agents", "drawn for each episode"]),
        ("ppo", {"league": {"save_steps": 5}}, ["unknown key 'league.save_steps'", "--set league.snapshot_every=50"]),
        (
            "ppo",
            {"threaded": True},
            ["ML-Agents", "calls it runtime. Pass threads for true; for false pass --max-lag 0"],
        ),
        ("ppo", {"buffer_size": 10240}, ["of ML-Agents, and offbeat calls it unrolls_per_batch. Pass the unrolls of"]),
        ("sac", {"buffer_size": 9}, ["Stable-Baselines3, CleanRL and ML-Agents", "calls it capacity: pass --set"]),
        (
            "ppo",
            {"env_kwargs": {}},
            ["Stable-Baselines3", "arguments of the env's constructor are --env-kwargs"],
        ),
        ("ppo", {"env_config": {}}, ["arguments of the env's constructor are --env-kwargs NAME=VALUE"]),
        ("sac", {"max_trial": 4}, ["SLM Lab; in offbeat, a spec of an experiment has trials = 4 under [search]"]),
        ("sac", {"replay_ratio": 2}, ["of other libraries, and offbeat calls it utd_ratio: pass --set utd_ratio=2"]),
        ("td3", {"updates_per_step": 2}, ["calls it utd_ratio: pass --set utd_ratio=2"]),
        ("ppo", {"net_arch": [64]}, ["calls it hidden_sizes. Pass one list, for policy and critic"]),
        ("ppo", {"share_features_extractor": True}, ["calls it shared_trunk. Pass true or false", "hidden layers too"]),
        ("dqn", {"explore_var_spec": {}}, ["SLM Lab", "calls it final_epsilon. Pass the last value"]),
        ("ppo", {"features_extractor_kwargs": {"units": 64}}, ["calls it encoder_kwargs: pass --set encoder_kwargs."]),
        ("ppo", {"features_extractor_kwargs.units": 64}, ["calls it encoder_kwargs: pass --set encoder_kwargs.NAME"]),
        ("sac", {"custom_model_config": {"units": 64}}, ["RLlib, and offbeat calls it encoder_kwargs: pass --set"]),
        ("ppo", {"num_policies": 2}, ["Sample Factory; in offbeat, ", "--policies separate", "a table [population]"]),
        ("ppo", {"with_pbt": True}, ["Sample Factory; in offbeat, a population is a spec with a table [population]"]),
        ("ppo", {"recurrence": 32}, ["gradients go back through the whole unroll, of unroll_length env steps"]),
        ("ppo", {"custom_loss": "x"}, ["RLlib; in offbeat, a subclass of an algorithm can have a loss of its own"]),
        (
            "ppo",
            {"eval_env_kwargs": {}},
            ["Stable-Baselines3", "calls it eval_kwargs: pass --set env.eval_kwargs.NAME"],
        ),
        ("ppo", {"framework": "torch"}, ["networks are of PyTorch: leave it out"]),
        ("ppo", {"trainer_type": "ppo"}, ["ML-Agents; in offbeat, the algorithm is the first argument"]),
        ("ppo", {"self_play.save_steps": 9}, ["unknown key 'self_play.save_steps'", "ML-Agents", "every 50"]),
        ("ppo", {"self_play.window": 9}, ["'self_play.window': it is a key of the table [league]", "league.window=9"]),
        ("ppo", {"kwargs.size": 9}, ["unknown key 'kwargs.size': it is", "pass --set env.kwargs.size=VALUE."]),
        ("ppo", {"env_kwargs.size": 9}, ["env's constructor: pass --set env.kwargs.size=VALUE"]),
        ("ppo", {"eval_kwargs.size": 9}, ["env's constructor: pass --set env.eval_kwargs.size=VALUE"]),
        ("ppo", {"env.num_envs": 9}, ["an argument of the env's constructor is env.kwargs.NAME"]),
        ("ppo", {"evaluation_config": {}}, ["RLlib", "calls it eval_kwargs.", "--set env.eval_kwargs.NAME=VALUE"]),
        (
            "ppo",
            {"eval_env": "A-v0"},
            ["Stable-Baselines3", "--set env.eval_kwargs.NAME=VALUE", "plays in another env"],
        ),
        ("pearl", {"num_train_tasks": 4}, ["garage", "calls it train_tasks: pass --set train_tasks=4"]),
        ("dqn", {"epsilon": 0.1}, ["other libraries", "calls it final_epsilon. Pass its value at the end."]),
        ("ppo", {"epsilon": 0.1}, ["ML-Agents", "calls it clip: pass --set clip=0.1"]),
        ("dqn", {"eps": 0.1}, ["calls it final_epsilon: pass --set final_epsilon=0.1"]),
        ("sac", {"memory_size": 5000}, ["With the meaning of other libraries, offbeat calls it capacity: pass --set"]),
        ("sac", {"random_steps": 500}, ["calls it warmup: pass --set warmup=500"]),
        ("sac", {"polyak": 0.995}, ["calls it ema_rate. Pass how much of the new weights is taken"]),
        ("dqn", {"epsilon_start": 1.0}, ["epsilon is 1 at the start: leave it out"]),
        ("dqn", {"target_update_interval": 1000}, ["calls it ema_every. Pass a number of updates; theirs counts env"]),
        ("sac", {"target_update_interval": 1}, ["calls it ema_rate. Pass their tau divided by the number of updates"]),
        ("td3", {"target_network_update_freq": 2}, ["calls it ema_rate. Pass their tau divided by"]),
        ("pearl", {"target_network_frequency": 2}, ["calls it ema_rate. Pass their tau divided by"]),
        ("crossq", {"target_update_interval": 1}, ["does not have: leave it out"]),
        ("sac", {"target_update": 5}, ["calls it ema_rate. Pass their tau divided by"]),
        ("dqn", {"target_update": 5}, ["calls it ema_every. Pass a number of updates."]),
        ("ppo", {"logdir": "logs"}, ["calls it run_dir", "--run-dir runs/first"]),
        ("ppo", {"policy_kwargs": {"net_arch": [64]}}, ["calls it hidden_sizes", "--set hidden_sizes=64,64"]),
    ],
    ids=str,
)
def test_a_name_of_another_library_is_answered_with_ours(algorithm, given, says):
    with pytest.raises(ConfigError) as refused:
        resolve(algorithm, "Own-v0", flags=given)
    message = str(refused.value)
    assert [fragment for fragment in [*says, f"`offbeat list settings {algorithm}`"] if fragment not in message] == []


def test_each_name_of_another_library_is_answered():
    for theirs in {other.theirs for other in other_names()}:
        for algorithm in ("ppo", "sac", "dqn"):
            if theirs not in setting_names(algorithm):
                with pytest.raises(ConfigError, match=rf"^unknown key '{theirs}'"):
                    resolve(algorithm, "Own-v0", flags={theirs: 100})


@pytest.mark.parametrize("key", ["learning_rate", "clip", "entropy_coef"])
def test_a_schedule_that_is_a_function_or_a_list_is_refused_with_the_key_of_schedules(key):
    with pytest.raises(ConfigError, match=rf"{key} is a function, .*--set {key}_schedule=linear if it is to decrease"):
        resolve("ppo", "CartPole-v1", flags={key: lambda left: 0.1 * left})
    with pytest.raises(ConfigError, match=rf'{key} is \[\[0, 1\], .*--set {key}_schedule="0:1 0.5:0.1 1:0"'):
        resolve("ppo", "CartPole-v1", flags={key: [[0, 1], [1000, 0.1]]})


@pytest.mark.parametrize("value", [[0.1, 0.2], "0.1,0.2", "[0.1, 0.2]"])
def test_several_values_of_a_setting_with_a_schedule_are_answered_with_schedules_and_a_search(value):
    says = r"learning_rate_schedule=linear if .*; to try several values, list them under \[search\.over\] in a spec"
    with pytest.raises(ConfigError, match=says):
        resolve("ppo", "CartPole-v1", flags={"learning_rate": value})


@pytest.mark.parametrize("key", ["noise_size", "learn_steps", "batch_decay"])
def test_a_key_that_only_shares_some_letters_with_ours_is_not_taken_for_it(key):
    with pytest.raises(ConfigError, match=rf"unknown key '{key}'\. `offbeat list settings sac` shows"):
        resolve("sac", "Own-v0", flags={key: 1})


def test_our_names_in_the_table_exist_and_theirs_do_not_hide_a_setting():
    ours = {key for name in other_names() for key in name.ours}
    assert ours <= setting_names() | ARGUMENTS.keys()
    for algorithm, entry in ALGORITHMS.items():
        keys = hints_of(entry.config_class()).keys()
        hidden = [name.theirs for name in other_names() if name.theirs in keys and keys & set(name.ours)]
        assert hidden == [], f"{algorithm} has these settings and ours"


def test_the_page_of_a_library_has_its_names_and_ours():
    missing = []
    for name in other_names():
        beside = [ours for theirs, ours in rows_of(name.page) if name.theirs in theirs]
        missing += [(name, key) for key in name.ours if not any(key in ours for ours in beside)]
    assert missing == []


UNANSWERED = {
    *("synch", "pbt_optimize_gamma"),  # of a population, which is no run
    *("stop", "set_seed", "torch_deterministic"),  # arguments and functions of a program around the training
    *("encoder_conv_architecture", "continuous_tanh_scale", "entropy_method"),  # no such values
    *("actor_optim_spec", "critic_optim_spec", "inner_policy", "qf", "vf", "memory"),  # tables and objects
    *("save_best_every_sec", "save_best_after", "save_best_metric", "heartbeat_reporting_interval"),
    *("num_steps_per_epoch", "num_tasks_sample", "restarts_rate_limit_period_s"),  # one of several that are one of ours
}
"""Names on the pages, beside a setting of ours, that errors do not answer."""


def test_a_name_on_the_page_of_a_library_beside_a_setting_of_ours_is_answered():
    answered = {name.theirs for name in other_names()} | other_calls().keys() | setting_names()
    pages = {name.page for name in other_names()}
    found = [
        (page, name)
        for page in pages
        for theirs, ours in cells_of(page)
        if names_in(ours) & (setting_names() | ARGUMENTS.keys())
        for name in re.findall(r"`([a-z][a-z_0-9]+)(?:=[^`]*)?`|\((\w+)\)`", theirs)
    ]
    names = {name for _, each in found for name in each if name}
    assert len(names) > 200
    assert names - answered == UNANSWERED


@cache
def rows_of(page: str) -> list[tuple[set[str], set[str]]]:
    """Return the names in the first two columns of the tables on a library's page."""
    return [(names_in(theirs), names_in(ours)) for theirs, ours in cells_of(page)]


def cells_of(page: str) -> list[tuple[str, str]]:
    """Return the first two columns of the tables on a library's page."""
    text = (ROOT / f"docs/how-to/coming-from/{page}.md").read_text()
    return re.findall(r"^\|([^|]+)\|([^|]+)\|", text, re.MULTILINE)


def names_in(cell: str) -> set[str]:
    code = " ".join(re.findall(r"`([^`]+)`", cell))
    return set(re.findall(r"[a-z_]+", re.sub(r"(?<=[a-z])-(?=[a-z])", "_", code)))


def test_no_setting_of_ours_is_taken_for_a_name_of_another_library():
    assert not other_calls().keys() & setting_names()


# --- the texts of the table ---------------------------------------------------------------------------------

TEXTS = [
    *(text for name in other_names() for text in name.ours.values()),
    *(text.partition("; in offbeat, ")[2] for text in other_calls().values()),
]
TABLES = (RunConfig, EnvConfig, RuntimeConfig, LeagueConfig, *(entry.config_class() for entry in ALGORITHMS.values()))
SETTINGS = {
    key: [hints_of(table)[key] for table in TABLES if key in hints_of(table)]
    for table in TABLES
    for key in hints_of(table)
}
"""Key -> its types: algorithms may have different ones."""
THEIRS = {"action_masks", "clip_coef", "reward_scale", "default_rng", "my_function", "units"}
"""Names in the texts that are not ours: of settings of others, of NumPy, and of examples."""


def test_the_names_in_the_texts_about_other_libraries_are_ours():
    functions = [getattr(offbeat, name) for name in offbeat.__all__ if inspect.isfunction(getattr(offbeat, name))]
    arguments = {name for function in (*functions, LoadedPolicy.__call__) for name in signature(function).parameters}
    attributes = {name for one in (offbeat.Callback, LoadedPolicy) for name in dir(one)}
    results = hints_of(offbeat.EvaluationResult)
    known = {
        *SETTINGS,
        *ARGUMENTS,
        *arguments,
        *attributes,
        *results,
        *METRICS,
        *OUR_ENCODERS,
        *THEIRS,
        *offbeat.__all__,
    }
    prefixes = {"offbeat": {*offbeat.__all__}, "league": {*hints_of(LeagueConfig)}, "policy": {*attributes, "trained"}}
    assert len([text for text in TEXTS if text]) > 100
    for text in filter(None, TEXTS):
        assert set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b|\b[a-z]\w*(?==[^=]| is a key\b)", text)) <= known, text
        for prefix, name in re.findall(r"\b(offbeat|league|policy)\.(\w+)", text):
            assert name in prefixes[prefix], text
        assert set(re.findall(r"(?<![\w-])--([a-z-]+)", text)) <= {*FLAGS}, text
        assert all((ROOT / path).is_file() for path in re.findall(r"\bexamples/\w+\.py", text)), text


def test_the_calls_in_the_texts_about_other_libraries_have_arguments_that_the_functions_accept():
    calls = [call for text in TEXTS for call in calls_in(text)]
    assert len(calls) > 20
    for function, keywords in calls:
        signature(getattr(offbeat, function)).bind_partial(**keywords)
        if function == "train":
            assert [key for key in keywords if key not in {*SETTINGS, *signature(offbeat.train).parameters}] == []


def calls_in(text: str) -> list[tuple[str, dict[str, str]]]:
    """Return the functions of offbeat that a text calls, with the keywords that it passes and their values as text."""
    found = []
    for start in re.finditer(r"offbeat\.\w+\(", text):
        ends = [start.end() + end.end() for end in re.finditer(r"\)", text[start.end() :])]
        call = next(call for end in ends if (call := parsed(text[start.start() : end])) is not None)
        assert isinstance(call.func, ast.Attribute)
        found.append((call.func.attr, {str(each.arg): ast.unparse(each.value) for each in call.keywords}))
    return found


def parsed(code: str) -> ast.Call | None:
    try:
        expression = ast.parse(code, mode="eval").body
    except SyntaxError:
        return None
    return expression if isinstance(expression, ast.Call) else None


def test_the_values_in_the_texts_about_other_libraries_are_valid():
    pairs = [pair for text in TEXTS for pair in re.findall(r"\b([a-z_]+)=\"?([\w]+)", text) if pair[0] in SETTINGS]
    choices = [(key, value) for name in other_names() for key, text in name.ours.items() for value in values_in(text)]
    assert len(pairs) > 10
    assert len(choices) > 20
    for key, value in {*pairs, *choices}:
        if key == "progress":
            assert value in get_args(ProgressKind)
        elif value not in ("my_function", "run"):
            assert any(is_valid(key, value.lower(), hint) for hint in SETTINGS[key]), (key, value)


def values_in(differs: str) -> list[str]:
    """Return the values that a text begins with: 'a, b or c', 'a for this, or b for that', or 'a for this'."""
    if found := re.match(r"(\w+) for [^,]*(?:, or (\w+) )?", differs):
        return [value for value in found.groups() if value]
    found = re.match(r"(\w+(?:, \w+)*) or (\w+)", differs)
    return [*found[1].split(", "), found[2]] if found else []
