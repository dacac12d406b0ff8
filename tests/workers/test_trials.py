"""Trials in new tasks: what a policy that infers its task is scored on."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from tests.support.trials import ROBOT, TRIALS, played, policy_for, sampled_tests

from offbeat.config.env import EnvConfig
from offbeat.core.seeding import stream
from offbeat.core.types import Tree
from offbeat.envs.meta.point_robot import PointRobot
from offbeat.models.acting import ActingPolicy
from offbeat.models.task_inference import TaskInference
from offbeat.workers.evaluation_envs import columns_for

COUNTDOWN = "trials/Countdown-v0"


class Countdown(gym.Env[Any, Any]):
    """The task is the length of its episodes; each step has reward 1. The last info of an episode has its length, and
    its number in the task.
    """

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def sample_tasks(self, n: int, random: np.random.Generator) -> Any:
        return random.integers(1, 9, n)

    def set_task(self, task: int) -> None:
        self._length, self._number = int(task), 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self._left = self._length
        self._number += 1
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:  # noqa: ARG002
        self._left -= 1
        ended = self._left == 0
        info = {"length": self._length, "number": self._number} if ended else {}
        return np.zeros(1, np.float32), 1.0, ended, False, info


_makers: dict[str, Any] = {COUNTDOWN: Countdown}
for _id, _maker in _makers.items():
    gym.register(_id, _maker)


def test_each_trial_is_in_its_own_test_task_over_all_its_episodes() -> None:
    result = played(policy_for(ROBOT, zero=True), ROBOT, 6)
    distances = [20 * float(np.linalg.norm(goal)) for goal in sampled_tests(PointRobot)]
    expected = np.array([distances[trial % 4] for trial in range(6)])
    assert result.adaptation is not None
    np.testing.assert_allclose(result.adaptation, np.repeat(-expected[:, None], 3, axis=1), rtol=1e-6)
    np.testing.assert_allclose(result.returns, -expected, rtol=1e-6)
    assert (result.episodes, result.cut, result.not_begun) == (6, 0, 0)


def test_episodes_of_a_trial_may_have_other_lengths_than_those_of_other_trials() -> None:
    lengths = [int(length) for length in sampled_tests(Countdown)]
    assert len(set(lengths)) > 1
    result = played(policy_for(COUNTDOWN, zero=True), COUNTDOWN, 4)
    assert result.adaptation is not None
    assert result.adaptation.tolist() == [[length] * 3 for length in lengths]
    assert result.lengths.tolist() == lengths


def test_numbers_of_infos_are_averaged_over_the_trials_that_count_in_all_rounds() -> None:
    """17 columns play 33 trials in two rounds. In the second one the last column plays a trial that does not count."""
    lengths = [int(length) for length in sampled_tests(Countdown)]
    result = played(policy_for(COUNTDOWN, zero=True), COUNTDOWN, 33, env=EnvConfig(info_metrics=("length",)))
    assert result.info == {"info/length": pytest.approx(np.mean([lengths[trial % 4] for trial in range(33)]))}


def test_numbers_of_episodes_are_those_of_the_last_episode_of_each_trial_that_counts() -> None:
    settings = EnvConfig(info_metrics=("number:last", "number:sum", "length:max"))
    lengths = [int(length) for length in sampled_tests(Countdown)]
    result = played(policy_for(COUNTDOWN, zero=True), COUNTDOWN, 33, env=settings)
    mean = pytest.approx(np.mean([lengths[trial % 4] for trial in range(33)]))
    assert result.return_mean == mean
    assert result.info == {"info/number_last": 3, "info/number_sum": 3, "info/length_max": mean}


def by_hand(policy: ActingPolicy, goal: Any, seed: int) -> list[float]:
    """The returns of a trial, row by row, with one env without offbeat's rows."""
    env, random, inference = PointRobot(), stream(seed, "trials", 0), TaskInference(policy, 1)
    one, returns = np.ones(1, np.bool_), []
    env.set_task(goal)
    for episode in range(TRIALS.prior_episodes + 1):
        if episode < TRIALS.prior_episodes:
            inference.sample_prior(random, one)
        else:
            inference.sample_posterior(random, one)
        observation, _ = env.reset()
        returns.append(0.0)
        for _ in range(20):
            before: Tree = {"observation": observation[None].copy()}
            action = policy.greedy(inference.with_task(before)).copy()
            observation, reward, *_ = env.step(policy.to_env(action)[0])
            returns[-1] += reward
            if episode < TRIALS.prior_episodes:
                inference.observe(before, action, np.array([reward]), {"observation": observation[None]}, one)
    return returns


def test_the_task_variable_is_from_the_prior_and_in_the_last_episode_from_the_posterior() -> None:
    policy = policy_for(ROBOT)
    result = played(policy, ROBOT, 1, seed=3)
    assert result.adaptation is not None
    expected = by_hand(policy, sampled_tests(PointRobot)[0], seed=3)
    assert len({round(value, 6) for value in expected}) == 3, "each episode has another task variable"
    np.testing.assert_allclose(result.adaptation[0], expected, rtol=1e-5)


def test_many_trials_are_played_in_rounds_with_equally_many_columns() -> None:
    assert [columns_for(trials) for trials in (1, 32, 33, 64, 65, 100)] == [1, 32, 17, 32, 22, 25]
    result = played(policy_for(ROBOT, zero=True), ROBOT, 33)
    assert result.episodes == 33
    assert result.env_steps == 34 * 3 * 20
    goals = sampled_tests(PointRobot)
    np.testing.assert_allclose(result.returns[[0, 17, 32]], [-20 * np.linalg.norm(goals[i % 4]) for i in (0, 17, 32)])


def test_each_round_samples_other_task_variables() -> None:
    """20 columns play 40 trials in two rounds: a column has the same task in both, as there are 4 test tasks."""
    result = played(policy_for(ROBOT), ROBOT, 40)
    assert result.adaptation is not None
    assert (result.adaptation[:20] != result.adaptation[20:]).all()


def test_the_seed_changes_the_task_variables_and_not_the_tasks() -> None:
    policy = policy_for(ROBOT)
    first, again, other = (played(policy, ROBOT, 4, seed=seed).returns_by_episode for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_sampled_actions_are_other_actions() -> None:
    policy = policy_for(ROBOT)
    assert played(policy, ROBOT, 4).return_mean != played(policy, ROBOT, 4, sampled=True).return_mean


def test_a_limit_on_env_steps_cuts_trials_and_the_score_is_only_that_of_last_episodes() -> None:
    before_the_last = played(policy_for(ROBOT, zero=True), ROBOT, 4, max_steps=4 * 30)
    assert (before_the_last.return_mean, before_the_last.episodes, before_the_last.not_begun) == (None, 0, 4)
    assert before_the_last.adaptation is not None
    assert np.isnan(before_the_last.adaptation[:, 2]).all()
    assert before_the_last.cuts == "of 4 trials 0 ended, 0 were cut in the last episode and 4 did not reach it"
    in_the_last = played(policy_for(ROBOT, zero=True), ROBOT, 4, max_steps=4 * 45)
    assert (in_the_last.episodes, in_the_last.cut, in_the_last.not_begun) == (4, 4, 0)
    in_the_second_round = played(policy_for(ROBOT, zero=True), ROBOT, 40, max_steps=20 * 3 * 20)
    assert (in_the_second_round.episodes, in_the_second_round.not_begun) == (20, 20)


def test_an_episode_before_the_last_that_a_limit_on_env_steps_cuts_is_no_part_of_the_adaptation() -> None:
    whole = played(policy_for(ROBOT, zero=True), ROBOT, 4).returns_by_episode
    in_the_second = played(policy_for(ROBOT, zero=True), ROBOT, 4, max_steps=4 * 30)
    assert in_the_second.returns_by_episode == whole[:1]
    in_the_first = played(policy_for(ROBOT, zero=True), ROBOT, 4, max_steps=4 * 10)
    assert in_the_first.returns_by_episode == []


def test_a_last_episode_that_a_limit_on_env_steps_cuts_is_part_of_the_adaptation() -> None:
    result = played(policy_for(ROBOT, zero=True), ROBOT, 4, max_steps=4 * 45)
    assert result.adaptation is not None
    np.testing.assert_array_equal(result.adaptation[:, -1], result.returns)


def test_a_last_episode_that_reaches_the_step_limit_of_evaluations_counts_as_cut() -> None:
    result = played(policy_for(COUNTDOWN, zero=True), COUNTDOWN, 4, max_episode_steps=2)
    longer = sum(int(length) > 2 for length in sampled_tests(Countdown))
    assert longer > 0
    assert (result.episodes, result.cut) == (4, longer)


def test_means_by_episode_are_over_all_trials() -> None:
    result = played(policy_for(ROBOT), ROBOT, 4)
    assert result.adaptation is not None
    means, deviations = zip(*result.returns_by_episode, strict=True)
    assert means == pytest.approx(result.adaptation.mean(axis=0))
    assert deviations == pytest.approx(result.adaptation.std(axis=0))
    assert result.return_mean == pytest.approx(means[-1])


def test_on_step_gets_the_number_of_ended_trials() -> None:
    ended: list[int] = []
    played(policy_for(ROBOT, zero=True), ROBOT, 33, on_step=ended.append)
    assert ended == sorted(ended)
    assert ended[-1] == 33


def test_a_trial_counts_as_ended_only_after_its_last_episode() -> None:
    """As many short episodes as a trial has may end side by side before any trial has ended."""
    ended: list[int] = []
    played(policy_for(COUNTDOWN, zero=True), COUNTDOWN, 4, on_step=ended.append)
    trials = [3 * int(length) + 2 for length in sampled_tests(Countdown)]  # a reset row after each but the last episode
    assert ended == [sum(rows <= row for rows in trials) for row in range(1, max(trials) + 1)]
