"""One episode of a trained policy, in a window or as a video."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium

from offbeat.curriculum import parameters
from offbeat.envs.gymnasium import make_scalar, mujoco_warnings_once
from offbeat.envs.make import registered
from offbeat.envs.telling import tellers
from offbeat.errors import ConfigError, OffbeatError
from offbeat.loading import LoadedPolicy
from offbeat.types import INFO_MASK

DEFAULT_FPS = 30


def watch(policy: LoadedPolicy, *, seed: int, video: Path | None) -> tuple[float, int]:
    """Play one greedy episode; return its return and its length in env steps.

    Raises:
        ConfigError: the env cannot be drawn here, or the video cannot be written.
    """
    if (
        video is None
        and sys.platform == "linux"
        and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    ):
        raise ConfigError("there is no screen to open a window on (DISPLAY is not set): type --video FILE.mp4")
    env = _make(policy.trained.env, "human" if video is None else "rgb_array")
    for tell in tellers([env], parameters(policy.trained.env_config.curriculum), policy.trained.env):
        tell(1.0)
    episode = _Episode(env, policy, seed)
    try:
        if video is None:
            for _ in episode.frames():
                pass
        else:
            from offbeat.plots.video import write_video

            write_video(episode.frames(), video, int(env.metadata.get("render_fps") or DEFAULT_FPS))
    finally:
        env.close()
    return episode.total, episode.length


class _Episode:
    def __init__(self, env: gymnasium.Env[Any, Any], policy: LoadedPolicy, seed: int) -> None:
        self._env, self._policy, self._seed = env, policy, seed
        self.total, self.length = 0.0, 0

    def frames(self) -> Iterator[Any]:
        """Play the episode, yielding what is drawn at each env step."""
        self._policy.begin()
        observation, info = self._drawn(self._env.reset, seed=self._seed)
        ended = False
        yield self._drawn(self._env.render)
        while not ended:
            action = self._policy(observation, action_mask=info.get(INFO_MASK))
            observation, reward, terminated, truncated, info = self._drawn(self._env.step, action)
            self.total += float(reward)
            self.length += 1
            ended = bool(terminated or truncated)
            yield self._drawn(self._env.render)

    def _drawn(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call the env: with a window open, each of its methods draws."""
        try:
            return call(*arguments, **named)
        except Exception as error:
            raise _cannot_draw(self._policy.trained.env, error) from error


def _make(env_id: str, render_mode: str) -> gymnasium.Env[Any, Any]:
    if env_id.startswith("envpool:"):
        raise ConfigError(f"{env_id} cannot be drawn: EnvPool renders nothing; train on the Gymnasium id to watch")
    try:
        entry = registered(env_id)
        with mujoco_warnings_once(entry):
            return make_scalar(entry, {"render_mode": render_mode})
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
