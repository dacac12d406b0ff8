"""Shows one episode of the policies of a run, or one trial in a new task, in a window, or writes it as a video."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from offbeat.api.playing.loaded_policy import LoadedPolicy
from offbeat.api.playing.policies_to_play import GivenEnv, GivenPolicies, policies_to_play, trained_of
from offbeat.api.playing.shown_episodes import EnvEpisode, TrialEpisodes, WorldEpisode, cannot_render
from offbeat.api.playing.trained import Trained
from offbeat.config.arguments import checked
from offbeat.config.env import MAX_EPISODE_STEPS
from offbeat.config.trust import require
from offbeat.core.closing import close_or_warn, closed_or_warn
from offbeat.core.errors import FAILURES, ConfigError, OffbeatError, require_at_least
from offbeat.core.files import GivenPath, user_path
from offbeat.core.process.caller_state import VIDEO_DRIVER, caller_state
from offbeat.envs.make import single_agent_adapter
from offbeat.envs.worlds.make import make_renderable_world
from offbeat.run_directory.store import LATEST

DEFAULT_FPS = 30


class ShownEpisode(NamedTuple):
    """The result of an episode that was shown."""

    returns: Mapping[str, float]
    """Undiscounted sum of the rewards of each agent, by its name; in an env with one agent, by the name of the policy.
    """
    length: int
    """In env steps."""
    cut: bool
    """Whether the episode was cut by `max_steps`."""
    earlier_returns: Sequence[float] = ()
    """In a trial in a new task: the returns of the episodes before. The other numbers are those of the last episode,
    except for `length`, which is that of all."""


@checked
def watch(
    run: GivenPolicies,
    env: GivenEnv | None = None,
    *,
    video: GivenPath | None = None,
    seed: int = 0,
    checkpoint: str = LATEST,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[str | type[Any]] | None = None,
    max_steps: int = MAX_EPISODE_STEPS,
    trust_code: bool = False,
) -> ShownEpisode:
    """Show one episode with the most likely actions in a window, or write it as a video; with tasks, one trial.

    Args:
        run: as for `evaluate`. In a world with several agents, each policy acts for its own.
        env: as for `evaluate`.
        video: an .mp4 or .gif file to write; None: a window is opened.
        seed: seed of the env; with tasks, also the number of the test task.
        checkpoint: as for `evaluate`.
        env_kwargs: as for `evaluate`.
        wrappers: as for `evaluate`.
        max_steps: env steps after which the episode is cut.
        trust_code: as for `load`.

    Raises:
        ConfigError: the env cannot be rendered here, or the video cannot be written; or as `evaluate`.
        EnvFailed: the env raised an exception.
    """
    require_at_least("max_steps", max_steps, 1)
    require_at_least("seed", seed, 0)
    with caller_state() as caller:
        policies = policies_to_play(
            run, env, checkpoint=checkpoint, env_kwargs=env_kwargs, wrappers=wrappers, trust_code=trust_code
        )
        caller.save_library_settings()
        return _show(policies, seed, None if video is None else user_path(video), max_steps)


def _show(policies: Mapping[str, LoadedPolicy], seed: int, video: Path | None, max_steps: int) -> ShownEpisode:
    """Play one episode of all policies of a run."""
    trained = trained_of(policies)
    require(trained.env_code, "the policy")
    if _no_screen():
        os.environ.setdefault(VIDEO_DRIVER, "dummy")  # else SDL looks for a screen, and prints what it lacks
        if video is None:  # an env without pictures is refused first: a video is no remedy for it
            close_or_warn(_make(trained, "rgb_array"), trained.env)
            raise ConfigError("no window can be opened (DISPLAY is not set): pass --video FILE.mp4")
    env = _make(trained, "human" if video is None else "rgb_array")
    with closed_or_warn(env, trained.env):
        one_agent = EnvEpisode if trained.trials is None else TrialEpisodes
        kind: type[EnvEpisode | WorldEpisode] = WorldEpisode if trained.agents else one_agent
        episode = kind(env, policies, seed, max_steps, in_window=video is None)
        if video is None:
            for _ in episode.frames():
                pass
        else:
            from offbeat.plots.video import write_video

            metadata = getattr(env.env if trained.agents else env, "metadata", {})
            fps = max(1, int(metadata.get("render_fps") or DEFAULT_FPS))  # an env may have less than a step per second
            write_video(episode.frames(), video, fps)
    return ShownEpisode(episode.returns, episode.length, not episode.ended, episode.earlier_returns)


def _no_screen() -> bool:
    return sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _make(trained: Trained, render_mode: str) -> Any:
    """Make the env of a policy: a Gymnasium env, or a `World`."""
    env_id = trained.env
    try:
        if trained.agents:
            return make_renderable_world(env_id, trained.env_config, render_mode)
        return single_agent_adapter(env_id).make_renderable(env_id, trained.env_config, render_mode)
    except OffbeatError:
        raise
    except FAILURES as error:
        raise cannot_render(env_id, error) from error
