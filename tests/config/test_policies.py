from __future__ import annotations

import pickle
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbeat.algorithms.on_policy_config import OnPolicyConfig
from offbeat.algorithms.sac_config import SACConfig
from offbeat.config.changes import fixed_settings
from offbeat.config.config import Config
from offbeat.config.config_file import load
from offbeat.config.policies import names_of, read_policies, tables_of
from offbeat.config.policy_agents import assigned, owners, separate
from offbeat.config.resolve import resolve
from offbeat.core.errors import ConfigError
from offbeat.core.policy_names import DEFAULT_POLICY

AGENTS = ("agent_0", "adversary_0", "agent_1", "Agent_2")
TABLES: dict[str, dict[str, Any]] = {
    "good": {"agents": "agent_*", "settings": {"learning_rate": 1e-4, "hidden_sizes": [8, 8]}},
    "adversary": {"agents": ["adversary_*", "Agent_?"], "train": False, "init_from": "runs/earlier"},
}
FILE = """
[policies.good]
agents = "agent_*"
settings = { learning_rate = 1e-4, hidden_sizes = [8, 8] }
[policies.adversary]
agents = ["adversary_*", "Agent_?"]
train = false
init_from = "runs/earlier"
"""


def config(policies: object = TABLES, algorithm: str = "ppo", **settings: object) -> Config:
    return resolve(algorithm, "CartPole-v1", flags={"policies": policies, **settings})


def refusal(policies: object, algorithm: str = "ppo", **settings: object) -> str:
    with pytest.raises(ConfigError) as refused:
        config(policies, algorithm, **settings)
    return str(refused.value)


def only(**table: object) -> dict[str, Any]:
    return {"mine": {"agents": "*", **table}}


# --- owners -------------------------------------------------------------------------------------------------


def test_owners_are_sorted_by_name_and_their_agents_in_the_order_of_the_world():
    owned = owners(config().policies, AGENTS)
    assert list(owned.items()) == [("adversary", ("adversary_0", "Agent_2")), ("good", ("agent_0", "agent_1"))]


def test_without_tables_one_policy_owns_all_agents():
    assert owners({}, AGENTS) == {DEFAULT_POLICY: AGENTS}
    assert names_of(()) == (DEFAULT_POLICY,)


@pytest.mark.parametrize(("first", "expected"), [("a", {"a": ("x1", "x2"), "b": ("y",)}), ("b", None)])
def test_an_agent_belongs_to_the_first_table_that_matches(first, expected):
    tables = {name: {"agents": {"a": "x*", "b": "*"}[name]} for name in sorted("ab", key=lambda name: name != first)}
    policies = read_policies(tables, "here")
    if expected is None:
        with pytest.raises(ConfigError, match=r"the policy a has no agents: .* that of b, .*\[policies.a\] above it"):
            owners(policies, ("x1", "y", "x2"))
    else:
        assert owners(policies, ("x1", "y", "x2")) == expected


def test_an_agent_that_matches_no_pattern_is_refused_with_the_patterns():
    with pytest.raises(ConfigError, match=r"'judge' belongs to no policy.*agent_\* \(good\).*agents = \"\*\""):
        owners(config().policies, (*AGENTS, "judge"))


def test_a_policy_whose_patterns_match_no_agent_is_refused_with_the_agents():
    with pytest.raises(ConfigError, match=r"the policy adversary has no agents: .*matches none of agent_0, agent_1"):
        owners(config().policies, ("agent_0", "agent_1"))


names = st.lists(st.text(max_size=120), min_size=2, max_size=6, unique=True)


@given(names)
def test_separate_policies_have_one_agent_each_whatever_the_names_of_the_agents_are(agents):
    policies = separate(agents)
    owned = owners(policies, agents)
    assert read_policies(tables_of(policies), "here") == policies
    assert sorted(owned.values()) == sorted((agent,) for agent in agents)


def test_separate_policies_have_the_names_of_their_agents_where_these_are_valid():
    policies = separate(("a b", "a_b", "default", "x-1"))
    assert {name: policy.agents for name, policy in policies.items()} == {
        "a_b_2": ("a b",),
        "a_b": ("a_b",),
        "default_2": ("default",),
        "x-1": ("x-1",),
    }


def test_a_world_with_a_single_agent_has_no_separate_policies():
    assert not config("separate").with_agents(("only",)).policies


@given(names)
def test_a_function_of_the_agents_name_gives_explicit_lists_of_agents(agents):
    policies = assigned(lambda agent: "long" if len(agent) > 3 else "short", agents)
    owned = owners(policies, agents)
    assert sorted(agent for own in owned.values() for agent in own) == sorted(agents)
    assert all((len(agent) > 3) == (name == "long") for name, own in owned.items() for agent in own)


def of_agent_and_episode(agent_id: str, episode: object, **_: object) -> str:
    return f"{agent_id} in {episode}"


def of_agent_and_others(agent_id: str, *_: object) -> str:
    return agent_id


def test_a_function_that_needs_more_than_the_name_of_an_agent_is_refused_with_what_it_is_called_with():
    says = (
        r"policies is a function of \(agent_id: .*, episode: .*\).*, but it is called with the name of an agent alone"
    )
    with pytest.raises(ConfigError, match=rf"{says}.*--set league.draw_policies=true"):
        config(of_agent_and_episode)


@pytest.mark.parametrize("function", [of_agent_and_others, str, {"a": "b"}.get])
def test_a_function_that_can_be_called_with_the_name_of_an_agent_alone_is_accepted(function):
    assert config(function).assignment is function


# --- the config ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_tables_of_policies_round_trip_through_config_toml_in_their_order(tmp_path, algorithm):
    saved = config(algorithm=algorithm)
    saved.save(tmp_path / "config.toml")
    loaded = load(tmp_path / "config.toml")
    assert loaded == saved
    assert list(loaded.policies) == ["good", "adversary"]
    assert loaded.run.policies == "tables"
    assert pickle.loads(pickle.dumps(saved)) == saved
    hash(saved.policies)


def test_a_config_without_tables_has_none_in_config_toml():
    assert "policies" not in tomllib.loads(config("shared").as_toml().decode()).keys() - {"run"}


def test_a_file_of_tables_gives_the_same_config_as_the_tables(tmp_path):
    (tmp_path / "mine.toml").write_text(FILE)
    assert config(str(tmp_path / "mine.toml")) == config(tmp_path / "mine.toml") == config()


def test_the_config_of_a_run_as_a_file_gives_its_policies_and_nothing_else(tmp_path):
    config(steps=300).save(tmp_path / "config.toml")
    assert config(str(tmp_path / "config.toml")) == config()


def test_separate_tables_are_made_once_the_agents_are_known_and_round_trip(tmp_path):
    asked = config("separate")
    assert not asked.policies
    made = asked.with_agents(AGENTS)
    assert set(made.policies) == set(AGENTS)
    made.save(tmp_path / "config.toml")
    assert load(tmp_path / "config.toml").with_agents(AGENTS) == made


def test_a_function_is_replaced_by_tables_once_the_agents_are_known(tmp_path):
    made = config(lambda agent: agent.partition("_")[0].lower()).with_agents(AGENTS)
    assert {name: policy.agents for name, policy in made.policies.items()} == {
        "agent": ("agent_0", "agent_1", "Agent_2"),
        "adversary": ("adversary_0",),
    }
    made.save(tmp_path / "config.toml")
    assert load(tmp_path / "config.toml") == made


@pytest.mark.parametrize("name", [None, 3, "a b", ""])
def test_a_function_that_returns_no_valid_name_is_refused(name):
    with pytest.raises(ConfigError, match=r"name"):
        config(lambda _: name).with_agents(AGENTS)


def test_a_policys_settings_replace_those_of_the_algorithms_table():
    run = config(learning_rate=0.5, gamma=0.7)
    good, adversary = run.of_policy("good"), run.of_policy("adversary")
    settings = [each.settings_as(OnPolicyConfig) for each in (good, adversary)]
    assert [(own.learning_rate, own.gamma) for own in settings] == [(1e-4, 0.7), (0.5, 0.7)]
    assert [each.run.init_from for each in (good, adversary)] == [None, "runs/earlier"]
    assert not good.policies


OWN = "policies.good.settings."


@pytest.mark.parametrize(
    ("key", "given", "value"),
    [("learning_rate", "3e-4", 3e-4), ("gamma", 0.9, 0.9), ("hidden_sizes", "4,4", (4, 4)), ("epochs", "7", 7)],
)
def test_set_gives_one_policy_its_own_value(key, given, value):
    changed = config(**{f"{OWN}{key}": given})
    assert changed.policies["good"].settings[key] == value
    assert changed.policies["adversary"] == config().policies["adversary"]
    assert changed.algorithm_settings == config().algorithm_settings


def test_the_single_policy_has_the_config_of_the_run():
    run = config("shared")
    assert run.of_policy(DEFAULT_POLICY) is run
    with pytest.raises(ConfigError, match="unknown policy 'good'"):
        run.of_policy("good")


@pytest.mark.parametrize(
    "changed",
    [
        {"good": {"agents": "agent_0"}, "adversary": {"agents": "*"}},
        {**TABLES, "adversary": {**TABLES["adversary"], "train": True}},
        {**TABLES, "third": {"agents": "judge"}},
        {"good": {"agents": "*"}},
        dict(reversed(TABLES.items())),
        "shared",
    ],
)
def test_agents_and_what_is_trained_are_fixed(changed):
    assert fixed_settings(config()) == fixed_settings(config())
    before, after = fixed_settings(config()), fixed_settings(config(changed))
    assert any(before[key] != after.get(key) for key in before)  # what a resume compares


def test_settings_of_a_policy_that_a_resume_may_change_are_not_fixed():
    other = {**TABLES, "good": {"agents": "agent_*", "settings": {"learning_rate": 0.1}}}
    assert fixed_settings(config()) == fixed_settings(config(other))


def test_settings_of_a_policy_that_its_replay_depends_on_are_fixed():
    tables = [only(settings={"prioritized": prioritized}) for prioritized in (True, False)]
    first, second = (fixed_settings(config(each, "sac")) for each in tables)
    assert {key for key in first if first[key] != second[key]} == {"policies.mine.settings.prioritized"}


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policies", "says"),
    [
        ({}, ["no table [policies.NAME]", "--policies FILE.toml"]),
        ("tables", ["policies is 'tables'", "--policies separate"]),
        (3, ["policies is 3", "shared, separate"]),
        ({"a/b": {"agents": "*"}}, ["'a/b'", "letters, digits, _ and -"]),
        ({"ä": {"agents": "*"}}, ["letters, digits, _ and -"]),
        ({"a" * 101: {"agents": "*"}}, ["1 to 100 letters"]),
        ({"": {"agents": "*"}}, ["1 to 100 letters"]),
        ({"default": {"agents": "a"}, "b": {"agents": "b"}}, ["'default'", "only the single policy"]),
        ({"mine": 3}, ["table [policies.mine]", "3"]),
        ({"mine": {}}, ["[policies.mine] lacks agents"]),
        ({"mine": {"agents": []}}, ["the policy mine has no agents", 'agents = "PATTERN"']),
        ({"mine": {"agents": 3}}, ["agents is 3", "[policies.mine]"]),
        (only(agent="*"), ["unknown key 'agent'", "'agents'", "policies, table [policies.mine]"]),
        (only(algorithm="sac"), ["unknown key 'algorithm'. All policies of a run have its algorithm: leave it out"]),
        (only(gamma=0.9), ["unknown key 'gamma'. Its keys are agents, train, init_from, init_policy and settings"]),
        (only(train="perhaps"), ["train is 'perhaps'", "[policies.mine]"]),
        (only(settings=3), ["settings is 3", "[policies.mine]"]),
        (only(settings={"learning_rat": 1}), ["'learning_rat'", "'learning_rate'", "[policies.mine.settings]"]),
        (
            only(settings={"ent_coef": 0.1}),
            ["Stable-Baselines3 and CleanRL", "entropy_coef", "[policies.mine."],
        ),
        (only(settings={"learning_rate": "fast"}), ["learning_rate is 'fast'", "[policies.mine.settings]"]),
        (only(settings={"unroll_length": 8}), ["has unroll_length", "set it for the whole run"]),
        (only(settings={"steps": 8}), ["has steps", "set it for the whole run"]),
        (only(settings={"frame_stack": 8}), ["has frame_stack", "set it for the whole run"]),
    ],
)
def test_invalid_tables_are_refused_with_the_name_of_the_policy_and_the_remedy(policies, says):
    message = refusal(policies)
    assert [word for word in says if word not in message] == [], message


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("policies.good.settings.learning_rat", ["'learning_rat'", "'learning_rate'", "[policies.good.settings]"]),
        ("policies.good.settings.learning_rate", ["policies.good.settings.learning_rate is 'fast'"]),
        ("policies.good.settings.unroll_length", ["has unroll_length", "set it for the whole run"]),
        ("policies.goo.settings.learning_rate", ["unknown policy 'goo'", "'good'"]),
        ("policies.good.learning_rate", ["only policies.NAME.settings.KEY", "--policies"]),
        ("policies.good.train", ["only policies.NAME.settings.KEY", "a resume cannot change them"]),
        ("policies.good.settings", ["only policies.NAME.settings.KEY"]),
    ],
)
def test_invalid_keys_of_one_policy_are_refused(key, says):
    message = refusal(TABLES, **{key: "fast"})
    assert [word for word in says if word not in message] == [], message


@pytest.mark.parametrize("policies", ["shared", "separate"])
def test_a_value_for_one_policy_is_refused_without_tables(policies):
    message = refusal(policies, "ppo", **{f"{OWN}gamma": 0.9})
    assert "there is no table [policies.good]" in message
    assert "set gamma for the whole run" in message


@pytest.mark.parametrize(
    "settings", [{"utd_ratio": "1/2"}, {"warmup": 6000}, {"chunk_length": 2}, {"max_ahead": 3}, {"capacity": 9000}]
)
def test_settings_that_change_the_pace_or_the_memory_are_refused_for_one_policy(settings):
    message = refusal(only(settings={**settings, "learning_rate": 0.1}), "sac")
    assert f"[policies.mine.settings] has {', '.join(settings)}, which all policies of a run share" in message


def test_the_batches_of_a_policy_may_have_their_own_size_but_the_warmup_of_the_run_must_fill_one():
    own = config(only(settings={"batch_size": 512}), "sac").of_policy("mine")
    assert own.settings_as(SACConfig).batch_size == 512
    message = refusal(only(settings={"batch_size": 512}), "sac", warmup=300)
    assert "the policy mine" in message
    assert "the first sample needs 512: pass --set warmup=512 or more" in message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no policy"),
        ("policies = 3", "has no policy"),
        ("steps = 3\n" + FILE, "has steps, but only tables"),
        (FILE + "\n[run]\nsteps = 3\n", "has run, but only tables"),
        ("[policies", "is not TOML"),
    ],
)
def test_a_file_with_something_else_than_policies_is_refused(tmp_path, text, says):
    (tmp_path / "mine.toml").write_text(text)
    assert says in refusal(str(tmp_path / "mine.toml"))


def test_a_config_toml_whose_tables_contradict_its_choice_is_refused(tmp_path):
    text = config().as_toml().decode().replace('policies = "tables"', 'policies = "shared"')
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(ConfigError, match="policies is shared, but there are tables of the policies good, adversary"):
        load(tmp_path / "config.toml")


# --- code ---------------------------------------------------------------------------------------------------


@pytest.fixture
def _code(tmp_path, monkeypatch) -> Path:
    """A folder with a module that nobody has named."""
    (tmp_path / "strange_code.py").write_text("raise AssertionError('imported')")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("_code")
def test_a_file_of_policies_must_not_name_an_encoder_that_the_caller_has_not_named():
    named = FILE.replace("learning_rate = 1e-4", 'encoder = "strange_code:Encoder"')
    Path("mine.toml").write_text(named)
    assert "mine.toml would import strange_code" in refusal("mine.toml")


@pytest.mark.usefixtures("_code")
def test_a_config_toml_must_not_name_an_encoder_of_a_policy_that_the_caller_has_not_named():
    text = config().as_toml().decode().replace("learning_rate = 0.0001", 'encoder = "strange_code:Encoder"')
    Path("config.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"config\.toml would import strange_code"):
        load(Path("config.toml"))
