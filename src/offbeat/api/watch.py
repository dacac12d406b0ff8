"""One episode of a trained policy, in a window or as a video."""

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


class Watched(NamedTuple):
    """An episode that was shown."""

    total: float
    """Its return."""
    length: int
    """In env steps."""
    cut: bool
    """Whether it was cut, as it had not ended by then."""


def watch(policy: LoadedPolicy, *, seed: int, video: Path | None, max_steps: int = EVALUATION_STEPS) -> Watched:
    """Play one greedy episode, and cut it after `max_steps` env steps.

    Raises:
        ConfigError: the env cannot be drawn here, or the video cannot be written.
    """
    if (
        video is None
        and sys.platform == "linux"
        and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    ):
        raise ConfigError("there is no screen to open a window on (DISPLAY is not set): pass --video FILE.mp4")
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
    return Watched(episode.total, episode.length, not episode.ended)


class _Episode:
    def __init__(self, env: Any, policy: LoadedPolicy, seed: int, max_steps: int) -> None:
        self._env, self._policy, self._seed, self._max_steps = env, policy, seed, max_steps
        self.total, self.length, self.ended = 0.0, 0, False

    def frames(self) -> Iterator[Any]:
        """Play the episode, yielding what is drawn at each env step."""
        self._policy.reset()
        observation, info = self._drawn(self._env.reset, seed=self._seed)
        yield self._drawn(self._env.render)
        while not self.ended and self.length < self._max_steps:
            action = self._chosen(observation, info)
            observation, reward, terminated, truncated, info = self._drawn(self._env.step, action)
            self.total += float(reward)
            self.length += 1
            self.ended = bool(terminated or truncated)
            if info.get(EPISODE_START):
                self._policy.reset()
            yield self._drawn(self._env.render)

    def _chosen(self, observation: Any, info: Any) -> Any:
        try:
            return self._policy(observation, action_mask=info.get(INFO_MASK))
        except ValueError as error:
            raise ConfigError(f"the policy does not fit {self._policy.trained.env} as it is here: {error}") from error

    def _drawn(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call the env: with a window open, each of its methods draws."""
        try:
            return call(*arguments, **named)
        except Exception as error:
            raise _cannot_draw(self._policy.trained.env, error) from error


def _make(trained: Trained, render_mode: str) -> Any:
    env_id = trained.env
    try:
        return adapter_of(env_id).make_renderable(env_id, trained.env_config, render_mode)
    except OffbeatError:
        raise
    except Exception as error:
        raise _cannot_draw(env_id, error) from error


def _cannot_draw(env_id: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"{env_id} cannot be drawn here ({type(error).__name__}: {error}). An env of your own needs a render_mode "
        'argument and render(); what else is missing may come with pip install "offbeat[video]"; and MuJoCo without a '
        "screen needs MUJOCO_GL=egl or MUJOCO_GL=osmesa"
    )
