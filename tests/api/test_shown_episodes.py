"""Episodes of `offbeat watch`: what the policies are given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from tests.sample_envs.taking_turns import TakingTurns
from tests.support.models import policy_spec, random_vector

from offbeat.api.playing.loaded_policy import LoadedPolicy
from offbeat.api.playing.shown_episodes import EnvEpisode, WorldEpisode
from offbeat.api.playing.trained import Trained
from offbeat.config.env import EnvConfig
from offbeat.core.errors import ConfigError, EnvFailed
from offbeat.models.acting import make_policy


def remembering_policy() -> LoadedPolicy:
    spec = replace(policy_spec("box"), core="gru", core_size=4)
    policy = make_policy(spec)
    policy.load(random_vector(spec, np.random.default_rng(0)))
    return LoadedPolicy(policy, Trained("test", "ppo", 0, 0, 0, agents=("even", "odd")))


def test_a_policy_remembers_what_each_agent_sees_also_when_it_is_not_its_turn():
    policy, world = remembering_policy(), TakingTurns()
    episode = WorldEpisode(world, {"default": policy}, seed=0, max_steps=100)  # type: ignore[arg-type]
    assert list(episode.frames()) == list(range(9))
    assert episode.ended
    assert episode.returns == {"even": 5.0, "odd": 8.0}
    alone = LoadedPolicy(policy.acting_policy, policy.trained)
    expected = [alone(seen) for seen in world.seen[:8]]
    assert np.array_equal(world.actions["even"], [expected[time] for time in (0, 2, 4)])
    assert np.array_equal(world.actions["odd"], [expected[time] for time in (1, 3, 5, 6, 7)])


class PaysLater(TakingTurns):
    """The agent that is not on turn has earned 7 that no step has reported yet."""

    def unreported_rewards(self) -> dict[str, float]:
        return {self.agents[(self.time + 1) % 2]: 7.0}

    def unreported_infos(self) -> dict[str, dict[str, Any]]:
        return {}


@pytest.mark.parametrize(("limit", "max_steps"), [(3, 100), (None, 3)])
def test_an_episode_that_is_cut_has_what_agents_have_earned_and_no_step_has_reported(limit, max_steps):
    policy = remembering_policy()
    policy = LoadedPolicy(policy.acting_policy, replace(policy.trained, env_config=EnvConfig(max_episode_steps=limit)))
    episode = WorldEpisode(PaysLater(), {"default": policy}, 0, max_steps)  # type: ignore[arg-type]
    list(episode.frames())
    assert episode.returns == {"even": 10.0, "odd": 3.0}


def test_an_agent_without_a_policy_is_refused():
    with pytest.raises(ConfigError, match="no policy is given for 'third' of test: pass the run, or all its policies"):
        WorldEpisode(TakingTurns(("even", "third")), {"default": remembering_policy()}, 0, 1)  # type: ignore[arg-type]


class Alone(gym.Env[Any, Any]):
    """An env with one agent."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ARG002
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:  # noqa: ARG002
        return np.zeros(3, np.float32), 1.0, False, False, {}

    def render(self) -> Any:
        return 0


class SamplesFromItsSpace(Alone):
    """The reward is the first number of an observation that its space has drawn."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:  # noqa: ARG002
        observation = self.observation_space.sample()
        return observation, float(observation[0]), False, False, {}


def test_equal_seeds_show_equal_episodes_also_of_an_env_that_samples_from_its_spaces():
    def return_of(seed: int) -> float:
        episode = EnvEpisode(SamplesFromItsSpace(), {"default": remembering_policy()}, seed, max_steps=5)
        list(episode.frames())
        return episode.returns["default"]

    assert return_of(3) == return_of(3) != return_of(4)


def test_an_episode_that_is_shown_leaves_the_memory_of_the_callers_policy_as_it_was():
    policy, alone = remembering_policy(), remembering_policy()
    batch = np.random.default_rng(0).normal(size=(2, 2, 3)).astype(np.float32)  # of two envs
    assert np.array_equal(policy(batch[0]), alone(batch[0]))
    episode = EnvEpisode(Alone(), {"default": policy}, seed=0, max_steps=5)
    assert len(list(episode.frames())) == 6
    assert np.array_equal(policy(batch[1]), alone(batch[1]))


@pytest.mark.parametrize(
    ("method", "in_window", "error", "words"),
    [
        ("step", False, EnvFailed, r"test, env 0: step\(\) raised KeyError: 'goal'"),
        ("step", True, ConfigError, r"test cannot be rendered here \(KeyError: 'goal'\)"),  # the window may be why
        ("render", False, ConfigError, r"test cannot be rendered here \(KeyError: 'goal'\)"),
    ],
)
def test_what_a_shown_env_raises_is_reported_with_the_traceback_of_its_code(method, in_window, error, words):
    def fail(*_: Any) -> None:
        raise KeyError("goal")

    env = Alone()
    setattr(env, method, fail)
    with pytest.raises(error, match=words) as caught:
        list(EnvEpisode(env, {"default": remembering_policy()}, 0, 5, in_window=in_window).frames())
    assert "in fail" in caught.value.__notes__[0]
