"""The best returns are those that are documented, and come only to who has what the env asks for."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations, product
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from tests.support.env_rows import actions_of, assert_same, collect, plain_rows

from offbeat.config.env import EnvConfig
from offbeat.core.errors import ConfigError
from offbeat.core.frozen_table import PlainTable
from offbeat.core.seeding import derive_seed
from offbeat.core.types import Array
from offbeat.envs.adapters.gymnasium.groups import make_single
from offbeat.envs.adapters.gymnasium.snapshots import load, save
from offbeat.envs.contract import Snapshots
from offbeat.envs.make import make_envs
from offbeat.envs.registration import registry_entry
from offbeat.envs.testing.bandit import BanditVectorEnv
from offbeat.envs.testing.correct_action import CorrectActionVectorEnv
from offbeat.envs.testing.pixels import CELLS, LEFT, RIGHT, PixelsGoalVectorEnv, PixelsMotionVectorEnv, PixelsVectorEnv
from offbeat.envs.testing.recall import RecallVectorEnv

IDS = [f"offbeat/{name}-v0" for name in ("Recall", "Pixels", "PixelsMotion", "PixelsGoal", "Bandit")]
LAYOUTS = {"HW": (36, 36), "HWC": (36, 36, 3), "CHW": (3, 36, 36)}
COLUMNS = 16
Policy = Callable[[list[Any]], Array]
"""All observations of the episode so far -> answers, [N]."""

every_env = pytest.mark.parametrize("env_id", IDS)


def returns_of(envs: CorrectActionVectorEnv, policy: Policy, episodes: int = 6) -> Array:
    """Returns of whole episodes, [episodes, N]."""
    seen = [envs.reset(seed=0)[0]]
    assert envs.observation_space.contains(seen[0])
    returns, row = np.zeros((episodes, envs.num_envs)), 0
    while row < episodes:
        observation, reward, terminated, truncated, _ = envs.step(policy(seen))
        seen.append(observation)
        returns[row] += reward
        assert not truncated.any()
        if terminated.any():
            assert terminated.all()
            seen = [envs.step(np.zeros(envs.num_envs, np.int64))[0]]  # the reset row: its action is ignored
            row += 1
    return returns


# --- Recall --------------------------------------------------------------------------------------------------


def moment(observation: Array) -> Array:
    """What a policy without memory can tell apart, [N]: the cue's number, and after these: nothing, or being asked."""
    cues = observation.shape[1] - 2
    return np.where(observation[:, :cues].any(axis=1), observation.argmax(axis=1), cues + observation[:, cues]).astype(
        int
    )


def without_memory(table: tuple[int, ...]) -> Policy:
    return lambda seen: np.take(table, moment(seen[-1]))


def with_memory(table: tuple[int, ...]) -> Policy:
    return lambda seen: np.take(table, moment(seen[0]))


def exact_return(policy: Policy, cues: int, delay: int) -> float:
    """The exact mean return of a policy that draws nothing: the mean over cues of the return with each."""
    envs = RecallVectorEnv(COLUMNS, cues, delay)
    shown = []

    def watched(seen: list[Array]) -> Array:
        if len(seen) == 1:
            shown.append(seen[0][:, :cues].argmax(axis=1))
        return policy(seen)

    returns, cue = returns_of(envs, watched), np.array(shown[:6])
    per_cue = [set(returns[cue == each]) for each in range(cues)]
    assert all(len(each) == 1 for each in per_cue)  # with the same cue, always the same
    return float(np.mean([each.pop() for each in per_cue]))


def test_no_policy_without_memory_exceeds_the_closed_form_return_in_recall() -> None:
    cues, delay = 2, 2
    tables = product(range(cues), repeat=cues + 2)
    values = [exact_return(without_memory(table), cues, delay) for table in tables]
    assert len(values) == 16
    assert set(values) == {RecallVectorEnv(1, cues, delay).impaired_return} == {1 / 2}


@pytest.mark.parametrize(("cues", "delay"), [(2, 1), (4, 4), (3, 8)])
def test_the_best_policy_with_memory_always_recalls(cues: int, delay: int) -> None:
    values = {table: exact_return(with_memory(table), cues, delay) for table in permutations(range(cues))}
    assert max(values.values()) == RecallVectorEnv(1, cues, delay).optimal_return == 1.0
    assert [table for table, value in values.items() if value == 1.0] == [tuple(range(cues))]


def test_a_cue_is_shown_once_and_only_the_last_answer_is_rewarded() -> None:
    envs = RecallVectorEnv(COLUMNS, cues=4, delay=3)
    observation, _ = envs.reset(seed=2)
    assert isinstance(observation, np.ndarray)
    cue = observation[:, :4].argmax(axis=1)
    for step in range(4):
        assert (observation[:, :4].sum(axis=1) == (step == 0)).all()
        assert (observation[:, 4] == (step == 3)).all()
        observation, reward, terminated, _, _ = envs.step(cue)
        assert isinstance(observation, np.ndarray)
        assert (reward == (step == 3)).all()
        assert (terminated == (step == 3)).all()


def test_all_cues_are_equally_likely() -> None:
    envs = RecallVectorEnv(4000)
    observation, _ = envs.reset(seed=0)
    assert isinstance(observation, np.ndarray)
    counts = observation[:, :4].sum(axis=0)
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(4000 * 3 / 16)


# --- Bandit --------------------------------------------------------------------------------------------------

PULLS, GOOD = 4, 0.7
History = tuple[tuple[int, float], ...]
"""The arms that were pulled, and their rewards."""


def best_pull(history: History, arms: int) -> tuple[float, int]:
    """The best mean return of the pulls after a history, and the arm to pull, from Bayes' rule over all histories."""
    if len(history) == PULLS:
        return 0.0, 0
    likelihoods = np.ones(arms)
    for pulled, reward in history:
        pays = np.where(np.arange(arms) == pulled, GOOD, (1 - GOOD) / (arms - 1))  # by which arm is the best one
        likelihoods *= pays if reward else 1 - pays
    values = []
    for arm in range(arms):
        pays = np.where(np.arange(arms) == arm, GOOD, (1 - GOOD) / (arms - 1))
        chance = float(pays @ likelihoods / likelihoods.sum())
        after = [best_pull((*history, (arm, reward)), arms)[0] for reward in (0.0, 1.0)]
        values.append((1 - chance) * after[0] + chance * (1 + after[1]))
    return max(values), int(np.argmax(values))


def pulled(arms: int, choose: Callable[[History], int], columns: int = 6000) -> Array:
    """Return the returns of one episode of many columns, whose arms a function of the history chooses."""
    envs = BanditVectorEnv(columns, arms, PULLS, GOOD)
    observation, _ = envs.reset(seed=1)
    histories: list[History] = [()] * columns
    for step in range(PULLS):
        np.testing.assert_array_equal(observation, np.float32(step / PULLS))
        actions = np.array([choose(history) for history in histories])
        observation, rewards, *_ = envs.step(actions)
        histories = [(*h, (int(a), float(r))) for h, a, r in zip(histories, actions, rewards, strict=True)]
    return np.array([sum(reward for _, reward in history) for history in histories])


def assert_mean(returns: Array, expected: float) -> None:
    assert abs(returns.mean() - expected) < 4 * returns.std() / np.sqrt(len(returns))


@pytest.mark.parametrize("arms", [2, 3])
def test_the_best_return_of_the_bandit_is_that_of_bayes_rule_over_all_histories(arms: int) -> None:
    value, _ = best_pull((), arms)
    envs = BanditVectorEnv(1, arms, PULLS, GOOD)
    assert envs.optimal_return == pytest.approx(value)
    best: dict[History, int] = {}

    def choose(history: History) -> int:
        if history not in best:
            best[history] = best_pull(history, arms)[1]
        return best[history]

    assert_mean(pulled(arms, choose), value)


@pytest.mark.parametrize("sequence", [(0, 0, 0, 0), (0, 1, 2, 0), (2, 1, 1, 0)])
def test_no_fixed_sequence_of_arms_exceeds_the_closed_form_return_in_the_bandit(sequence: tuple[int, ...]) -> None:
    """All that a policy without its previous rewards can do is to choose a sequence."""
    expected = BanditVectorEnv(1, 3, PULLS, GOOD).impaired_return
    assert expected == PULLS / 3
    assert_mean(pulled(3, lambda history: sequence[len(history)]), expected)


# --- images --------------------------------------------------------------------------------------------------


def frame(observation: Any) -> Array:
    """The image, [N, H, W]: its channels are equal."""
    image = observation["image"] if isinstance(observation, dict) else observation
    if image.ndim == 3:
        return np.asarray(image)
    axis = 1 if image.shape[1] == 3 else 3
    assert (image == image.take([0], axis)).all()
    return np.asarray(image.take(0, axis))


def cell(observation: Any) -> Array:
    """The square's column, [N], in cells; 255 is nowhere else."""
    bright = frame(observation) == 255
    size = bright.shape[1] // CELLS
    assert (bright.sum(axis=(1, 2)) == size**2).all()
    return np.asarray(bright.any(axis=1).argmax(axis=1) // size)


def side(observation: Any) -> Array:
    return np.where(cell(observation) < CELLS / 2, LEFT, RIGHT)


def way(seen: list[Any]) -> Array:
    if len(seen) == 1:
        return np.zeros(COLUMNS, np.int64)
    moved = (cell(seen[-1]) - cell(seen[-2])) % CELLS
    assert set(moved) <= {1, CELLS - 1}
    return np.where(moved == 1, RIGHT, LEFT)


def agrees(seen: list[Any]) -> Array:
    goal = seen[-1]["goal"][:, 0]
    assert set(goal) <= {-1, 1}
    return ((goal > 0) == (side(seen[-1]) == RIGHT)).astype(np.int64)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("kind", "reader"),
    [(PixelsVectorEnv, lambda seen: side(seen[-1])), (PixelsMotionVectorEnv, way), (PixelsGoalVectorEnv, agrees)],
    ids=lambda given: given.__name__,
)
def test_a_policy_that_reads_the_image_gets_the_best_return(kind: Any, reader: Any, layout: str) -> None:
    envs = kind(COLUMNS, length=5, layout=layout)
    space = envs.single_observation_space
    assert (space["image"] if isinstance(space, gym.spaces.Dict) else space).shape == LAYOUTS[layout]
    assert (returns_of(envs, reader) == envs.optimal_return).all()
    assert envs.optimal_return == 5


@pytest.mark.parametrize(
    ("kind", "partly"),
    [
        (PixelsVectorEnv, lambda _: np.zeros(4000, int)),
        (PixelsMotionVectorEnv, cell),
        (PixelsGoalVectorEnv, cell),
        (PixelsGoalVectorEnv, lambda seen: (seen["goal"][:, 0] > 0).astype(int)),
    ],
)
def test_both_actions_are_equally_good_given_only_a_part_of_the_observation(kind: Any, partly: Any) -> None:
    """Whatever a policy makes of that part, half of its answers are right."""
    envs = kind(4000, length=3)
    observation, _ = envs.reset(seed=0)
    for _ in range(2):
        observation, *_ = envs.step(np.zeros(4000, np.int64))
    right = envs.step(np.ones(4000, np.int64))[1]
    for part in np.unique(partly(observation)):
        told = right[partly(observation) == part]
        assert abs(told.sum() - len(told) / 2) < 5 * np.sqrt(len(told) / 4)
    assert envs.impaired_return == 1.5


def test_every_cell_of_the_ring_is_reached_equally_often_by_either_move() -> None:
    """All that can happen in two moves, each as likely as any other: a frame does not tell the last one."""
    reached = np.zeros((CELLS, 2), int)
    for start, first, second in product(range(CELLS), (-1, 1), (-1, 1)):
        reached[(start + first + second) % CELLS, (second + 1) // 2] += 1
    assert (reached == 2).all()


# --- all of them ---------------------------------------------------------------------------------------------


@every_env
def test_a_single_env_gives_the_rows_of_one_column(env_id: str) -> None:
    envs = make_envs(env_id, 1, seed=3)
    first = {name: leaf[0].copy() for name, leaf in envs.reset().items()}
    actions = actions_of(envs, 60)
    rows = {name: part[:, 0] for name, part in collect(envs, actions).items()}
    observation, plain = plain_rows(env_id, derive_seed(3, "env", 0, 0, 0), [action[0] for action in actions])
    assert_same(first, observation)
    assert_same(rows, plain)


@every_env
def test_a_single_env_continues_from_a_snapshot(env_id: str) -> None:
    env, fresh = (make_single(registry_entry(env_id), {}) for _ in range(2))
    env.reset(seed=1)
    for _ in range(3):
        env.step(0)
    load(fresh, save(env))
    for step in range(6):
        np.testing.assert_equal(env.step(step % 2), fresh.step(step % 2))


@every_env
def test_make_envs_uses_the_vector_env_and_it_supports_snapshots(env_id: str) -> None:
    envs = make_envs(env_id, 4, seed=0)
    assert isinstance(envs, Snapshots)
    assert len(envs.snapshot()["envs"]) == 1


@pytest.mark.parametrize(
    ("env_id", "arguments", "says"),
    [
        (IDS[0], {"cues": 1}, "cues is 1, but at least 2 is needed: pass cues=2 or more"),
        (IDS[0], {"delay": 0}, "delay is 0"),
        (IDS[1], {"length": 0}, "length is 0"),
        (IDS[2], {"size": 7}, "size is 7"),
        (IDS[3], {"layout": "WHC"}, "layout is 'WHC', but HW, HWC, CHW are supported"),
        (IDS[4], {"arms": 1}, "arms is 1"),
        (IDS[4], {"pulls": 0}, "pulls is 0"),
        (
            IDS[4],
            {"arms": 4, "best_probability": 0.25},
            "best_probability is 0.25, but with 4 arms a number above 0.25",
        ),
        (IDS[4], {"best_probability": 1.0}, "best_probability is 1.0"),
    ],
)
def test_arguments_without_a_correct_action_are_refused(env_id: str, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make_envs(env_id, 2, seed=0, settings=EnvConfig(kwargs=PlainTable(arguments)))
