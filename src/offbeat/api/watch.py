"""Shows one episode of a trained policy in a window, or writes it as a video."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from offbeat.api.load import LoadedPolicy, Trained
from offbeat.config.env import EVALUATION_STEPS
from offbeat.config.trust import Code, require
from offbeat.core.errors import ConfigError, OffbeatError
from offbeat.core.types import INFO_MASK
from offbeat.envs.contract import EPISODE_START
from offbeat.envs.make import adapter_of

DEFAULT_FPS = 30


class ShownEpisode(NamedTuple):
    """The result of an episode that was shown."""

    episode_return: float
    """Undiscounted sum of rewards."""
    length: int
    """In env steps."""
    cut: bool
    """Whether the episode was cut by `max_steps`."""


def watch(policy: LoadedPolicy, *, seed: int, video: Path | None, max_steps: int = EVALUATION_STEPS) -> ShownEpisode:
    """Play one episode with the most likely actions, at most `max_steps` env steps.

    Raises:
        ConfigError: the env cannot be rendered here, or the video cannot be written.
    """
    if (
        video is None
        and sys.platform == "linux"
        and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    ):
        raise ConfigError("no window can be opened (DISPLAY is not set): pass --video FILE.mp4")
    require(Code(env=policy.trained.env), "the policy")
    env = _make(policy.trained, "human" if video is None else "rgb_array")
    episode = _Episode(env, policy, seed, max_steps)
    try:
        if video is None:
            for _ in episode.frames():
                pass
        else:
            from offbeat.plots.video import write_video

            write_video(episode.frames(), video, int(env.metadata.get("render_fps") or DEFAULT_FPS))
    finally:
        env.close()
    return ShownEpisode(episode.episode_return, episode.length, not episode.ended)


class _Episode:
    """One episode of a policy in an env."""

    def __init__(self, env: Any, policy: LoadedPolicy, seed: int, max_steps: int) -> None:
        self._env, self._policy, self._seed, self._max_steps = env, policy, seed, max_steps
        self.episode_return, self.length, self.ended = 0.0, 0, False

    def frames(self) -> Iterator[Any]:
        """Play the episode and yield the rendered frame of each env step."""
        self._policy.reset()
        observation, info = self._call(self._env.reset, seed=self._seed)
        yield self._call(self._env.render)
        while not self.ended and self.length < self._max_steps:
            action = self._action(observation, info)
            observation, reward, terminated, truncated, info = self._call(self._env.step, action)
            self.episode_return += float(reward)
            self.length += 1
            self.ended = bool(terminated or truncated)
            if info.get(EPISODE_START):
                self._policy.reset()
            yield self._call(self._env.render)

    def _action(self, observation: Any, info: Any) -> Any:
        try:
            return self._policy(observation, action_mask=info.get(INFO_MASK))
        except ValueError as error:
            raise ConfigError(
                f"the policy does not fit the installed version of {self._policy.trained.env}: {error}"
            ) from error

    def _call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a method of the env. If a window is open, each method may render, so each may fail."""
        try:
            return method(*arguments, **named)
        except Exception as error:
            raise _cannot_render(self._policy.trained.env, error) from error


def _make(trained: Trained, render_mode: str) -> Any:
    env_id = trained.env
    try:
        return adapter_of(env_id).make_renderable(env_id, trained.env_config, render_mode)
    except OffbeatError:
        raise
    except Exception as error:
        raise _cannot_render(env_id, error) from error


def _cannot_render(env_id: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"{env_id} cannot be rendered here ({type(error).__name__}: {error}). An env of your own needs a render_mode "
        'argument and render(). Missing packages may be in pip install "offbeat[video]". MuJoCo without a screen needs '
        "MUJOCO_GL=egl or MUJOCO_GL=osmesa"
    )
