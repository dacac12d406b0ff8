"""An env with large colour images, a number, and a text that no network gets."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from offbeat.envs.contract import State

SIDES = (48, 64)


class Described(gymnasium.Env[dict[str, Any], np.int64]):
    """The action is right if it names the half in which the bright square is."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Dict(
            image=gymnasium.spaces.Box(0, 255, (*SIDES, 3), np.uint8),
            mission=gymnasium.spaces.Text(40),
            speed=gymnasium.spaces.Box(-1, 1, (1,), np.float32),
        )
        self.action_space = gymnasium.spaces.Discrete(2)
        self._column, self._steps = 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._steps = 0
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        right = int(self._column >= SIDES[1] // 2)
        self._steps += 1
        return self._observation(), float(action == right), self._steps == 10, False, {}

    def _observation(self) -> dict[str, Any]:
        self._column = int(self.np_random.integers(SIDES[1] - 8))
        self._image = self.np_random.integers(0, 60, (*SIDES, 3), np.uint8)
        self._image[16:24, self._column : self._column + 8] = 255
        return {"image": self._image, "mission": "name the half", "speed": np.array([self._steps / 10], np.float32)}

    def render(self) -> Any:
        return self._image

    def snapshot(self) -> State:
        return {"column": self._column, "steps": self._steps}

    def restore(self, state: State) -> None:
        self._column, self._steps = state["column"], state["steps"]
