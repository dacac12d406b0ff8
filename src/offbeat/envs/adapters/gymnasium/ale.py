"""Atari's games, stepped by ale-py's own vector env: one background thread per group.

A row has one grey frame, of 84 x 84 pixels or of `image_size`: the maximum of the last two frames of the action repeat.
ale-py's own episodic life would start a new game after each lost life, and its clipped rewards replace the raw ones.
Both are turned off: episodic life is implemented here, and the actor clips the rewards. There are no snapshots, because
the state of the games cannot be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec as RegisteredEnv
from numpy.typing import NDArray

from offbeat.config.env import EnvConfig, family_of
from offbeat.core.constructor_arguments import unknown_argument
from offbeat.core.errors import ConfigError
from offbeat.core.seeding import derive_seed
from offbeat.core.types import Array, Tree
from offbeat.envs.adapters.grouped import GroupedEnvs
from offbeat.envs.contract import EPISODE_START, EnvRequest, Envs, Limits, Outcome
from offbeat.envs.infos import vector_info_reader
from offbeat.envs.observations import observation_leaves
from offbeat.envs.registration import registry_entry
from offbeat.envs.rows import empty_rows, mark_reset_rows, rows_of
from offbeat.envs.spaces import action_spec

SCREEN = (84, 84)
"""Height and width in pixels, without `image_size`."""
_COLOR = {"img_height": 210, "img_width": 160, "grayscale": False, "maxpool": False}
"""Arguments of ale-py's vector env for images that are rendered."""
ALL_ACTIONS = "full_action_space"
"""The one argument of ale-py's vector env that `kwargs` may have: [env] determines the others, or they must be the
defaults."""


class Games:
    """The columns of one group. A reset row follows each game over, as in ale-py's NEXT_STEP order."""

    def __init__(self, envs: Any, rows: Outcome, names: Sequence[str], seeds: Sequence[int]) -> None:
        """Step ale-py's `envs`, write into `rows`, and read the infos' values under `names`.

        The first `reset` passes the `seeds` of the columns; later ones continue their streams.
        """
        self._envs = envs
        self._rows = rows
        self._seeds: NDArray[np.int_] | None = np.array(seeds)
        (self._observation,) = rows.observation.values()
        self._read_info = vector_info_reader(names, rows.info)

    def reset(self) -> Mapping[str, Array]:
        """Start new games and return ale-py's infos."""
        rows = self._rows
        rows.terminated[:] = rows.truncated[:] = False
        self._observation[...], info = self._envs.reset(seed=self._seeds)
        self._seeds = None
        return info  # type: ignore[no-any-return]

    def send(self, actions: Array) -> None:
        self._envs.send(actions.astype(np.int64))

    def recv(self) -> Outcome:
        rows = self._rows
        mark_reset_rows(rows)
        self._observation[...], rows.reward[:], rows.terminated[:], rows.truncated[:], info = self._envs.recv()
        self._read_info(rows.valid, info)
        return rows

    def close(self) -> None:
        """End the threads, which belong to ale-py's envs."""
        self._envs = None


class GamesWithLives(Games):
    """Games in which a lost life ends an episode (episodic life).

    The next row is a reset row, in which the game continues with the action `fire`, whatever the policy chose. If the
    game ends in that row, a second reset row follows.
    """

    def __init__(self, envs: Any, rows: Outcome, names: Sequence[str], seeds: Sequence[int], fire: int) -> None:
        super().__init__(envs, rows, names, seeds)
        self._fire = fire
        self._lost: NDArray[np.bool_] = np.zeros(len(rows.reward), np.bool_)
        """[n]: where the last row lost a life and the game continues."""
        self._lives: Array = np.zeros(len(rows.reward), np.int32)

    def reset(self) -> Mapping[str, Array]:
        info = super().reset()
        self._over[:] = self._lost[:] = False
        self._lives = info["lives"]
        return info

    @property
    def _over(self) -> NDArray[np.bool_]:
        assert self._rows.over is not None
        return self._rows.over

    def send(self, actions: Array) -> None:
        super().send(np.where(self._lost, self._fire, actions))

    def recv(self) -> Outcome:
        rows = self._rows
        rows.valid[:] = ~(self._over | self._lost)
        self._observation[...], rows.reward[:], over, truncated, info = self._envs.recv()
        np.logical_or(over, truncated, self._over)
        lives = info["lives"]
        # In some games the number of lives is 0 for a moment while the game continues.
        self._lost = (lives < self._lives) & (lives > 0) & rows.valid & ~self._over
        self._lives = lives
        rows.terminated[:] = (over & rows.valid) | self._lost
        np.logical_and(truncated, rows.valid, rows.truncated)
        self._read_info(rows.valid, info)
        return rows


def is_atari(entry: RegisteredEnv, env_id: str) -> bool:
    """Whether an env is a game of ale-py with an id whose protocol is known (see `offbeat.config.env.FAMILIES`)."""
    return family_of(env_id) is not None and str(entry.entry_point).startswith("ale_py.")


def make_atari(request: EnvRequest, registered: RegisteredEnv, screen: Mapping[str, Any] | None = None) -> Envs:
    """Make the envs of one actor.

    Args:
        request: Its `kwargs` may have `full_action_space`. `max_frames` is another limit, in frames.
        registered: The entry in Gymnasium's registry, which names the game.
        screen: The arguments of the vector env for the images. None: those that a policy gets.
    """
    request.refuse_curriculum()
    settings, groups, limits = request.settings, request.groups, request.limits
    if settings.grayscale or settings.ignore_observations:
        raise ConfigError(
            f"grayscale and ignore_observations are not supported by {request.env_id}, which always gives one grey "
            "image: omit them"
        )
    screen = _gray(settings) if screen is None else screen
    arguments = request.constructor_arguments({**_arguments(registered, settings), **screen})
    for name in request.kwargs:
        if name != ALL_ACTIONS:
            raise unknown_argument(request.env_id, name, (ALL_ACTIONS,))
    arguments.setdefault(ALL_ACTIONS, registered.kwargs.get(ALL_ACTIONS, False))
    frame_skip = arguments["frameskip"]
    frames = arguments["max_num_frames_per_episode"]
    own_limit = -(-frames // frame_skip)  # the step that reaches the limit is the last one
    if (limit := limits.shorter_than(own_limit)) is not None:
        arguments["max_num_frames_per_episode"] = limit * frame_skip
    made = [_vector_env(group.stop - group.start, arguments) for group in groups]
    action = action_spec(made[0].single_action_space, request.env_id)
    observation = observation_leaves(made[0].single_observation_space, request.env_id, action)
    spec = limits.spec_with_limits(request.spec_of(observation, action, settings.action_repeats), own_limit)
    rows = empty_rows(spec.observation, spec.columns, spec.info)
    if settings.episodic_life:
        rows = rows._replace(over=np.zeros(spec.columns, np.bool_))
    fire = _fire_action(made[0]) if settings.fire_reset else 0
    games = [
        GamesWithLives(envs, rows_of(rows, group), spec.info, request.seeds[group], fire)
        if settings.episodic_life
        else Games(envs, rows_of(rows, group), spec.info, request.seeds[group])
        for envs, group in zip(made, groups, strict=True)
    ]
    return GroupedEnvs(spec, groups, rows, games)


def _arguments(registered: RegisteredEnv, settings: EnvConfig) -> dict[str, Any]:
    """Return the arguments of ale-py's vector env. All that affect the rows are set, so its defaults do not matter."""
    assert settings.noop_max is not None
    return {
        "game": registered.kwargs["game"],
        "frameskip": settings.frame_skip,
        "repeat_action_probability": settings.repeat_action_probability,
        "noop_max": settings.noop_max + 1,  # ale-py samples a number below this
        "use_fire_reset": settings.fire_reset,
        "max_num_frames_per_episode": settings.max_frames,
        "stack_num": 1,
        "episodic_life": False,
        "life_loss_info": False,
        "reward_clipping": False,
    }


def _gray(settings: EnvConfig) -> dict[str, Any]:
    """Return the arguments of ale-py's vector env for the images that a policy gets."""
    height, width = settings.image_sides or SCREEN
    return {"img_height": height, "img_width": width, "grayscale": True, "maxpool": True}


def _vector_env(columns: int, arguments: Mapping[str, Any]) -> Any:
    from ale_py.vector_env import AtariVectorEnv
    from gymnasium.vector import AutoresetMode

    return AtariVectorEnv(num_envs=columns, num_threads=1, autoreset_mode=AutoresetMode.NEXT_STEP, **arguments)


def _fire_action(envs: Any) -> int:
    """Return the index of the action FIRE; in games without it, of the action that does nothing."""
    names = [action.name for action in envs.ale.get_action_set()]
    return names.index("FIRE") if "FIRE" in names else 0


# --- rendering ----------------------------------------------------------------------------------------------

FRAMES_PER_SECOND = 60
"""Frame rate of the Atari console."""


class RenderedGame:
    """One game as a single env to render. A second emulator, in color, gets the same seed and the same actions."""

    def __init__(self, env_id: str, settings: EnvConfig, render_mode: str) -> None:
        """Prepare a game; `reset` starts it.

        Raises:
            ConfigError: the render mode is 'human'.
        """
        if render_mode == "human":
            raise ConfigError(f"{env_id} cannot be shown in a window: pass --video FILE.mp4")
        self._env_id = env_id
        self._settings = replace(settings, frame_stack=1).completed(env_id)  # the policy stacks the frames itself
        self._emulators: list[Envs] = []
        self.metadata = {"render_fps": FRAMES_PER_SECOND // self._settings.action_repeats}

    def _make(self, seed: int, screen: Mapping[str, Any] | None = None) -> Envs:
        seeds, limits = (derive_seed(seed, "watch", 0, 0, 0),), Limits(self._settings.max_episode_steps)
        request = EnvRequest(self._env_id, (slice(0, 1),), seeds, self._settings, limits)
        return make_atari(request, registry_entry(self._env_id), screen)

    def reset(self, *, seed: int) -> tuple[Any, dict[str, Any]]:
        self.close()
        self._emulators = [self._make(seed), self._make(seed, _COLOR)]
        observation, self._frame = (_only(envs.reset()) for envs in self._emulators)
        return observation, {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play one decision, and after a lost life the reset row too. `info[EPISODE_START]` is then True."""
        outcome = self._play(action)
        reward, over, starts = outcome.reward[0], outcome.ended[0], False
        if outcome.terminated[0] and not over:
            starts, outcome = True, self._play(action)
            reward, over = reward + outcome.reward[0], outcome.ended[0]
        return _only(outcome.observation), float(reward), bool(over), False, {EPISODE_START: starts}

    def _play(self, action: int) -> Outcome:
        for envs in self._emulators:
            envs.send(np.array([action]))
        outcome, in_color = (envs.recv() for envs in self._emulators)
        self._frame = _only(in_color.observation)
        return outcome

    def render(self) -> Any:
        return self._frame[0].copy()

    def close(self) -> None:
        for envs in self._emulators:
            envs.close()


def _only(leaves: Tree) -> Any:
    """Return the only leaf of the only column."""
    (leaf,) = leaves.values()
    return leaf[0].copy()
