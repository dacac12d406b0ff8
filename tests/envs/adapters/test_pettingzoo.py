from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from tests.support.thorough import thorough
from tests.support.world_steps import play, random_choices, returns, same_steps

from offbeat.core.errors import ConfigError
from offbeat.core.importable import is_importable
from offbeat.core.types import NO_DECISION
from offbeat.envs.adapters.pettingzoo.adapter import ADAPTER
from offbeat.envs.adapters.pettingzoo.kinds import world_of
from offbeat.envs.adapters.pettingzoo.sources import Source
from offbeat.envs.make import make_envs
from offbeat.envs.testing.games import Nim, RockPaperScissors
from offbeat.envs.testing.smuggling import Smuggling
from offbeat.envs.testing.worlds import Cameras, CartPoles, LateArrivals, MixedSpaces
from offbeat.envs.worlds.contract import ReportsLater, World, WorldAdapter, WorldSnapshots, WorldStep

pytest.importorskip("pettingzoo")

SPREAD = "pettingzoo:mpe2/simple_spread_v3"
ZOMBIES = "pettingzoo:butterfly/knights_archers_zombies_v11"
CONNECT_FOUR = "pettingzoo:classic/connect_four_v3"
INSTALLED = (SPREAD, "pettingzoo:mpe2/simple_world_comm_v3", ZOMBIES, CONNECT_FOUR, "pettingzoo:classic/rps_v2")


ENDS = {"first": 2, "second": 4}
"""Steps after which the agents of `Scripted` end."""


class Scripted:
    """A parallel env whose observations have the number of the step."""

    metadata: Mapping[str, Any] = {"render_modes": []}
    possible_agents: Any = tuple(ENDS)

    def __init__(self) -> None:
        self.agents: list[str] = []
        self.time = 0

    def observation_space(self, agent: str) -> gym.Space[Any]:  # noqa: ARG002
        return gym.spaces.Box(0, 10, (1,), np.float32)

    def action_space(self, agent: str) -> gym.Space[Any]:  # noqa: ARG002
        return gym.spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:  # noqa: ARG002
        self.agents, self.time = list(ENDS), 0
        return self._observe(self.agents), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, Any]) -> Any:  # noqa: ARG002
        self.time += 1
        agents = list(self.agents)
        terminations = {agent: self.time == ENDS[agent] for agent in agents}
        self.agents = [agent for agent in agents if not terminations[agent]]
        truncations: dict[str, bool] = dict.fromkeys(agents, False)
        infos: dict[str, dict[str, Any]] = {agent: {} for agent in agents}
        return self._observe(agents), dict.fromkeys(agents, 1.0), terminations, truncations, infos

    def close(self) -> None:
        pass

    def _observe(self, agents: Any) -> dict[str, Any]:
        return {agent: np.full(1, self.time, np.float32) for agent in agents}


def scripted(**moves: list[Any]) -> Callable[[str, WorldStep], Any]:
    """Return the choice of each agent's next move in a list."""
    remaining = {agent: iter(each) for agent, each in moves.items()}
    return lambda agent, _: next(remaining[agent])


# --- the contract -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", INSTALLED)
def test_steps_of_installed_envs_keep_the_contract(env_id):
    world = ADAPTER.make_world(env_id, {})
    try:
        assert list(play(world, random_choices(world)))[-1].over
    finally:
        world.close()


@pytest.mark.parametrize(
    "make", [CartPoles, Cameras, LateArrivals, MixedSpaces, RockPaperScissors, Nim, Smuggling, Scripted]
)
def test_steps_of_envs_that_do_not_import_pettingzoo_keep_the_contract(make):
    world = world_of(make())
    assert list(play(world, random_choices(world)))[-1].over


@pytest.mark.parametrize("env_id", [SPREAD, *thorough(ZOMBIES)])
def test_equal_seeds_give_equal_episodes_and_a_reset_without_a_seed_continues_the_stream(env_id):
    episodes = []
    for _ in range(2):
        world = ADAPTER.make_world(env_id, {})
        episodes.append([list(play(world, random_choices(world, 1), seed)) for seed in (3, None)])
        world.close()
    assert all(same_steps(one, other) for one, other in zip(*episodes, strict=True))
    assert not same_steps(*episodes[0])


def test_agents_that_die_early_are_absent_while_the_others_continue():
    world = ADAPTER.make_world(ZOMBIES, {"max_cycles": 900, "spawn_delay": 5, "line_death": True})
    steps = list(play(world, random_choices(world, 3), seed=2))
    world.close()
    ends = [(number, agent) for number, step in enumerate(steps) for agent, ended in step.terminations.items() if ended]
    assert len({number for number, _ in ends}) > 1
    first, agent = ends[0]
    assert agent in steps[first].observations
    assert all(agent not in step.observations for step in steps[first + 1 :])


def test_agents_that_appear_late_have_an_observation_and_no_reward_in_their_first_step():
    world = world_of(LateArrivals(count=2, every=2, life=3))
    steps = list(play(world, lambda *_: 1))
    assert [sorted(step.deciding) for step in steps] == [
        ["agent_0"],
        ["agent_0"],
        ["agent_0", "agent_1"],
        ["agent_1"],
        ["agent_1"],
        [],
    ]
    assert "agent_1" in steps[2].observations
    assert "agent_1" not in steps[2].rewards
    assert steps[3].terminations == {"agent_0": True, "agent_1": False}
    assert steps[5].truncations == {"agent_1": True}
    assert returns(steps) == {"agent_0": 3.0, "agent_1": 3.0}


# --- turns --------------------------------------------------------------------------------------------------

COLUMN_0_WINS = {"player_0": [0, 0, 0, 0], "player_1": [1, 1, 1]}


def test_the_loser_gets_its_reward_and_its_end_in_the_step_of_the_winning_move():
    world = ADAPTER.make_world(CONNECT_FOUR, {})
    steps = list(play(world, scripted(**COLUMN_0_WINS)))
    assert world.turns
    assert len(steps) == 8
    assert steps[-1].rewards == {"player_0": 1, "player_1": -1}
    assert steps[-1].terminations == {"player_0": True, "player_1": True}
    assert all(set(step.rewards.values()) == {0} for step in steps[1:-1])


def test_only_the_player_on_turn_has_allowed_moves_and_a_full_column_is_forbidden():
    world = ADAPTER.make_world(CONNECT_FOUR, {})
    steps = list(play(world, scripted(player_0=[0, 0, 0, 1, 2, 3, 4], player_1=[0, 0, 0, 1, 1, 1, 1])))
    for step in steps[:-1]:
        for player, observation in step.observations.items():
            assert observation["action_mask"].any() == (player in step.deciding)
    assert steps[6].observations["player_0"]["action_mask"].tolist() == [0, 1, 1, 1, 1, 1, 1]


def test_the_observation_of_a_waiting_player_has_the_move_of_the_other():
    world = ADAPTER.make_world(CONNECT_FOUR, {})
    *_, step = list(play(world, scripted(**COLUMN_0_WINS)))[:2]
    board = step.observations["player_0"]["observation"]
    assert board[5, 0].tolist() == [1, 0]
    assert step.observations["player_1"]["observation"][5, 0].tolist() == [0, 1]


class EarnsByTurns(Nim):
    """Each move gives its player 1 and the other one 10; both are kept until the player is selected again."""

    def step(self, action: Any) -> None:
        player = self.agent_selection
        alive = not self.terminations[player]
        if alive:
            self.rewards[player] = 0.0
        super().step(action)
        if alive and not self.terminations[player]:
            self.rewards[player] += 1.0
            self.rewards[self.agent_selection] += 10.0


def test_rewards_between_two_turns_are_given_when_the_player_is_on_turn_again():
    steps = list(play(world_of(EarnsByTurns(stones=4, most=1)), lambda *_: 0))
    assert [step.rewards for step in steps[1:3]] == [
        {"player_0": 0.0, "player_1": 10.0},
        {"player_0": 11.0, "player_1": 0.0},
    ]


class Counts(Nim):
    """The info of a player has the number of its actions."""

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        super().reset(seed, options)
        self.infos = {player: {"actions": 0} for player in self.agents}

    def step(self, action: Any) -> None:
        if action is not None:
            self.infos[self.agent_selection]["actions"] += 1
        super().step(action)


def test_the_info_of_an_action_is_given_once_when_its_player_is_on_turn_again():
    steps = play(world_of(Counts(stones=3, most=1)), lambda *_: 0)
    infos = [{player: dict(info) for player, info in step.infos.items()} for step in steps]
    assert infos == [
        {"player_0": {"actions": 0}, "player_1": {"actions": 0}},  # those of a reset are complete
        {"player_0": {}, "player_1": {"actions": 0}},
        {"player_0": {"actions": 1}, "player_1": {}},
        {"player_0": {"actions": 2}, "player_1": {"actions": 1}},
    ]


def test_infos_that_no_step_has_given_are_known():
    world = world_of(Counts(stones=3, most=1))
    world.reset(0)
    world.step({"player_0": 0})
    assert isinstance(world, ReportsLater)
    assert world.unreported_infos() == {"player_0": {"actions": 1}}


def test_the_first_player_of_nim_wins_by_leaving_a_multiple_of_three():
    def choose(agent: str, step: WorldStep) -> int:
        left = int(step.observations[agent]["observation"].argmax())
        return (left % 3 or 1) - 1 if agent == "player_0" else left % 2 if left > 1 else 0

    assert returns(list(play(world_of(Nim(7, 2)), choose))) == {"player_0": 1.0, "player_1": -1.0}


class NeverRemoves(Nim):
    def step(self, action: Any) -> None:
        if action is not None:
            super().step(action)


def test_an_env_that_does_not_remove_agents_that_have_ended_is_reported():
    with pytest.raises(ValueError, match=r"'player_1' has ended, but step\(None\) did not remove it"):
        list(play(world_of(NeverRemoves(1)), lambda *_: 0))


def test_a_turn_based_env_that_was_wrapped_as_a_parallel_one_is_unwrapped():
    conversions = pytest.importorskip("pettingzoo.utils.conversions")
    pettingzoo = pytest.importorskip("pettingzoo")
    env = conversions.turn_based_aec_to_parallel(pettingzoo.make("aec", "classic/connect_four-v3"))
    steps = list(play(world_of(env), scripted(**COLUMN_0_WINS)))
    assert steps[-1].rewards == {"player_0": 1, "player_1": -1}


# --- envs of one's own --------------------------------------------------------------------------------------


class Waits(Scripted):
    """'first' has nothing to decide in the second step."""

    def step(self, actions: Any) -> Any:
        self.acted = sorted(actions)
        *parts, infos = super().step(actions)
        if self.time == 1:
            infos["first"][NO_DECISION] = True
        return *parts, infos


def test_an_agent_whose_info_says_no_decision_does_not_act_in_the_next_step():
    env = Waits()
    steps = list(play(world_of(env), lambda *_: 0))
    assert [sorted(step.deciding) for step in steps] == [["first", "second"], ["second"], ["second"], ["second"], []]


def test_masks_in_infos_are_passed_on():
    class Masked(Scripted):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            observations, _ = super().reset(seed, options)
            return observations, {agent: {"action_mask": np.array([0, 1])} for agent in self.agents}

    step = world_of(Masked()).reset(0)
    assert step.infos["first"]["action_mask"].tolist() == [0, 1]


def test_without_possible_agents_those_of_the_first_reset_are_all():
    class Unknown(Scripted):
        possible_agents = None

    assert world_of(Unknown()).agents == ("first", "second")


class Unlisted(Scripted):
    """'third' appears, which is not among the possible agents."""

    def step(self, actions: Any) -> Any:
        observations, *others = super().step(actions)
        self.agents.append("third")
        return {**observations, **self._observe(["third"])}, *others


class FourValues(Scripted):
    """A step has four values, as in early versions of PettingZoo."""

    def step(self, actions: Any) -> Any:
        return super().step(actions)[:4]


class NoValues(Scripted):
    def step(self, actions: Any) -> Any:
        super().step(actions)


class AnArray(Scripted):
    def step(self, actions: Any) -> Any:
        return np.zeros(len(super().step(actions)))


class NoInfos(Scripted):
    def step(self, actions: Any) -> Any:
        return *super().step(actions)[:4], None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Unlisted, "the agent 'third' appeared, but only first, second are known"),
        (NoValues, r"step\(\) returned None, but \(observations, rewards"),
        (AnArray, r"step\(\) returned an array of shape \(5,\), but"),
        (NoInfos, "infos is None, not a dict with an info for each agent"),
        (FourValues, r"step\(\) returned a tuple of 4, but \(observations, rewards"),
    ],
)
def test_steps_that_no_row_can_be_made_of_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        list(play(world_of(make()), lambda *_: 0))


def test_a_reset_that_returns_no_infos_is_refused():
    class Old(Scripted):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            return super().reset(seed, options)[0]

    with pytest.raises(ValueError, match=r"reset\(\) returned dict, but \(observations, infos\) is expected"):
        world_of(Old()).reset(0)


def test_the_deprecated_dicts_of_spaces_are_not_read_where_there_are_methods():
    class Deprecated(Scripted):
        @property
        def observation_spaces(self) -> None:
            raise AssertionError

        action_spaces = observation_spaces

    world = world_of(Deprecated())
    assert world.action_space("first") == gym.spaces.Discrete(2)
    assert world.observation_space("first").shape == (1,)


def test_spaces_may_be_dicts_by_agent():
    class Dicts(Scripted):
        observation_space: Any = None
        action_space: Any = None
        observation_spaces = dict.fromkeys(("first", "second"), gym.spaces.Box(0, 1, (2,)))
        action_spaces = dict.fromkeys(("first", "second"), gym.spaces.Discrete(4))

    world = world_of(Dicts())
    assert world.observation_space("first").shape == (2,)
    assert world.action_space("second") == gym.spaces.Discrete(4)


def test_names_of_agents_must_be_strings():
    class Numbers(Scripted):
        possible_agents = (0, 1)

    with pytest.raises(ConfigError, match="has the agent 0, but strings are expected"):
        world_of(Numbers())


# --- ids ----------------------------------------------------------------------------------------------------


def test_the_adapter_is_one_of_worlds():
    assert isinstance(ADAPTER, WorldAdapter)


def test_spaces_are_read_without_the_dicts_that_pettingzoo_warns_of():
    world = ADAPTER.make_world(SPREAD, {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spaces = [world.observation_space(world.agents[0]), world.action_space(world.agents[0])]
    world.close()
    assert all(isinstance(space, gym.Space) for space in spaces)


def test_listed_envs_can_be_made():
    listed = ADAPTER.ids()
    assert {SPREAD, ZOMBIES, CONNECT_FOUR} <= set(listed)
    for env_id in listed:
        ADAPTER.make_world(env_id, {}).close()


@pytest.mark.parametrize("name", ["pettingzoo.classic/connect_four_v3", "classic/connect_four-v3"])
def test_ids_may_have_the_forms_of_modules_and_of_pettingzoos_registry(name):
    assert ADAPTER.make_world(f"pettingzoo:{name}", {}).agents == ("player_0", "player_1")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("butterfly/knights_archers_zombies_v10", "Did you mean 'pettingzoo:butterfly/knights_archers_zombies_v11'"),
        ("mpe2/simple_spred_v3", "Did you mean 'pettingzoo:mpe2/simple_spread_v3'"),
        ("os/path", "for an env of another package, pass my_module:my_function"),
    ],
)
def test_unknown_ids_are_refused_with_the_nearest_one(name, message):
    with pytest.raises(ConfigError, match=f"(?i){message}"):
        ADAPTER.make_world(f"pettingzoo:{name}", {})


@pytest.mark.parametrize(
    ("missing", "env_id", "command"),
    [
        ("pettingzoo", SPREAD, r'pip install "offbeat\[agents\]"'),
        ("mpe2", SPREAD, r'pip install "offbeat\[agents\]"'),
        ("pygame", CONNECT_FOUR, r'pip install "pettingzoo\[classic\]"'),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, missing, env_id, command):
    sources = "offbeat.envs.adapters.pettingzoo.sources"
    monkeypatch.setattr(f"{sources}.is_importable", lambda name: name != missing and is_importable(name))
    assert env_id not in ADAPTER.ids()
    with pytest.raises(ConfigError, match=f"{env_id} needs {missing}, which is not installed: run {command}"):
        ADAPTER.make_world(env_id, {})


def test_arguments_are_passed_to_the_constructor():
    assert len(ADAPTER.make_world(SPREAD, {"N": 5}).agents) == 5


@pytest.mark.parametrize("env_id", [SPREAD, CONNECT_FOUR])
def test_unknown_arguments_are_refused_with_those_that_exist(env_id):
    with pytest.raises(ConfigError, match=r"has no argument 'rendr_mode'. Did you mean 'render_mode'\? .*render_mode"):
        ADAPTER.make_world(env_id, {"rendr_mode": None})


def test_worlds_are_rendered_in_the_modes_that_the_env_has():
    world = ADAPTER.make_world(SPREAD, {}, "rgb_array")
    world.reset(0)
    assert world.render().shape == (700, 700, 3)
    world.close()
    with pytest.raises(ConfigError, match="cannot be rendered in the mode ansi, but in human, rgb_array"):
        ADAPTER.make_world(SPREAD, {}, "ansi")


def test_an_env_that_is_not_rendered_in_the_given_mode_is_closed(monkeypatch):
    closed: list[bool] = []
    env = SimpleNamespace(metadata={"render_modes": ["human"]}, close=lambda: closed.append(True))
    source = Source(lambda **_: env, lambda **_: env)
    monkeypatch.setattr("offbeat.envs.adapters.pettingzoo.adapter.source_of", lambda _name: source)
    with pytest.raises(ConfigError, match="cannot be rendered in the mode rgb_array, but in human"):
        ADAPTER.make_world(SPREAD, {}, "rgb_array")
    assert closed == [True]


def test_a_world_in_place_of_an_env_with_one_agent_is_refused():
    with pytest.raises(ConfigError, match="is a world with several agents"):
        make_envs(SPREAD, 1, seed=0)


# --- snapshots ----------------------------------------------------------------------------------------------


class NoisyMoves(RockPaperScissors):
    """Replaces moves by samples from the players' spaces."""

    def step(self, actions: Mapping[str, Any]) -> Any:
        return super().step({player: self.action_space(player).sample() for player in actions})


SHARED = gym.spaces.Discrete(3)
"""A space that all agents of all envs of a module use."""


class SharedMethod(NoisyMoves):
    """Returns the constant of its module."""

    def action_space(self, agent: str) -> gym.Space[Any]:  # noqa: ARG002
        return SHARED


class SharedDict(NoisyMoves):
    """Has the constant of its module in a dict of its class."""

    action_spaces: Any = dict.fromkeys(("player_0", "player_1"), SHARED)

    def action_space(self, agent: str) -> gym.Space[Any]:
        space: gym.Space[Any] = self.action_spaces[agent]
        return space


@pytest.mark.parametrize("make", [SharedMethod, SharedDict])
def test_what_an_env_samples_from_spaces_of_its_class_or_module_does_not_depend_on_other_envs(make):
    alone, beside, other = (world_of(make(5)) for _ in range(3))
    expected = list(play(alone, rock, seed=4))
    in_turn = zip(play(beside, rock, seed=4), play(other, rock, seed=9), strict=True)
    assert same_steps([step for step, _ in in_turn], expected)


def rock(agent: str, step: WorldStep) -> int:  # noqa: ARG001
    """Choose what `NoisyMoves` replaces."""
    return 0


OWN: dict[str, Callable[[], Any]] = {
    "cart poles": CartPoles,
    "late arrivals": LateArrivals,
    "mixed spaces": MixedSpaces,
    "rock, paper, scissors": lambda: RockPaperScissors(5),
    "moves sampled from spaces": lambda: NoisyMoves(5),
    "nim": Nim,
}


def rest_of(world: World, step: WorldStep, seed: int) -> list[WorldStep]:
    """Return the rest of the episode and the next one, with actions sampled anew."""
    choose = random_choices(world, seed)
    steps = [step]
    while not steps[-1].over:
        steps.append(world.step({agent: choose(agent, steps[-1]) for agent in steps[-1].deciding}))
    return steps + list(play(world, choose, seed=None))


@pytest.mark.parametrize("name", OWN)
def test_a_restored_world_continues_bit_for_bit(name):
    world = world_of(OWN[name]())
    assert isinstance(world, WorldSnapshots)
    episode = play(world, random_choices(world), seed=4)
    step = [next(episode) for _ in range(4)][-1]
    state = world.snapshot()
    expected = rest_of(world, step, 7)
    fresh = world_of(OWN[name]())
    assert isinstance(fresh, WorldSnapshots)
    fresh.restore(state)
    assert same_steps(rest_of(fresh, step, 7), expected)


def test_a_snapshot_reaches_through_wrappers_without_a_state_only():
    wrappers = pytest.importorskip("pettingzoo.utils.wrappers")

    class WrappableNim(Nim, pytest.importorskip("pettingzoo").AECEnv):  # type: ignore[misc]
        pass

    ordered = world_of(wrappers.OrderEnforcingWrapper(WrappableNim()))
    assert isinstance(ordered, WorldSnapshots)
    ordered.restore(world_of_nim_after_one_move())
    assert ordered.env.observe("player_0")["observation"].argmax() == 6
    assert not isinstance(world_of(wrappers.MultiEpisodeEnv(WrappableNim(), 2)), WorldSnapshots)


def world_of_nim_after_one_move() -> Any:
    world = world_of(Nim())
    assert isinstance(world, WorldSnapshots)
    episode = play(world, lambda *_: 0)
    next(episode)
    next(episode)
    return world.snapshot()
