"""`offbeat eval` of runs with several agents, with one policy and with several."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.runs import lines_of, offbeat, small_run

from offbeat.api.playing.load import load_all
from offbeat.api.playing.loaded_policy import LoadedPolicy
from offbeat.api.playing.scoring import score
from offbeat.core.errors import ConfigError

CARTS, MIXED = "offbeat.envs.testing.worlds:CartPoles", "offbeat.envs.testing.worlds:MixedSpaces"
SETTINGS: dict[str, Any] = {"steps": 512, "runtime": "serial", "envs_per_actor": 2}
KEYS = (
    "return_mean return_std return_min return_max team_return_mean length_mean returns lengths "
    "env_steps learning_step updates"
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Path:
    return small_run(tmp_path_factory.mktemp("runs") / "shared", env=CARTS, **SETTINGS).path


@pytest.fixture(scope="module")
def separate(tmp_path_factory) -> Path:
    return small_run(tmp_path_factory.mktemp("runs") / "separate", env=MIXED, policies="separate", **SETTINGS).path


def evaluate(*arguments: object) -> dict[str, Any]:
    said = offbeat("eval", *arguments, "--json")
    assert (said.code, said.err) == (0, "")
    figures: dict[str, Any] = json.loads(said.out)
    return figures


def test_eval_json_of_one_policy_has_the_return_per_agent_and_of_the_team(shared):
    figures = evaluate(shared, "--episodes", 5)
    assert " ".join(figures) == f"episodes cut not_begun {KEYS}"
    assert (figures["episodes"], figures["cut"], figures["not_begun"]) == (5, 0, 0)
    assert figures["team_return_mean"] == pytest.approx(3 * figures["return_mean"])
    assert figures["return_mean"] == figures["length_mean"]  # a cart gets 1 a step
    assert figures == evaluate(shared, "--episodes", 5)
    assert figures["return_mean"] != evaluate(shared, "--episodes", 5, "--seed", 1)["return_mean"]
    assert figures["return_mean"] != evaluate(shared, "--episodes", 5, "--sampled")["return_mean"]


def test_eval_json_of_several_policies_has_the_same_scores_of_each(separate):
    figures = evaluate(separate, "--episodes", 4)
    assert list(figures)[-1] == "policies"
    assert list(figures["policies"]) == ["driver", "gunner", "scout"]
    last = lines_of(separate)[-1]
    for own in figures["policies"].values():
        assert " ".join(own) == f"episodes {KEYS}"
        assert (own["episodes"], own["env_steps"], own["length_mean"]) == (4, last["env_steps"], 8)
        assert own["team_return_mean"] == pytest.approx(own["return_mean"])
    means = [own["return_mean"] for own in figures["policies"].values()]
    assert figures["team_return_mean"] == pytest.approx(sum(means))
    assert figures["return_mean"] == pytest.approx(sum(means) / 3)


def test_eval_without_json_prints_a_line_for_each_of_several_policies(shared, separate):
    lines = offbeat("eval", separate, "--episodes", 3).out.splitlines()
    assert lines[0].startswith(f"{MIXED}, greedy, 3 episodes: return per agent ")
    assert ", sum over agents " in lines[0]
    assert [line.split(":")[0] for line in lines[1:]] == ["  driver", "  gunner", "  scout"]
    assert len(offbeat("eval", shared, "--episodes", 3).out.splitlines()) == 1


def test_eval_reports_the_episodes_of_worlds_that_were_cut(separate):
    figures = evaluate(separate, "--episodes", 3, "--max-episode-steps", 2)
    assert (figures["episodes"], figures["cut"], figures["length_mean"]) == (3, 3, 2)


@pytest.mark.parametrize("agents", [("scout", "pilot"), ("scout", "gunner"), ()])
def test_a_world_with_other_agents_than_those_of_the_policies_is_refused(separate, agents):
    policies = load_all(separate)
    scout = policies["scout"]
    changed = LoadedPolicy(scout.acting_policy, replace(scout.trained, agents=agents))
    with pytest.raises(ConfigError, match=r"the agents of .*MixedSpaces are .*scout.*, but the policies were trained"):
        score({**policies, "scout": changed}, episodes=1, seed=0)


def test_a_world_with_other_observations_than_those_of_the_policy_is_refused(separate):
    policies = load_all(separate)
    driver, scout = policies["driver"], policies["scout"]
    swapped = LoadedPolicy(driver.acting_policy, scout.trained), LoadedPolicy(scout.acting_policy, driver.trained)
    with pytest.raises(ConfigError, match=r"the observations of driver of .* differ from those that the policy"):
        score({**policies, "scout": swapped[0], "driver": swapped[1]}, episodes=1, seed=0)
