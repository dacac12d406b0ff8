"""Loaded policies that were trained with the previous action and reward act as in an evaluation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from tests.sample_envs import curious_envs, remembering_envs  # noqa: F401 - they register their envs
from tests.sample_envs.env_zoo import DictActions, zoo_id
from tests.sample_envs.taking_turns import TakingTurns
from tests.support.models import random_vector
from tests.support.runs import offbeat

from offbeat.algorithms.ppo import PPOConfig
from offbeat.api.playing.loaded_policy import LoadedPolicy
from offbeat.api.playing.shown_episodes import EnvEpisode, WorldEpisode
from offbeat.api.playing.trained import Trained
from offbeat.config.env import EnvConfig
from offbeat.core.policy_names import DEFAULT_POLICY
from offbeat.core.seeding import derive_seed
from offbeat.core.types import Array, Tree
from offbeat.envs.actions import split_columns
from offbeat.envs.checking.preflight import preflight
from offbeat.models.acting import make_policy
from offbeat.workers.evaluation_envs import evaluation_envs
from offbeat.workers.evaluator import evaluate

BOTH = EnvConfig(previous_action=True, previous_reward=True)
BOTH_SET = ("previous_action=true", "previous_reward=true")
WAITING = "curious/Waiting-v0"


def loaded(env_id: str, settings: EnvConfig = BOTH, **network: Any) -> LoadedPolicy:
    """A policy with random weights, whose actions depend on its previous ones."""
    spec = PPOConfig(hidden_sizes=(8,), normalize_observations=False, **network).policy_spec(
        preflight(env_id, settings)
    )
    policy = make_policy(spec)
    policy.load(random_vector(spec, np.random.default_rng(1)))
    return LoadedPolicy(policy, Trained(env_id, "ppo", 0, 0, 0, settings))


class Recorder:
    """The policy of an evaluation, which keeps its actions."""

    def __init__(self, loaded: LoadedPolicy) -> None:
        self.policy = policy = loaded.acting_policy
        self.state_size, self.to_env = policy.state_size, policy.to_env
        self.encode = loaded.encode
        self.actions: list[Any] = []
        self.seen: list[Tree] = []

    def greedy(self, observation: Tree, state: Any = None) -> Array:
        self.seen.append({name: leaf.copy() for name, leaf in observation.items()})
        action = self.policy.greedy(observation, state)
        self.actions.append(self.encode(action))
        return action


def evaluated(policy: LoadedPolicy, episodes: int) -> tuple[Recorder, float | None]:
    """Play episodes of one env in an evaluation; return what acted, and the mean return."""
    recorder = Recorder(policy)
    envs = evaluation_envs(policy.trained.env, 1, seed=5, role="eval", settings=policy.trained.env_config)
    result = evaluate({DEFAULT_POLICY: recorder}, envs, episodes=episodes, seed=0)  # type: ignore[dict-item]
    return recorder, result.return_mean


@pytest.mark.parametrize("core", ["none", "gru"])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "memory/Side-v0", zoo_id(DictActions)])
def test_a_loaded_policy_that_is_given_the_rewards_acts_as_in_an_evaluation(env_id, core):
    policy = loaded(env_id, **({"core": core, "core_size": 6} if core != "none" else {}))
    assert policy.remembers
    recorder, _ = evaluated(policy, 3)
    spec, actions = policy.acting_policy.spec.action, iter(recorder.actions)
    env = gym.make(env_id, disable_env_checker=True)
    for episode in range(3):
        policy.reset()
        observation, _ = env.reset(seed=None if episode else derive_seed(5, "eval", 0, 0, 0))
        reward: Any = None
        ended = False
        while not ended:
            action = policy(observation, reward=reward)
            [expected] = split_columns(spec, next(actions))
            for ours, theirs in zip(_parts(action), _parts(expected), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-5)
            observation, reward, terminated, truncated, _ = env.step(action)
            ended = terminated or truncated
        next(actions, None)  # of the reset row, which is ignored


def _parts(action: Any) -> list[Any]:
    if isinstance(action, dict | tuple):
        return [part for each in (action.values() if isinstance(action, dict) else action) for part in _parts(each)]
    return [action]


def test_watch_shows_the_actions_of_an_evaluation_also_where_rows_have_no_decision():
    policy = loaded(WAITING, core="gru", core_size=6)
    recorder, earned = evaluated(policy, 1)
    assert len({float(seen["previous_reward"][0]) for seen in recorder.seen}) == 4  # 0, and 1 to 3 since a decision
    shown = Recorder(policy)
    policy.acting_policy.greedy = shown.greedy  # type: ignore[method-assign]
    shown.policy = loaded(WAITING, core="gru", core_size=6).acting_policy
    env = gym.make(WAITING, disable_env_checker=True)
    episode = EnvEpisode(_Unrendered(env), {"default": policy}, derive_seed(5, "eval", 0, 0, 0), 100)
    list(episode.frames())
    assert episode.returns["default"] == earned
    assert len(shown.seen) == len(recorder.seen)
    for ours, theirs in zip(shown.seen, recorder.seen, strict=True):
        np.testing.assert_equal(ours, theirs)


class _Unrendered(gym.Wrapper[Any, Any, Any, Any]):
    def render(self) -> Any:
        return None


def test_an_agent_that_waits_keeps_its_last_action_and_adds_up_its_rewards():
    policy, world = of_two_agents(), TakingTurns()
    recorder = Recorder(policy)
    policy.acting_policy.greedy = recorder.greedy  # type: ignore[method-assign]
    recorder.policy = of_two_agents().acting_policy
    list(WorldEpisode(world, {"default": policy}, 0, 100).frames())  # type: ignore[arg-type]
    odd = [recorder.seen[call] for call in (1, 3, 5, 7, 9, 10, 11, 12)]  # at each time, after the calls of `even`
    decided = [recorder.actions[call] for call in (3, 7, 10, 11)]  # at the times 1, 3, 5 and 6
    actions = [0, 0, decided[0], decided[0], decided[1], decided[1], decided[2], decided[3]]
    np.testing.assert_allclose([each["previous_action"] for each in odd], _column(actions))
    assert [float(each["previous_reward"][0]) for each in odd] == [0, 1, 1, 2, 1, 2, 1, 1]


def of_two_agents() -> LoadedPolicy:
    spec = loaded("memory/Side-v0").acting_policy.spec
    spec = replace(spec, observation=(replace(spec.observation[0], shape=(3,)), *spec.observation[1:]))
    policy = make_policy(spec)
    policy.load(random_vector(spec, np.random.default_rng(1)))
    return LoadedPolicy(policy, Trained("test", "ppo", 0, 0, 0, agents=("even", "odd")))


def _column(actions: list[Any]) -> Array:
    return np.array([float(np.squeeze(action)) for action in actions]).reshape(-1, 1, 1)


def test_a_missing_reward_is_refused_except_at_the_start_of_an_episode():
    policy = loaded("CartPole-v1")
    seen = np.zeros((3, 4), np.float32)
    policy(seen)
    with pytest.raises(ValueError, match=r"trained with previous_reward: pass reward=\.\.\., which env.step returned"):
        policy(seen)
    with pytest.raises(ValueError, match=r"reward has shape \(2,\), but \(3,\) is expected"):
        policy(seen, reward=np.zeros(2))
    with pytest.raises(ValueError, match=r"reward has shape \(\), but \(3,\) is expected"):
        policy(seen, reward=1.0)
    policy(seen, reward=np.ones(3))
    policy.reset()
    policy(seen)


def test_a_policy_without_the_reward_as_an_input_ignores_it():
    policy, with_action = loaded("CartPole-v1", EnvConfig()), loaded("CartPole-v1", EnvConfig(previous_action=True))
    seen = np.zeros(4, np.float32)
    assert not policy.remembers
    assert with_action.remembers
    for each in (policy, with_action):
        each(seen)
        each(seen)
        each(seen, reward="no number")


def test_envs_that_start_a_new_episode_have_no_previous_action_while_the_others_keep_theirs():
    policy, fresh = loaded("CartPole-v1"), loaded("CartPole-v1")
    seen = np.random.default_rng(0).normal(size=(6, 2, 4)).astype(np.float32)
    recorder = Recorder(fresh)
    policy.acting_policy.greedy = recorder.greedy  # type: ignore[method-assign]
    policy(seen[0])
    first = policy(seen[1], reward=np.array([1.0, 2.0]))
    policy.reset(np.array([True, False]))
    policy(seen[2], reward=np.array([3.0, 4.0]))
    np.testing.assert_array_equal(recorder.seen[-1]["previous_reward"], [0, 4])
    np.testing.assert_array_equal(recorder.seen[-1]["previous_action"], [0, first[1] + 1])
    assert fresh(seen[2, 0]) == recorder.actions[-1][0]


def test_a_run_with_the_inputs_is_evaluated_resumed_and_loaded(tmp_path):
    run = tmp_path / "run"
    arguments = ["--steps", "256", "--envs-per-actor", "4", "--set", "unroll_length=16", "minibatch_size=64"]
    said = offbeat("train", "ppo", "offbeat/Bandit-v0", *arguments, *BOTH_SET, "--run-dir", run)
    assert said.code == 0, said.err
    said = offbeat("eval", run, "--episodes", 8)
    assert said.code == 0, said.err
    said = offbeat("resume", run, "--steps", 512, "--set", "previous_reward=false")
    assert said.code == 2
    assert "previous_reward is true in" in said.err
