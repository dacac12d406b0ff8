"""`Worlds` writes the rows of each agent as the contract of worlds says, and refuses worlds that break it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from tests.support import scripted_worlds
from tests.support.scripted_worlds import SPEC, Script, step

from offbeat.config.env import UNSET, EnvConfig
from offbeat.core.errors import ConfigError, EnvFailed
from offbeat.core.types import ActionSpec, EnvSpec, Leaf
from offbeat.envs.checking.preflight import preflight_world
from offbeat.envs.contract import Envs, Outcome
from offbeat.envs.testing.worlds import MixedSpaces
from offbeat.envs.worlds.contract import PoliciesOf, WorldSpec
from offbeat.envs.worlds.make import make_renderable_world, make_worlds, spec_of_world
from offbeat.envs.worlds.rows import spec_of_policy
from offbeat.envs.worlds.worlds import Worlds

SPEC_WITH_INFO = replace(SPEC, info=("place",))

TWO_NUMBERS: Any = [1.0, 2.0]
"""A reward that is none."""


def worlds_of(
    *scripts: Script,
    owners: Mapping[str, Sequence[str]] | None = None,
    limit: int | None = None,
    policies_of: PoliciesOf | None = None,
    each: EnvSpec = SPEC,
) -> Worlds:
    agents = scripts[0].agents
    spec = WorldSpec("script", tuple((agent, each) for agent in agents))
    owners = owners or {"default": agents}
    groups, seeds = [slice(0, len(scripts))], range(len(scripts))
    return Worlds(spec, scripts, owners, groups=groups, seeds=seeds, limit=limit, policies_of=policies_of)


def play(envs: Envs, rows: int) -> dict[str, np.ndarray]:
    """Reset the envs and take rows with action 0; return name -> [rows, N], and the observations, [rows + 1, N]."""
    observations = [envs.reset()["observation"][:, 0].copy()]
    taken: dict[str, list[np.ndarray]] = {}
    for _ in range(rows):
        envs.send(np.zeros(envs.spec.columns, np.int64))
        outcome = envs.recv()
        observations.append(outcome.observation["observation"][:, 0].copy())
        parts = {name: getattr(outcome, name) for name in KINDS}
        parts |= {"reward": outcome.reward, "reset": outcome.resets, "info": outcome.info}
        for name, part in parts.items():
            taken.setdefault(name, []).append(part.copy())
    return {"observation": np.array(observations)} | {name: np.array(parts) for name, parts in taken.items()}


KINDS = ("valid", "no_decision", "terminated", "truncated", "env_step")


def test_a_reward_that_is_no_number_is_named_in_every_step() -> None:
    first, late = step(a=1.0, b=1.0), step(a=1.0, b=1.0)
    rewards: Any = {"a": 1.0, "b": None}
    envs = worlds_of(Script(first, first, late._replace(rewards=rewards))).envs["default"]
    with pytest.raises(EnvFailed, match=r"step 2 of the episode: agent b: .*the reward is None, not a number"):
        play(envs, 2)


def test_an_agent_that_dies_has_reset_rows_until_the_world_is_reset():
    world = Script(step(a=0, b=0), step(a=1, b=2), step({"a": "terminated"}, a=3, b=4), step(b=5),
                   step({"b": "truncated"}, b=6))  # fmt: skip
    rows = play(worlds_of(world).envs["default"], 7)
    assert rows["valid"].T.tolist() == [[1, 1, 0, 0, 0, 1, 1], [1, 1, 1, 1, 0, 1, 1]]
    assert not rows["no_decision"].any()
    assert rows["reward"].T.tolist() == [[1, 3, 0, 0, 0, 1, 3], [2, 4, 5, 6, 0, 2, 4]]
    assert rows["terminated"].T.tolist() == [[0, 1, 0, 0, 0, 0, 1], [0] * 7]
    assert rows["truncated"].T.tolist() == [[0] * 7, [0, 0, 0, 1, 0, 0, 0]]
    assert rows["observation"].T.tolist() == [[0, 1, 3, 3, 3, 0, 1, 3], [0, 2, 4, 5, 6, 0, 2, 4]]
    assert rows["env_step"].T.tolist() == [[1, 1, 1, 1, 0, 1, 1], [0] * 7]
    assert world.actions[1:4] == [{"a": 0, "b": 0}, {"b": 0}, {"b": 0}]


def test_the_flags_of_a_dead_agent_may_be_repeated_until_the_world_is_reset():
    world = Script(step(a=0, b=0), step({"a": "terminated"}, a=3, b=4), step({"a": "terminated"}, a=0, b=5),
                   step({"a": "terminated", "b": "terminated"}, a=0, b=6))  # fmt: skip
    rows = play(worlds_of(world).envs["default"], 4)
    assert rows["terminated"].T.tolist() == [[1, 0, 0, 0], [0, 0, 1, 0]]
    assert rows["reset"].T.tolist() == [[0, 1, 1, 1], [0, 0, 0, 1]]


def test_an_agent_that_appears_late_has_reset_rows_before():
    world = Script(step(a=0), step(a=1), step(a=2, b=9), step({"a": "terminated", "b": "terminated"}, a=3, b=4))
    rows = play(worlds_of(world).envs["default"], 4)
    assert rows["valid"].T.tolist() == [[1, 1, 1, 0], [0, 0, 1, 0]]
    assert rows["reset"].T.tolist() == [[0, 0, 0, 1], [1, 1, 0, 1]]
    assert rows["observation"][2:4, 1].tolist() == [9, 4]


def test_an_agent_that_waits_has_rows_without_a_decision_and_may_end_in_one():
    world = Script(step(deciding="a", a=0, b=0), step(deciding="b", a=0, b=-1), step(deciding="a", a=5, b=0),
                   step({"a": "terminated", "b": "terminated"}, a=1, b=-1))  # fmt: skip
    rows = play(worlds_of(world).envs["default"], 5)
    assert rows["valid"].T.tolist() == [[1, 0, 1, 0, 1], [0, 1, 0, 0, 0]]
    assert rows["no_decision"].T.tolist() == [[0, 1, 0, 0, 0], [1, 0, 1, 0, 1]]
    assert rows["reward"].T.tolist() == [[0, 5, 1, 0, 0], [-1, 0, -1, 0, -1]]
    assert rows["terminated"].T.tolist() == [[0, 0, 1, 0, 0], [0, 0, 1, 0, 0]]
    assert world.actions[:3] == [{"a": 0}, {"b": 0}, {"a": 0}]


def test_reset_rows_have_no_numbers_of_infos():
    steps = step(a=0), step(a=1), step(a=2, b=9), step({"a": "terminated", "b": "terminated"}, a=3, b=4)
    places = [
        each._replace(infos={agent: {"place": 10 * place} for agent in each.infos}) for place, each in enumerate(steps)
    ]
    rows = play(worlds_of(Script(*places), each=SPEC_WITH_INFO).envs["default"], 5)
    expected = [[[10, 20, 30, np.nan, 10], [np.nan, np.nan, 30, np.nan, np.nan]]]
    np.testing.assert_array_equal(rows["info"].T, expected)


def test_a_limit_truncates_all_agents_that_are_left():
    world = Script(step(a=0, b=0), step({"a": "terminated"}, a=1, b=1), step(b=1), step(b=1))
    rows = play(worlds_of(world, limit=2).envs["default"], 4)
    assert rows["terminated"].T.tolist() == [[1, 0, 0, 1], [0] * 4]
    assert rows["truncated"].T.tolist() == [[0] * 4, [0, 1, 0, 0]]
    assert rows["valid"].T.tolist() == [[1, 0, 0, 1], [1, 1, 0, 1]]


def test_nobody_appears_in_the_step_at_which_a_limit_ends_the_episode():
    world = Script(step(a=0), step(a=1), step(a=2, b=9), step(a=1, b=1))
    rows = play(worlds_of(world, limit=2).envs["default"], 4)
    assert rows["truncated"].T.tolist() == [[0, 1, 0, 0], [0] * 4]
    assert rows["valid"].T.tolist() == [[1, 1, 0, 1], [0, 0, 0, 0]]


class LateRewards(Script):
    """A world whose agent b has earned 7, and has an info, that no step has reported yet."""

    def unreported_rewards(self) -> dict[str, float]:
        return {"b": 7.0}

    def unreported_infos(self) -> dict[str, dict[str, Any]]:
        return {"b": {"place": 2}}


def test_a_limit_reports_what_agents_have_got_and_no_step_has_reported():
    world = LateRewards(step(deciding="a", a=0, b=0), step(deciding="b", a=1, b=0), step(a=0, b=0))
    rows = play(worlds_of(world, limit=1, each=SPEC_WITH_INFO).envs["default"], 1)
    assert rows["reward"].tolist() == [[1, 7]]
    np.testing.assert_array_equal(rows["info"], [[[np.nan], [2]]])


def test_policies_have_their_own_columns_of_worlds_that_are_stepped_once():
    def script() -> Script:
        return Script(*(step(a=reward, b=2 * reward, c=3 * reward) for reward in range(4)), agents="abc")

    scripts = [script(), script()]
    worlds = worlds_of(*scripts, owners={"one": "b", "two": "ac"})
    one, two = worlds.envs["one"], worlds.envs["two"]
    for envs in (one, two):
        envs.reset()
    assert (one.spec.columns, two.spec.columns) == (2, 4)
    assert two.spec.agents == ("a", "c")
    two.send(np.array([0, 1, 1, 0]))
    one.send(np.array([1, 0]))
    assert one.recv().reward.tolist() == [2, 2]
    assert two.recv().reward.tolist() == [1, 3, 1, 3]
    assert [script.actions for script in scripts] == [[{"a": 0, "b": 1, "c": 1}], [{"a": 1, "b": 0, "c": 0}]]


def test_a_snapshot_continues_the_rows_bit_for_bit():
    def script() -> Script:
        return Script(step(a=0, b=0), step(deciding="b", a=1, b=2), step({"a": "terminated"}, a=3, b=4), step(b=5),
                      step({"b": "truncated"}, b=6))  # fmt: skip

    expected = play(worlds_of(script()).envs["default"], 5)
    first, second = worlds_of(script()).envs["default"], worlds_of(script()).envs["default"]
    play(first, 2)
    second.restore(first.snapshot())  # type: ignore[attr-defined]
    for row in range(2, 5):
        second.send(np.zeros(2, np.int64))
        outcome = second.recv()
        assert outcome.reward.tolist() == expected["reward"][row].tolist()
        for kind in KINDS:
            assert getattr(outcome, kind).tolist() == expected[kind][row].tolist()


def take_row(worlds: Worlds) -> dict[str, Outcome]:
    """Take a row of all policies, with action 0."""
    for envs in worlds.envs.values():
        envs.send(np.zeros(envs.spec.columns, np.int64))
    return {policy: envs.recv() for policy, envs in worlds.envs.items()}


def drawn_worlds() -> Worlds:
    """A world whose agents a and b change their policies one and two in each episode of two steps."""
    world = Script(step(a=0, b=0), step(a=1, b=2), step({"a": "terminated", "b": "terminated"}, a=3, b=4))
    policies = [{"a": "one", "b": "two"}, {"a": "two", "b": "one"}]
    return worlds_of(world, owners=dict.fromkeys(("one", "two"), "ab"), policies_of=lambda _, n: policies[n % 2])


def test_an_agent_is_in_the_columns_of_its_policy_and_absent_in_those_of_the_others():
    worlds = drawn_worlds()
    for envs in worlds.envs.values():
        envs.reset()
    rows = [take_row(worlds) for _ in range(2)]
    own, other = rows[1]["one"], rows[1]["two"]
    assert (own.valid.tolist(), other.valid.tolist()) == ([True, False], [False, True])
    assert (own.terminated.tolist(), other.terminated.tolist()) == ([True, False], [False, True])
    assert (own.reward.tolist(), other.reward.tolist()) == ([3, 0], [0, 4])
    reset = take_row(worlds)
    assert all(outcome.resets.all() and outcome.env_step is not None and not outcome.env_step.any()
               for outcome in reset.values())  # fmt: skip
    after = take_row(worlds)
    assert (after["one"].valid.tolist(), after["two"].valid.tolist()) == ([False, True], [True, False])
    assert (after["one"].reward.tolist(), after["two"].reward.tolist()) == ([0, 2], [1, 0])


def test_a_snapshot_continues_with_the_policies_of_the_episode_and_the_number_of_the_next_one():
    first, second = drawn_worlds(), drawn_worlds()
    for envs in first.envs.values():
        envs.reset()
    for _ in range(4):
        take_row(first)
    for policy, envs in second.envs.items():
        envs.restore(first.envs[policy].snapshot())  # type: ignore[attr-defined]
    for _ in range(5):
        expected, found = take_row(first), take_row(second)
        for policy, outcome in found.items():
            assert outcome.valid.tolist() == expected[policy].valid.tolist()
            assert outcome.reward.tolist() == expected[policy].reward.tolist()


ENDED = step({"a": "terminated"}, a=0, b=0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (step(b=1)._replace(rewards={"a": 2.0, "b": 1}), "agent a got a reward of 2.0, but its episode has ended"),
        (step(a=0, b=1), "agent a is alive again, but its episode has ended before"),
        (step(a=0)._replace(deciding=["b"]), "agent b is missing, but it was neither terminated nor truncated"),
        (step(b=1)._replace(deciding="ab"), "agent a is to act, but it has ended or has no observation"),
        (step({"c": "terminated"}, b=1, c=1), "agent c appeared and ended in the same step: leave it out"),
        (step({"b": "truncated", "c": "truncated"}, b=1, c=1), "agent c appeared and ended in the same step"),
        (step(b=1, z=1), "agent z appears, but it is not one of the world's possible agents"),
        (
            step(b=1, c=1)._replace(infos={"c": {"action_mask": [1, 1]}}),
            "agent c: 'action_mask' is in its info, but the infos of the first reset of the world had none for it",
        ),
        (
            step(b=1)._replace(infos={"b": {"action_mask": [1, 1]}}),
            "agent b: 'action_mask' is in its info, .* so its masks are not read: give masks in the infos of reset",
        ),
        (step(b=1)._replace(over=True), "agent b is missing, but it was neither terminated nor truncated"),
        (step(b=float("nan")), "agent b: observation is NaN"),
        (step(b=1)._replace(observations={"b": [1, 1]}), r"agent b: an observation of shape \(2,\) where"),
        (step(b=1, c=1)._replace(observations={"b": [1], "c": [1, 1]}), r"agent c: an observation of shape \(2,\)"),
        (
            step(b=1)._replace(rewards={"b": TWO_NUMBERS}),
            "agent b: step.. returned a reward of 2 numbers for one agent, .* weigh them into one number in the env\\.",
        ),
        (step(b=1)._replace(rewards={}), "agent b has no value in rewards: return rewards for each agent"),
        (step(b=1)._replace(terminations={"__all__": False}), "agent b has no value in terminations"),
    ],
)
def test_a_world_that_breaks_the_contract_is_refused_with_agent_and_step(wrong, message):
    envs = worlds_of(Script(step(a=0, b=0), ENDED, wrong, agents="abc")).envs["default"]
    with pytest.raises(EnvFailed, match=message) as raised:
        play(envs, 2)
    assert "world 0: step 2 of the episode" in str(raised.value)


def test_agents_without_a_decision_at_first_have_masks_in_their_infos_if_others_of_their_kind_have_them():
    mask = {"action_mask": np.array([1, 0])}
    first = step(a=0, b=0, deciding="a")._replace(infos={"a": mask, "b": {}})
    spec = spec_of_world("script", Script(first, agents="abc"), first, UNSET)
    assert [spec.spec_of(agent).mask for agent in "abc"] == ["action_mask"] * 3
    first = step(a=0, b=0)._replace(infos={"a": mask, "b": {}})
    spec = spec_of_world("script", Script(first), first, UNSET)
    assert [spec.spec_of(agent).mask for agent in "ab"] == ["action_mask", None]


@pytest.mark.parametrize(
    ("name", "space", "settings", "message"),
    [
        (
            "ACTIONS",
            gym.spaces.Box(0, 4, (1,), np.int32),
            UNSET,
            "agent a has actions.*: pass my_module:my_function",
        ),
        ("SPACE", gym.spaces.Text(5), UNSET, "agent a has observations of Text .*: pass my_module:my_function"),
        ("SPACE", scripted_worlds.SPACE, EnvConfig(frame_stack=2), "because it has no images of bytes .*: omit it$"),
    ],
)
def test_no_wrapper_for_one_agent_is_advised_for_the_spaces_of_a_world(name, space, settings, message, monkeypatch):
    monkeypatch.setattr(scripted_worlds, name, space)
    first = step(a=0, b=0)
    with pytest.raises(ConfigError, match=message):
        spec_of_world("script", Script(first), first, settings)


def test_agents_of_one_policy_must_have_equal_spaces():
    other = EnvSpec("script", (Leaf("observation", (2,), "float32"),), ActionSpec("discrete", (), (2,)), 1)
    world = WorldSpec("script", (("a", SPEC), ("b", other)))
    with pytest.raises(ConfigError, match="agents a and b of script, whose observations differ: give each kind"):
        spec_of_policy(world, "default", ("a", "b"), 2)


class RefusesProgress:
    """An env that raises when it gets the progress."""

    def set_progress(self, fraction: float) -> None:  # noqa: ARG002
        raise RuntimeError("not now")


def test_an_exception_in_set_progress_names_the_world():
    scripts = [Script(step(a=0, b=0)), Script(step(a=0, b=0))]
    scripts[1].env = RefusesProgress()
    with pytest.raises(EnvFailed, match=r"world 1: set_progress\(0.5\) raised RuntimeError: not now"):
        worlds_of(*scripts).set_progress(0.5)


def test_worlds_that_are_refused_after_they_were_made_are_closed(monkeypatch):
    spec = preflight_world("offbeat.envs.testing.worlds:MixedSpaces")
    assert spec is not None
    closed: list[str] = []
    monkeypatch.setattr(MixedSpaces, "close", lambda _world: closed.append("a world"))
    with pytest.raises(ConfigError, match="give each kind of agent its own policy"):
        make_worlds(spec, 2, {"all": spec.names}, seed=0)
    assert len(closed) == 2


@pytest.mark.parametrize(
    ("mode", "curriculum", "says"),
    [("human", (), "rgb_array"), ("rgb_array", ("size 0:1 1:2",), "curriculum sets size")],
)
def test_a_world_that_is_refused_for_rendering_after_it_was_made_is_closed(monkeypatch, mode, curriculum, says):
    closed: list[str] = []
    monkeypatch.setattr(MixedSpaces, "close", lambda _world: closed.append("a world"))
    monkeypatch.setattr(MixedSpaces, "render_mode", mode, raising=False)
    settings = replace(UNSET, curriculum=curriculum)
    with pytest.raises(ConfigError, match=says):
        make_renderable_world("offbeat.envs.testing.worlds:MixedSpaces", settings, "rgb_array")
    assert len(closed) == 1
