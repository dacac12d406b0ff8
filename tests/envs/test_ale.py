"""Atari's rows against the emulator itself, stepped frame by frame."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from offbeat.env_config import EnvConfig
from offbeat.envs import ale
from offbeat.envs.contract import Envs, Outcome
from offbeat.envs.make import make_envs
from offbeat.seeding import derive_seed, stream

if find_spec("ale_py") is None:
    pytest.skip("needs ale-py", allow_module_level=True)

from tests.reference.slow_atari import SlowGame

COLUMNS, SEED = 3, 5
GAMES = {"Pong": "pong", "Breakout": "breakout", "SpaceInvaders": "space_invaders", "Freeway": "freeway"}


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
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
        ("PongNoFrameskip-v4", {}, 250),
        ("ALE/Pong-v5", {}, 250),
        ("BreakoutNoFrameskip-v4", {}, 300),
        ("ALE/Breakout-v5", {}, 300),
        ("ALE/Breakout-v5", {"episodic_life": True}, 200),
        ("SpaceInvadersNoFrameskip-v4", {"repeat_action_probability": 0.5}, 400),
        ("SpaceInvadersNoFrameskip-v4", {"episodic_life": False, "frame_skip": 3}, 400),
        ("FreewayNoFrameskip-v4", {"max_frames": 90}, 60),
        ("BreakoutNoFrameskip-v4", {"max_frames": 130, "frame_skip": 2}, 150),
    ],
)
def test_rows_are_those_of_the_emulator_stepped_frame_by_frame(
    begun: list[Any], env_id: str, given: dict[str, Any], rows: int
) -> None:
    settings = EnvConfig(**given)
    envs = make_envs(env_id, COLUMNS, seed=SEED, settings=settings)
    full = settings.completed(env_id)
    name = env_id.removeprefix("ALE/").removesuffix("-v5").removesuffix("NoFrameskip-v4")
    slow = [SlowGame(GAMES[name], derive_seed(SEED, "env", 0, 0, column), full) for column in range(COLUMNS)]
    seen = envs.reset()["observation"]
    for column, game in enumerate(slow):
        np.testing.assert_allclose(seen[column, 0], game.begin(begun[0][column]), atol=1)
    actions = stream(0, "test").integers(envs.spec.action.nvec[0], size=(rows, COLUMNS))
    starts, ends = [*begun[0].tolist()], 0
    for number, outcome in enumerate(rows_of(envs, actions)):
        for column, game in enumerate(slow):
            frames = int(begun[-1][column])
            starts += [frames] * game.over
            row = game.row(int(actions[number, column]), frames)
            expected = row.pop("observation")
            assert {key: getattr(outcome, key)[column] for key in row} == row, (number, column)
            assert outcome.ended[column] == game.over
            ends += game.over
            if expected is not None:
                np.testing.assert_allclose(outcome.observation["observation"][column, 0], expected, atol=1)
    assert ends > 0 or name == "Pong"
    noops = full.noop_max or 0
    assert min(starts) >= int(full.fire_reset and name != "Freeway")
    assert max(starts) <= noops
    assert not noops or len(set(starts)) > 2
    envs.close()
