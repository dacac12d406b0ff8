"""Atari's rows against the emulator itself, stepped frame by frame."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from tests.support.thorough import thorough

from offbeat.config.env import EnvConfig
from offbeat.core.errors import ConfigError
from offbeat.core.frozen_table import PlainTable
from offbeat.core.seeding import derive_seed, stream
from offbeat.envs.adapters.gymnasium import ale
from offbeat.envs.contract import Envs, Outcome
from offbeat.envs.make import make_envs

if find_spec("ale_py") is None:
    pytest.skip("needs ale-py", allow_module_level=True)

from tests.reference.slow_atari import SlowGame

COLUMNS, SEED = 2, 5
GAMES = {"Pong": "pong", "Breakout": "breakout", "SpaceInvaders": "space_invaders", "Freeway": "freeway"}


@pytest.fixture
def recorded_frame_counts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what ale-py says of each row, [rows] of [N]: frames since the game began. There is one group."""
    said: list[Any] = []
    make = ale._vector_env

    def spied(*arguments: Any) -> Any:
        envs = make(*arguments)
        for name in ("reset", "recv"):
            setattr(envs, name, noting(getattr(envs, name)))
        return envs

    def noting(call: Any) -> Any:
        def noted(*arguments: Any, **named: Any) -> Any:
            returned = call(*arguments, **named)
            said.append(returned[-1]["episode_frame_number"].copy())
            return returned

        return noted

    monkeypatch.setattr(ale, "_vector_env", spied)
    return said


def rows_of(envs: Envs, actions: Any) -> Iterator[Outcome]:
    for row in actions:
        envs.send(row)
        yield envs.recv()


@pytest.mark.parametrize(
    ("env_id", "given", "rows"),
    [
        ("BreakoutNoFrameskip-v4", {}, 250),
        ("ALE/Breakout-v5", {"episodic_life": True}, 180),
        ("SpaceInvadersNoFrameskip-v4", {"repeat_action_probability": 0.5, "max_frames": 1200}, 320),
        ("SpaceInvadersNoFrameskip-v4", {"episodic_life": False, "frame_skip": 3, "max_frames": 500}, 200),
        ("FreewayNoFrameskip-v4", {"max_frames": 12, "noop_max": 1, "image_size": (42, 60)}, 24),
        *thorough(
            ("BreakoutNoFrameskip-v4", {"max_frames": 130, "frame_skip": 2}, 150),
            ("PongNoFrameskip-v4", {}, 120),
            ("ALE/Pong-v5", {}, 120),
            ("FreewayNoFrameskip-v4", {"max_frames": 90}, 60),
            ("SpaceInvadersNoFrameskip-v4", {"repeat_action_probability": 0.5}, 520),
        ),
    ],
)
def test_rows_equal_those_of_the_emulator_stepped_frame_by_frame(
    recorded_frame_counts: list[Any], env_id: str, given: dict[str, Any], rows: int
) -> None:
    settings = EnvConfig(**given)
    full = settings.completed(env_id)
    columns = COLUMNS if (full.noop_max or 0) > 1 else 1  # each game takes a fifth of a second to start
    envs = make_envs(env_id, columns, seed=SEED, settings=settings)
    name = env_id.removeprefix("ALE/").removesuffix("-v5").removesuffix("NoFrameskip-v4")
    slow = [SlowGame(GAMES[name], derive_seed(SEED, "env", 0, 0, column), full) for column in range(columns)]
    seen = envs.reset()["observation"]
    for column, game in enumerate(slow):
        game.begin(recorded_frame_counts[0][column])
        np.testing.assert_allclose(seen[column, 0], game.seen, atol=1)
    actions = stream(0, "test").integers(envs.spec.action.nvec[0], size=(rows, columns))
    starts, ends = [*recorded_frame_counts[0].tolist()], 0
    for number, outcome in enumerate(rows_of(envs, actions)):
        for column, game in enumerate(slow):
            frames = int(recorded_frame_counts[-1][column])
            starts += [frames] * game.over
            row = game.row(int(actions[number, column]), frames)
            assert {key: getattr(outcome, key)[column] for key in row} == row, (number, column)
            assert outcome.ended[column] == game.over
            ends += game.over
            if not game.over and (number % 8 == 0 or not row["valid"]):
                np.testing.assert_allclose(outcome.observation["observation"][column, 0], game.seen, atol=1)
    assert ends > 0 or name == "Pong"
    noops = full.noop_max or 0
    assert min(starts) >= int(bool(full.fire_reset) and name != "Freeway")
    assert max(starts) <= noops
    assert len(set(starts)) > min(noops, 2, len(starts) - 1)  # they vary, and reach noop_max
    envs.close()


@cache
def first_loss() -> int:
    """Return the row in which Breakout loses its first life, if nothing is ever done."""
    envs = make_envs("BreakoutNoFrameskip-v4", 1, seed=SEED)
    envs.reset()
    rows = rows_of(envs, np.zeros((100, 1), np.int64))
    return next(row for row, outcome in enumerate(rows) if outcome.terminated[0])


@pytest.mark.parametrize(("frames", "valid"), [(0, [True, False, True]), (2, [True, False, False])])
def test_a_game_that_ends_while_the_next_life_starts_has_two_reset_rows(frames: int, valid: list[bool]) -> None:
    """Truncated `frames` after the lost life: in its row, or in the one where FIRE is pressed for the next."""
    row = first_loss()
    settings = EnvConfig(max_frames=4 * (row + 1) + frames)
    envs = make_envs("BreakoutNoFrameskip-v4", 1, seed=SEED, settings=settings)
    envs.reset()
    kept = [
        [bool(part[0]) for part in (outcome.valid, outcome.terminated, outcome.truncated, outcome.ended)]
        for outcome in rows_of(envs, np.zeros((row + 4, 1), np.int64))
    ][row:]
    assert [row[0] for row in kept[:3]] == valid
    assert kept[3][0]
    assert [row[1] for row in kept] == [frames > 0, False, False, False]
    assert [row[2] for row in kept] == [frames == 0, False, False, False]
    assert [row[3] for row in kept] == [frames == 0, frames > 0, False, False]


def test_an_episode_does_not_end_where_a_game_that_continues_has_0_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    make = ale._vector_env

    def without_lives(*arguments: Any) -> Any:
        envs = make(*arguments)
        receive = envs.recv

        def received() -> Any:
            *parts, info = receive()
            return *parts, {**info, "lives": np.zeros_like(info["lives"])}

        envs.recv = received
        return envs

    monkeypatch.setattr(ale, "_vector_env", without_lives)
    envs = make_envs("BreakoutNoFrameskip-v4", 1, seed=SEED)
    envs.reset()
    assert not any(outcome.terminated[0] for outcome in rows_of(envs, np.zeros((2, 1), np.int64)))


def test_with_fire_reset_a_policy_without_actions_reaches_the_end_of_a_game() -> None:
    def ended(**given: Any) -> bool:
        envs = make_envs("BreakoutNoFrameskip-v4", 1, seed=SEED, settings=EnvConfig(**given))
        envs.reset()
        return any(bool(outcome.ended[0]) for outcome in rows_of(envs, np.zeros((300, 1), np.int64)))

    assert ended()
    assert not ended(fire_reset=False)


def test_the_spec_describes_shape_and_dtype_of_a_row() -> None:
    spec = make_envs("ALE/Pong-v5", 2, seed=0, settings=EnvConfig(frame_skip=5)).spec
    (leaf,) = spec.observation
    assert (leaf.shape, leaf.dtype, spec.action.nvec, spec.frame_skip) == ((1, 84, 84), "uint8", (6,), 5)


@pytest.mark.parametrize("env_id", ["ALE/Pong-v5", "ale_py:ALE/Pong-v5", "PongNoFrameskip-v4"])
def test_an_id_with_its_module_prefix_is_accepted(env_id: str) -> None:
    assert make_envs(env_id, 1, seed=0).spec.frame_skip == 4


@pytest.mark.parametrize("given", [{"grayscale": True}, {"ignore_observations": ("a",)}])
def test_settings_of_other_images_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="always gives one grey image"):
        make_envs("ALE/Pong-v5", 1, seed=0, settings=EnvConfig(**given))


@pytest.mark.parametrize("given", [{"continuous": True}, {"batch_size": 1}, {"mode": 1}, {"foo": 1}])
def test_arguments_are_refused_with_those_that_are_supported(given: dict[str, Any]) -> None:
    (name,) = given
    says = f"^ALE/Pong-v5 has no argument '{name}'. Its arguments are full_action_space$"
    with pytest.raises(ConfigError, match=says):
        make_envs("ALE/Pong-v5", 2, seed=0, settings=EnvConfig(kwargs=PlainTable(given)))


def test_the_full_action_space_is_an_argument() -> None:
    settings = EnvConfig(kwargs=PlainTable({"full_action_space": True}))
    assert make_envs("ALE/Pong-v5", 1, seed=0, settings=settings).spec.action.nvec == (18,)


def test_an_unknown_game_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="ALE/Pong-v5"):
        make_envs("ALE/Ponk-v5", 1, seed=0)


def test_other_versions_of_a_game_are_created_by_gymnasium() -> None:
    """In a Python that does not know ale-py's ids yet."""
    look = 'from offbeat.envs.make import make_envs; print(make_envs("Pong-v4", 1, seed=0).spec.observation[0].shape)'
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "(210, 160, 3)"
