from __future__ import annotations

import traceback
from functools import partial
from importlib.util import find_spec
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from tests.support.models import random_vector
from tests.support.policies import WithoutWeights

from offbeat.config.env import EnvConfig
from offbeat.core.errors import EnvFailed, NetworkFailed, RunFailed
from offbeat.core.policy_names import DEFAULT_POLICY
from offbeat.core.seeding import derive_seed
from offbeat.core.types import EnvSpec
from offbeat.envs.contract import Outcome
from offbeat.envs.make import make_envs
from offbeat.models.acting import ActingPolicy, make_policy
from offbeat.models.spec import PolicySpec
from offbeat.workers.episodes import EpisodeCounter, Evaluation, WorldsRow
from offbeat.workers.evaluation_envs import EvaluationEnvs, evaluation_envs
from offbeat.workers.evaluator import PlayOptions, evaluate

ENV = "tests/RandomLength-v0"
MEAN_LENGTH = 5
OBSERVING_SEED = 2
"""Seed of weights whose most likely action depends on the observation."""


class RandomLength(gym.Env[Any, Any]):
    """Episodes of a geometric length; a step earns 1 and its action. Every second episode is truncated.

    The info has the steps that are left, those taken and, at the end, whether the episode was truncated.
    """

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self.left, self.age = int(self.np_random.geometric(1 / MEAN_LENGTH)), 0
        self.truncates = bool(self.np_random.integers(2))
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        self.age += 1
        ended = self.left == 0
        info = {"left": self.left, "taken": self.age, **({"last": float(self.truncates)} if ended else {})}
        return self.observe(), 1.0 + float(action), ended and not self.truncates, ended and self.truncates, info

    def observe(self) -> Any:
        return np.array([1, (-1) ** self.left], np.float32)


_KIND: Any = RandomLength
if ENV not in gym.registry:
    gym.register(ENV, _KIND)


def policy_for(spec: EnvSpec, weights_seed: int | None = None) -> ActingPolicy:
    """A policy of zeros, whose most likely action is 0, or one with random weights."""
    policy = make_policy(PolicySpec(spec.observation, spec.action, (4,), "tanh", "categorical", normalize=False))
    if weights_seed is not None:
        policy.load(random_vector(policy.spec, np.random.default_rng(weights_seed)))
    return policy


def evaluated_alone(policy: Any, envs: Any, *, episodes: int, seed: int, **options: Any) -> Evaluation:
    """Evaluate a single policy in envs with one agent; they may be those of `evaluation_envs`."""
    all_envs = envs if isinstance(envs, EvaluationEnvs) else EvaluationEnvs.of_one(envs)
    return evaluate({DEFAULT_POLICY: policy}, all_envs, episodes=episodes, seed=seed, options=PlayOptions(**options))


def spec_in(envs: EvaluationEnvs) -> EnvSpec:
    return envs.columns[DEFAULT_POLICY].spec


def evaluated(columns: int, episodes: int, seed: int = 0, **options: Any) -> Evaluation:
    envs = make_envs(ENV, columns, seed=seed, role="evaluation")
    return evaluated_alone(policy_for(envs.spec), envs, episodes=episodes, seed=seed, **options)


def lengths_of_column(seed: int, column: int, episodes: int) -> list[int]:
    """The lengths of a column's first episodes, from the env alone."""
    env = RandomLength()
    env.reset(seed=derive_seed(seed, "evaluation", 0, 0, column))
    lengths = []
    for _ in range(episodes):
        lengths.append(env.left)
        env.reset()
    return lengths


@pytest.mark.parametrize(("columns", "episodes"), [(4, 10), (4, 4), (5, 3), (1, 6), (3, 20)])
def test_column_i_of_n_plays_episodes_i_and_i_plus_n(columns, episodes):
    played = [lengths_of_column(0, column, 1 + episodes // columns) for column in range(columns)]
    expected = [played[episode % columns][episode // columns] for episode in range(episodes)]
    result = evaluated(columns, episodes)
    assert result.lengths.tolist() == expected
    assert result.returns.tolist() == expected, "whole episodes, reset rows and other episodes left out"
    assert result.return_mean == result.length_mean == pytest.approx(np.mean(expected))
    assert result.return_std == pytest.approx(np.std(expected))


@pytest.mark.parametrize(("columns", "episodes"), [(4, 10), (5, 3)])
def test_numbers_in_the_infos_are_averaged_over_the_steps_of_the_counted_episodes_that_have_one(columns, episodes):
    settings = EnvConfig(info_metrics=("left", "last", "missing")).completed(ENV)
    envs = make_envs(ENV, columns, seed=0, role="evaluation", settings=settings)
    policy = {DEFAULT_POLICY: policy_for(envs.spec)}
    result = evaluate(policy, EvaluationEnvs.of_one(envs), episodes=episodes, seed=0)
    left = [step for length in result.lengths for step in range(length)]
    truncated = [truncations_of_column(column, 1 + episodes // columns) for column in range(columns)]
    last = [truncated[episode % columns][episode // columns] for episode in range(episodes)]
    assert result.info == {"info/left": pytest.approx(np.mean(left)), "info/last": pytest.approx(np.mean(last))}


@pytest.mark.parametrize("max_steps", [10_000, 22])
def test_numbers_of_episodes_are_those_of_the_steps_that_their_returns_have(max_steps):
    names = ("taken:last", "taken:max", "taken:sum", "last:last", "missing:last")
    envs = make_envs(ENV, 4, seed=0, role="evaluation", settings=EnvConfig(info_metrics=names).completed(ENV))
    result = evaluated_alone(policy_for(envs.spec), envs, episodes=10, seed=0, max_steps=max_steps)
    sums = result.lengths * (result.lengths + 1) / 2
    mean = pytest.approx(result.length_mean)
    assert bool(result.cut) == (max_steps < 100)
    of_ends = {"info/last_last": pytest.approx(0.5, abs=0.5)}
    of_all = {"info/taken_last": mean, "info/taken_max": mean, "info/taken_sum": pytest.approx(sums.mean())}
    assert result.info == of_ends | of_all


def truncations_of_column(column: int, episodes: int) -> list[bool]:
    """Whether a column's first episodes are truncated, from the env alone."""
    env = RandomLength()
    env.reset(seed=derive_seed(0, "evaluation", 0, 0, column))
    truncated = []
    for _ in range(episodes):
        truncated.append(env.truncates)
        env.reset()
    return truncated


def test_an_evaluation_is_not_biased_towards_short_episodes():
    """Of 200 columns, the first 200 episodes to end would be about half as long as they should be."""
    lengths = evaluated(200, 200).lengths
    assert lengths.mean() == pytest.approx(MEAN_LENGTH, abs=4 * lengths.std() / len(lengths) ** 0.5)


def test_the_seed_determines_the_result_of_an_evaluation():
    first, again, other = evaluated(3, 9, 1), evaluated(3, 9, 1), evaluated(3, 9, 2)
    np.testing.assert_array_equal(first.returns, again.returns)
    assert first.returns.tolist() != other.returns.tolist()


def test_actions_are_greedy_unless_sampling_is_requested():
    greedy, sampled, again = evaluated(4, 40), evaluated(4, 40, sampled=True), evaluated(4, 40, sampled=True)
    np.testing.assert_array_equal(greedy.lengths, sampled.lengths)
    ones = (sampled.returns - greedy.returns).sum() / sampled.lengths.sum()
    assert 0.35 < ones < 0.65
    np.testing.assert_array_equal(sampled.returns, again.returns)


def test_the_policy_receives_the_current_observation_for_each_action():
    envs = make_envs(ENV, 3, seed=0, role="evaluation")
    policy = policy_for(envs.spec, weights_seed=OBSERVING_SEED)
    even, odd = (int(policy.greedy({"observation": np.array([[1, sign]], np.float32)})[0]) for sign in (1.0, -1.0))
    assert {even, odd} == {0, 1}, "this policy does not look"
    result = evaluated_alone(policy, envs, episodes=12, seed=0)
    expected = [sum(1 + (odd if left % 2 else even) for left in range(length, 0, -1)) for length in result.lengths]
    assert result.returns.tolist() == expected


def test_the_step_callback_is_called_at_every_step_and_may_stop_the_evaluation():
    told: list[int] = []
    evaluated(3, 7, on_step=told.append)
    assert told == sorted(told)
    assert told[-1] == 7
    assert told[-2] < 7

    def stop(ended: int) -> None:
        if ended >= 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluated(3, 7, on_step=stop)


class FailsAtStep(RandomLength):
    """Raises in its third step."""

    taken = 0

    def step(self, action: Any) -> Any:
        self.taken += 1
        if self.taken == 3:
            raise ZeroDivisionError("the env has no length")
        return super().step(action)


class Endless(RandomLength):
    """An episode of the first column of two, whose env is made first, ends after 3 steps; of the other, never."""

    made = 0

    def __init__(self) -> None:
        self.ends = type(self).made % 2 == 0
        type(self).made += 1

    def reset(self, **arguments: Any) -> Any:
        observed = super().reset(**arguments)
        self.left, self.truncates = (3 if self.ends else -1), False
        return observed


class Long(RandomLength):
    """Truncates an episode by itself, after 50 steps."""

    def reset(self, **arguments: Any) -> Any:
        observed = super().reset(**arguments)
        self.left, self.truncates = 50, True
        return observed


def random_lengths(num_envs: int) -> SyncVectorEnv:
    """Return a vector env whose episodes cannot be limited."""
    return SyncVectorEnv([RandomLength] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


VECTOR_ENV = "tests/RandomLengths-v0"
if VECTOR_ENV not in gym.registry:
    gym.register(VECTOR_ENV, None, vector_entry_point=random_lengths)  # type: ignore[arg-type]

_OTHERS: dict[str, Any] = {"tests/FailsAtStep-v0": FailsAtStep, "tests/Endless-v0": Endless, "tests/Long-v0": Long}
for _id, _maker in _OTHERS.items():
    if _id not in gym.registry:
        gym.register(_id, _maker)


def test_an_env_error_fails_the_evaluation_with_the_step_and_the_traceback():
    envs = make_envs("tests/FailsAtStep-v0", 2, seed=0, role="evaluation")
    with pytest.raises(EnvFailed, match=r"an evaluation failed after 4 env steps, when \d of 5 episodes had") as caught:
        evaluated_alone(policy_for(envs.spec), envs, episodes=5, seed=0)
    assert "ZeroDivisionError: the env has no length" in str(caught.value)
    shown = "".join(traceback.format_exception(caught.value))
    assert 'raise ZeroDivisionError("the env has no length")' in shown, "their line of code is shown"


class Recorded:
    """A watch that writes down what it is told."""

    def __init__(self) -> None:
        self.entered: list[bool] = []
        self.inside = 0

    def enter(self, *, resets: bool) -> None:
        self.entered.append(resets)
        self.inside += 1

    def leave(self) -> None:
        self.inside -= 1


def test_every_env_call_is_watched_and_possible_resets_are_marked():
    class Calls:
        """Envs that are called only while they are watched."""

        def __init__(self, envs: Any) -> None:
            self._envs = envs
            self.calls: list[str] = []

        def __getattr__(self, name: str) -> Any:
            value = getattr(self._envs, name)
            return partial(self._called, name, value) if callable(value) else value

        def _called(self, name: str, call: Any, *arguments: Any) -> Any:
            assert watch.inside == 1
            self.calls.append(name)
            return call(*arguments)

    watch = Recorded()
    envs: Any = Calls(make_envs("offbeat/FailsOnLastStep-v0", 1, seed=0, role="evaluation"))
    evaluated_alone(policy_for(envs.spec), envs, episodes=2, seed=0, watch=watch)
    assert envs.calls == ["set_progress", "reset", *("send", "recv") * 9], "two episodes of 4 steps, and a reset row"
    assert watch.inside == 0
    resets = [first and second for first, second in zip(watch.entered[2::2], watch.entered[3::2], strict=True)]
    assert watch.entered[:2] == [True, True]
    assert resets == [True, *[False] * 3, True, *[False] * 4]


def test_env_steps_count_all_columns_without_reset_rows():
    """Episodes of 4 steps: in 9 rows the first column plays two, the second one and 4 steps that nobody counts."""
    envs = make_envs("offbeat/FailsOnLastStep-v0", 2, seed=0, role="evaluation")
    result = evaluated_alone(policy_for(envs.spec), envs, episodes=3, seed=0)
    assert result.lengths.tolist() == [4, 4, 4]
    assert result.env_steps == 16
    assert (result.cut, result.not_begun) == (0, 0)


def endless(episodes: int, max_steps: int | None) -> Evaluation:
    Endless.made = 0
    envs = make_envs("tests/Endless-v0", 2, seed=0, role="evaluation")
    return evaluated_alone(policy_for(envs.spec), envs, episodes=episodes, seed=0, max_steps=max_steps)


def test_max_steps_cuts_endless_episodes_and_counts_their_returns():
    """In 9 vector steps the first column plays 3, a reset row, 3, a reset row, 1; the second is in its first."""
    result = endless(episodes=8, max_steps=16)
    assert result.lengths.tolist() == [3, 9, 3, 1], "episodes 0, 1, 2 and 4"
    assert result.returns.tolist() == [3, 9, 3, 1]
    assert (result.cut, result.not_begun, result.env_steps) == (2, 4, 16)
    assert (result.return_min, result.return_max, result.return_mean) == (1, 9, 4)


def test_episodes_of_a_column_with_an_endless_episode_are_not_played_by_others():
    """Episodes 1 and 3 are the second column's: the first, which ends its own early, does not play them too."""
    result = endless(episodes=4, max_steps=1000)
    assert result.lengths[:1].tolist() == [3]
    assert len(result.lengths) == 3
    assert (result.cut, result.not_begun) == (1, 1)


@pytest.mark.parametrize("max_steps", [1, 2, 3])
def test_the_smallest_max_steps_plays_one_episode_per_column(max_steps):
    result = endless(episodes=9, max_steps=max_steps)
    assert result.lengths.tolist() == ([2, 2] if max_steps == 3 else [1, 1])
    assert (result.cut, result.not_begun) == (2, 7)


def test_a_cut_episode_counts_with_its_return_and_its_column_continues():
    """Episodes of the first column end after 3 steps, those of the second never."""
    Endless.made = 0
    envs = evaluation_envs("tests/Endless-v0", 2, seed=0, role="evaluation", settings=EnvConfig(), max_episode_steps=10)
    result = evaluated_alone(policy_for(spec_in(envs)), envs, episodes=6, seed=0, max_steps=1000)
    assert result.lengths.tolist() == result.returns.tolist() == [3, 10, 3, 10, 3, 10]
    assert (result.cut, result.not_begun) == (3, 0)
    assert result.cuts == "of 6 episodes 3 ended, 3 were cut"


def test_an_end_at_the_time_limit_of_the_task_is_not_a_cut():
    def played(env_id, bound, settings=EnvConfig()):  # noqa: B008 - it is frozen
        envs = evaluation_envs(env_id, 2, seed=0, role="evaluation", settings=settings, max_episode_steps=bound)
        result = evaluated_alone(policy_for(spec_in(envs)), envs, episodes=4, seed=0)
        assert (result.lengths == 5).all()
        return result

    assert played("offbeat/ChainTruncates-v0", 5).cut == played("offbeat/ChainTruncates-v0", 6).cut == 0
    assert played("tests/Long-v0", 5, EnvConfig(max_episode_steps=5)).cut == 0
    result = played("tests/Long-v0", 5)
    assert (result.cut, result.cuts) == (4, "of 4 episodes 0 ended, 4 were cut")


@pytest.mark.skipif(not find_spec("ale_py"), reason="needs ale-py")
def test_a_game_cut_after_lost_lives_counts_as_cut():
    settings = EnvConfig().completed("BreakoutNoFrameskip-v4")
    envs = evaluation_envs(
        "BreakoutNoFrameskip-v4", 1, seed=0, role="evaluation", settings=settings, max_episode_steps=100
    )
    still: Any = _Still()
    result = evaluated_alone(still, envs, episodes=1, seed=0)
    assert (result.lengths < 100).all(), "no life was lost"
    assert result.cut == 1


def test_a_game_cut_in_the_reset_row_after_a_lost_life_counts_as_cut():
    """Row 3 is both: not valid, so not truncated, and the end of the game."""

    def row(*, terminated: bool, valid: bool, over: bool) -> WorldsRow:
        flags = {"terminated": terminated, "truncated": False, "valid": valid, "over": over}
        arrays: Any = {name: np.array([flag]) for name, flag in flags.items()}
        zeros: Any = np.zeros(1, np.float32)
        outcome = Outcome({}, zeros, info=np.zeros((1, 0)), **arrays)
        return WorldsRow({DEFAULT_POLICY: outcome}, arrays["valid"], arrays["over"])

    def cut(*, ends_itself: bool) -> int:
        counter = EpisodeCounter(1, 1, {DEFAULT_POLICY: 1}, cut_at=3)
        counter.add(row(terminated=False, valid=True, over=False))
        counter.add(row(terminated=not ends_itself, valid=True, over=False))
        counter.add(row(terminated=ends_itself, valid=ends_itself, over=True))
        return counter.evaluation().cut

    assert cut(ends_itself=False) == 1
    assert cut(ends_itself=True) == 0


@pytest.mark.parametrize("episodes", [5, 40])
def test_an_evaluation_cuts_the_episodes_of_a_vector_env_that_cannot_be_limited(episodes):
    def of(max_episode_steps: int) -> Evaluation:
        envs = evaluation_envs(
            VECTOR_ENV, episodes, seed=0, role="evaluation", settings=EnvConfig(), max_episode_steps=max_episode_steps
        )
        return evaluated_alone(policy_for(spec_in(envs)), envs, episodes=episodes, seed=0)

    whole, cut = of(1000), of(3)
    assert (whole.lengths > 3).any()
    assert (whole.cut, cut.cut, cut.not_begun) == (0, int((whole.lengths > 3).sum()), 0)
    np.testing.assert_array_equal(cut.lengths, np.minimum(whole.lengths, 3))
    np.testing.assert_array_equal(cut.returns, cut.lengths, "the rest of an episode does not count")


class _Still(WithoutWeights):
    """A policy that does nothing."""

    def greedy(self, observation: Any, state: Any = None) -> Any:  # noqa: ARG002
        return np.zeros(len(next(iter(observation.values()))), np.int64)


class _Nan(_Still):
    """A policy whose network returns NaN."""

    def greedy(self, observation: Any, state: Any = None) -> Any:  # noqa: ARG002
        return np.full((len(next(iter(observation.values()))), 1), np.nan, np.float32)


def test_an_evaluation_names_the_policy_that_chose_nan():
    envs = evaluation_envs("Pendulum-v1", 2, seed=0, role="evaluation", settings=EnvConfig(), max_episode_steps=10)
    policy: Any = _Nan()
    with pytest.raises(RunFailed, match=r"the policy chose the action \[nan\] in Pendulum-v1, env 0"):
        evaluated_alone(policy, envs, episodes=2, seed=0)


@pytest.mark.parametrize("sampled", [False, True])
def test_an_evaluation_names_the_policy_whose_network_returns_nan(sampled):
    envs = evaluation_envs("CartPole-v1", 2, seed=0, role="evaluation", settings=EnvConfig(), max_episode_steps=10)
    spec = next(iter(envs.columns.values())).spec
    policy = make_policy(PolicySpec(spec.observation, spec.action, (4,), "tanh", "categorical", normalize=False))
    policy.load(np.full_like(policy.vector, np.nan))
    with pytest.raises(NetworkFailed, match="the network of the policy returned NaN or infinity in CartPole-v1"):
        evaluated_alone(policy, envs, episodes=2, seed=0, sampled=sampled)


def test_a_max_steps_that_is_not_reached_changes_nothing():
    free, bounded = (evaluated(3, 9, max_steps=max_steps) for max_steps in (None, 10_000))
    np.testing.assert_array_equal(free.returns, bounded.returns)
    assert bounded.cut == 0
