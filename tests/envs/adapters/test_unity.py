"""Unity builds: a game in another process, behind the API of ML-Agents' UnityParallelEnv. The game is a stand-in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tests.sample_envs.unity_double import EarlyUnityParallelEnv, UnityParallelEnv, as_package
from tests.support.world_steps import play, random_choices, returns

from offbeat.core.errors import ConfigError
from offbeat.envs.adapters.unity import FixedAgents
from offbeat.envs.checking.preflight import preflight_world
from offbeat.envs.worlds.contract import World, WorldStep
from offbeat.envs.worlds.make import make_world

PLACES = ("Goalie_team1_0", "Striker_team0_0", "Striker_team0_1")
GOALIE, SHORT, LONG = PLACES


EXAMPLE = "unity_env:soccer"


@pytest.fixture(scope="module", params=[UnityParallelEnv, EarlyUnityParallelEnv])
def _installed(request: pytest.FixtureRequest) -> Iterator[None]:
    """The example of the page can be imported, with a stand-in for ML-Agents' package in both of its APIs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[3] / "examples")
        patch.delitem(sys.modules, "unity_env", raising=False)
        for name, module in as_package(request.param).items():
            patch.setitem(sys.modules, name, module)
        yield


@pytest.fixture(scope="module")
def world(_installed: None) -> Iterator[World]:
    """A game, of which whole episodes are played."""
    made = make_world(EXAMPLE, {})
    assert made is not None
    with closing(made):
        yield made


def episodes(world: World, count: int) -> list[list[WorldStep]]:
    choose = random_choices(world)
    return [list(play(world, choose)) for _ in range(count)]


def test_agents_keep_their_places_in_all_episodes_and_keep_the_contract(world):
    assert world.agents == PLACES
    for steps in episodes(world, 3):
        assert len(steps) == 7
        assert steps[4].terminations[SHORT]
        assert steps[6].terminations[LONG]
        assert steps[6].truncations[GOALIE]
        assert all(SHORT not in step.observations for step in steps[5:])


def test_an_agent_that_requests_no_decision_waits_with_its_last_observation(world):
    (steps,) = episodes(world, 1)
    assert [GOALIE in step.deciding for step in steps] == [True, False, True, False, True, False, False]
    waiting, before = steps[1].observations[GOALIE], steps[0].observations[GOALIE]
    assert np.array_equal(waiting, before)


def test_each_info_says_whether_its_agent_decides_so_that_runs_expect_agents_that_wait_late(world, monkeypatch):
    (steps,) = episodes(world, 1)
    assert all("no_decision" in info for step in steps for info in step.infos.values())
    monkeypatch.setattr("offbeat.envs.checking.preflight.FIRST_STEPS", 0)
    spec = preflight_world(EXAMPLE)
    assert spec is not None
    assert all(agent.no_decision for _, agent in spec.agents)


def test_rewards_of_the_group_are_added(world):
    (steps,) = episodes(world, 1)
    assert returns(steps) == {SHORT: 6.0, LONG: 9.0, GOALIE: 3.0}


def test_a_flag_that_forbids_in_unity_allows_nothing_here(world):
    (steps,) = episodes(world, 1)
    assert [steps[time].observations[LONG]["action_mask"].tolist() for time in (0, 1)] == [[1, 0], [1, 1]]


def test_the_last_observation_of_an_episode_has_a_mask_that_allows_all(world):
    (steps,) = episodes(world, 1)
    assert steps[4].observations[SHORT]["action_mask"].tolist() == [1, 1]


@pytest.mark.usefixtures("_installed")
def test_copies_of_a_function_have_worker_ids_of_their_own_and_close_their_games():
    made = [make_world(EXAMPLE, {}) for _ in range(2)]
    envs = [world.env._env.env for world in made if world is not None]
    assert envs[0].worker_id != envs[1].worker_id
    for world in made:
        assert world is not None
        world.close()
    assert [env.game.returncode for env in envs] == [0, 0]


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("window", [False, True])
def test_the_build_of_the_example_has_a_window_only_if_it_is_asked_for(window):
    world = make_world(EXAMPLE, {"window": window})
    assert world is not None
    with closing(world):
        assert world.env._env.env.no_graphics is not window


@pytest.mark.usefixtures("_installed")
def test_a_run_finds_the_places_and_their_spaces_before_it_starts():
    spec = preflight_world(EXAMPLE)
    assert spec is not None
    assert spec.names == PLACES
    assert spec.spec_of(LONG).mask == "observation/action_mask"
    assert spec.spec_of(GOALIE).action.kind == "box"


def test_a_build_without_agents_is_refused_and_closed():
    class Empty:
        closed = False

        def reset(self) -> dict[str, object]:
            return {}

        def close(self) -> None:
            self.closed = True

    env = Empty()
    with pytest.raises(ConfigError, match="has no agents after its reset"):
        FixedAgents(env)
    assert env.closed
