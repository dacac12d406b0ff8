"""`ActionRepeat` takes several steps of a single env in each env step: the setting `frame_skip`."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym


class ActionRepeat(gym.Wrapper[Any, Any, Any, Any]):
    """Repeats each action; the rewards are summed. An episode that ends in between ends the env step."""

    def __init__(self, env: gym.Env[Any, Any], steps: int) -> None:
        """Take `steps` steps of `env` in each env step."""
        super().__init__(env)
        self.steps_per_action = steps
        fps = env.metadata.get("render_fps")
        if fps:  # one image per env step
            self.metadata = {**env.metadata, "render_fps": fps / steps}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Return the sum of the rewards; the other values are those of the last step.

        A reward that is no number is returned itself, at once, and is reported as without frame skip.
        """
        observation, total, terminated, truncated, info = self.env.step(action)
        for _ in range(self.steps_per_action - 1):
            if terminated or truncated:
                break
            observation, reward, terminated, truncated, info = self.env.step(action)
            try:
                total = total + reward  # type: ignore[operator]  # not +=, which would change an array of the env
            except TypeError:
                total = reward if isinstance(total, SupportsFloat) else total
                break
        return observation, total, terminated, truncated, info
