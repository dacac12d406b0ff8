"""One episode of a trained policy, in a window or as a video."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from offbeat.api.load import LoadedPolicy, Trained
from offbeat.config.curriculum import parameters
from offbeat.config.env import EVALUATION_STEPS, EnvConfig, family_of
from offbeat.config.trust import Code, require
from offbeat.core.errors import ConfigError, OffbeatError
from offbeat.core.types import INFO_MASK, Tree
from offbeat.envs.contract import Envs, Outcome
from offbeat.envs.limits import Limits
from offbeat.envs.make import make_envs, registered
from offbeat.envs.progress import progress_setters
from offbeat.envs.sources import make_scalar, mujoco_warnings_once

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
            if info.get(BEGINS):
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


class _Game:
    """One column of Atari as a single env. What is drawn comes from a second emulator, which is played alike."""

    def __init__(self, env_id: str, settings: EnvConfig) -> None:
        single = replace(settings, frame_stack=1)  # the policy stacks them itself
        self._make = partial(make_envs, env_id, 1, role="watch", settings=single)
        self._emulators: list[Envs] = []
        self.metadata = {"render_fps": FRAMES_PER_SECOND // (settings.completed(env_id).frame_skip or 1)}

    def reset(self, *, seed: int) -> tuple[Any, dict[str, Any]]:
        self._emulators = [self._make(seed=seed), self._make(seed=seed, kwargs=_IN_COLOUR)]
        observation, self._drawn = (_only(envs.reset()) for envs in self._emulators)
        return observation, {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play a decision, and after a lost life the reset row too: `info` then says that an episode begins."""
        outcome = self._play(action)
        reward, over, begins = outcome.reward[0], outcome.ended[0], False
        if outcome.terminated[0] and not over:
            begins, outcome = True, self._play(action)
            reward, over = reward + outcome.reward[0], outcome.ended[0]
        return _only(outcome.observation), float(reward), bool(over), False, {BEGINS: begins}

    def _play(self, action: int) -> Outcome:
        for envs in self._emulators:
            envs.send(np.array([action]))
        seen, drawn = (envs.recv() for envs in self._emulators)
        self._drawn = _only(drawn.observation)
        return seen

    def render(self) -> Any:
        return self._drawn[0].copy()

    def close(self) -> None:
        for envs in self._emulators:
            envs.close()


FRAMES_PER_SECOND = 60
"""Of the console."""
BEGINS = "begins"
_IN_COLOUR = {"img_height": 210, "img_width": 160, "grayscale": False, "maxpool": False}


def _only(leaves: Tree) -> Any:
    """Return the only leaf of the only column."""
    (leaf,) = leaves.values()
    return leaf[0].copy()


def _make(trained: Trained, render_mode: str) -> Any:
    env_id = trained.env
    if family_of(env_id):
        if render_mode == "human":
            raise ConfigError(f"{env_id} has no window here: pass --video FILE.mp4")
        return _Game(env_id, trained.env_config)
    if env_id.startswith("envpool:"):
        raise ConfigError(f"{env_id} cannot be drawn: EnvPool renders nothing; train on the Gymnasium id to watch")
    try:
        entry = registered(env_id)
        with mujoco_warnings_once(entry):
            env = make_scalar(entry, {"render_mode": render_mode}, Limits(trained.env_config.max_episode_steps))
        for set_progress in progress_setters([env], parameters(trained.env_config.curriculum), env_id):
            set_progress(1.0)  # the task as it is in the end
        return env  # noqa: TRY300 - whatever goes wrong is told alike
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
