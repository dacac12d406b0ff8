from __future__ import annotations

import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from tests.support.world_steps import play, random_choices, returns

from offbeat.core.errors import ConfigError
from offbeat.envs.adapters.pettingzoo.kinds import world_of
from offbeat.envs.testing.games import RockPaperScissors
from offbeat.envs.testing.worlds import CartPoles, LateArrivals, MixedSpaces, cart_seed
from offbeat.envs.worlds.contract import WorldStep


def test_each_cart_has_the_episodes_of_a_single_env_with_its_seed():
    world = world_of(CartPoles(3))
    choose = random_choices(world)
    actions: dict[str, list[int]] = {agent: [] for agent in world.agents}

    def record(agent: str, step: WorldStep) -> int:
        actions[agent].append(int(choose(agent, step)))
        return actions[agent][-1]

    seeds = (8, None)
    episodes = [list(play(world, record, seed)) for seed in seeds]
    for index, agent in enumerate(world.agents):
        env = CartPoleEnv()
        taken = iter(actions[agent])
        for seed, steps in zip(seeds, episodes, strict=True):
            observation, _ = env.reset(seed=None if seed is None else cart_seed(seed, index))
            rows = [step for step in steps if agent in step.observations]
            assert np.array_equal(rows[0].observations[agent], observation)
            for row in rows[1:]:
                observation, reward, terminated, _, _ = env.step(next(taken))
                assert np.array_equal(row.observations[agent], observation)
                assert (row.rewards[agent], row.terminations[agent]) == (reward, terminated)


def test_carts_that_are_left_are_truncated_at_the_limit():
    steps = list(play(world_of(CartPoles(2, max_steps=3)), lambda *_: 0))
    assert steps[-1].truncations == {"cart_0": True, "cart_1": True}
    assert len(steps) == 4


def test_the_best_returns_of_late_arrivals_are_their_lives():
    assert returns(list(play(world_of(LateArrivals(3, 2, 5)), lambda *_: 1))) == dict.fromkeys(
        ("agent_0", "agent_1", "agent_2"), 5.0
    )


def test_agents_of_mixed_spaces_reach_their_best_returns_by_what_they_see():
    def choose(agent: str, step: WorldStep) -> object:
        observation = step.observations[agent]
        if agent == "driver":
            return observation
        return int((observation["observation"] if agent == "gunner" else observation).argmax())

    best = returns(list(play(world_of(MixedSpaces(6)), choose)))
    assert best == {"scout": 6.0, "driver": pytest.approx(0.0, abs=1e-6), "gunner": 6.0}


def test_the_masked_action_of_mixed_spaces_raises_an_exception():
    def choose(agent: str, step: WorldStep) -> object:
        observation = step.observations[agent]
        return int(observation["action_mask"].argmin()) if agent == "gunner" else np.zeros(1)

    with pytest.raises(ValueError, match="which its mask forbids"):
        list(play(world_of(MixedSpaces()), choose))


@pytest.mark.parametrize("first", range(3))
@pytest.mark.parametrize("second", range(3))
def test_paper_beats_rock_scissors_beat_paper_and_rock_beats_scissors(first, second):
    moves = {"player_0": first, "player_1": second}
    won = returns(list(play(world_of(RockPaperScissors()), lambda agent, _: moves[agent])))
    expected = 0 if first == second else 1 if (first, second) in {(1, 0), (2, 1), (0, 2)} else -1
    assert won == {"player_0": expected, "player_1": -expected}


def test_lives_that_leave_a_world_empty_are_refused():
    with pytest.raises(ConfigError, match="life is 2, but at least 3 is needed"):
        LateArrivals(every=2, life=2)
