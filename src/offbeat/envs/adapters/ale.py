"""Atari's games through ale-py's own vector env, which steps each group in a thread of its own.

One row is one frame of 84 x 84 grey pixels, the brighter of the last two of those that a decision lasts. ale-py would
begin a new game after a lost life, and pays clipped rewards without the raw ones; so both are asked of it plainly, and
what is learned from is made here and in the actor. The state of its games cannot be read: no snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec as RegisteredEnv
from numpy.typing import NDArray

from offbeat.config.env import EnvConfig, family_of
from offbeat.core.types import Array, EnvSpec, Tree
from offbeat.envs.advancing import Part, walk
from offbeat.envs.contract import Advanced, Envs, Outcome
from offbeat.envs.infos import numbers_reader
from offbeat.envs.limits import Limits
from offbeat.envs.rows import empty_rows, mark_reset_rows, rows_of
from offbeat.envs.spaces import action_spec, observation_leaves

SCREEN = 84
"""Pixels of a side."""


class Games:
    """The columns of one group. A game over is followed by its reset row, as in ale-py's NEXT_STEP order."""

    def __init__(self, envs: Any, rows: Outcome, names: Sequence[str]) -> None:
        """Step `envs`, write into `rows`, and read `names` of the infos."""
        self._envs = envs
        self._rows = rows
        (self._observation,) = rows.observation.values()
        self._read_info = numbers_reader(names, rows.info) if names else None

    def reset(self, seeds: Sequence[int] | None) -> Mapping[str, Array]:
        """Begin new games: the first time from the seeds, [n], then on from there. Return ale-py's infos."""
        rows = self._rows
        rows.terminated[:] = rows.truncated[:] = False
        self._observation[...], info = self._envs.reset(seed=None if seeds is None else np.array(seeds))
        return info  # type: ignore[no-any-return]

    def send(self, actions: Array) -> None:
        self._envs.send(actions.astype(np.int64))

    def recv(self) -> Outcome:
        rows = self._rows
        mark_reset_rows(rows)
        self._observation[...], rows.reward[:], rows.terminated[:], rows.truncated[:], info = self._envs.recv()
        if self._read_info is not None:
            self._read_info(rows.valid, info)
        return rows

    def step(self, actions: Array) -> Outcome:
        self.send(actions)
        return self.recv()


class Lives(Games):
    """Games in which a lost life ends the episode that is learned from.

    In the row after it, a reset row, the game goes on with `press` whatever the policy chose. Should the game end
    right there, its own reset row is another one.
    """

    def __init__(self, envs: Any, rows: Outcome, names: Sequence[str], press: int) -> None:
        super().__init__(envs, rows, names)
        self._press = press
        self._lost: NDArray[np.bool_] = np.zeros(len(rows.reward), np.bool_)
        """[n]: where the last row lost a life, and the game goes on."""
        self._lives: Array = np.zeros(len(rows.reward), np.int32)

    def reset(self, seeds: Sequence[int] | None) -> Mapping[str, Array]:
        info = super().reset(seeds)
        self._over[:] = self._lost[:] = False
        self._lives = info["lives"]
        return info

    @property
    def _over(self) -> NDArray[np.bool_]:
        assert self._rows.over is not None
        return self._rows.over

    def send(self, actions: Array) -> None:
        super().send(np.where(self._lost, self._press, actions))

    def recv(self) -> Outcome:
        rows = self._rows
        np.logical_or(self._over, self._lost, rows.valid)
        np.logical_not(rows.valid, rows.valid)
        self._observation[...], rows.reward[:], over, truncated, info = self._envs.recv()
        np.logical_or(over, truncated, self._over)
        lives = info["lives"]
        # Some games show no lives for a moment while they go on.
        self._lost = (lives < self._lives) & (lives > 0) & rows.valid & ~self._over
        self._lives = lives
        rows.terminated[:] = (over & rows.valid) | self._lost
        np.logical_and(truncated, rows.valid, rows.truncated)
        if self._read_info is not None:
            self._read_info(rows.valid, info)
        return rows


class AtariEnvs:
    """The columns of one actor; groups step while others are used."""

    def __init__(
        self, spec: EnvSpec, groups: Sequence[slice], rows: Outcome, games: Sequence[Games], seeds: Sequence[int]
    ) -> None:
        self.spec = spec
        self.groups = tuple(groups)
        self._rows = rows
        self._games = games
        self._seeds: Sequence[int] | None = seeds

    def set_progress(self, progress: float) -> None:
        """Do nothing: games do not listen."""

    def reset(self) -> Tree:
        """Begin a new game in every column: the first time from the seeds, then on from there."""
        for group, games in zip(self.groups, self._games, strict=True):
            games.reset(None if self._seeds is None else self._seeds[group])
        self._seeds = None
        return self._rows.observation

    def advance(
        self, steps: NDArray[np.int64], random: np.random.Generator, before_step: Callable[[], None] = lambda: None
    ) -> Advanced:
        """Step each group as often as the largest of its columns' `steps`."""
        observation = self._rows.observation
        parts = [Part(group, games.step) for group, games in zip(self.groups, self._games, strict=True)]
        return Advanced(observation, *walk(self.spec, observation, parts, steps, random, before_step))

    def send(self, actions: Array, group: int = 0) -> None:
        """Let the group's games begin to step; returns at once."""
        self._games[group].send(actions)

    def recv(self, group: int = 0) -> Outcome:
        """Wait for the group's games; the arrays are the same ones every time."""
        return self._games[group].recv()

    def close(self) -> None:
        """End the threads, which live as long as the games."""
        self._games = ()


def register() -> None:
    """Let Gymnasium know ale-py's games, where it is installed: importing it registers them."""
    if find_spec("ale_py") is not None:
        import_module("ale_py")


def is_atari(entry: RegisteredEnv, env_id: str) -> bool:
    """Whether an env is one of ale-py's games in a protocol that is known here."""
    return family_of(env_id) is not None and str(entry.entry_point).startswith("ale_py.")


def make_atari(
    env_id: str,
    registered: RegisteredEnv,
    groups: Sequence[slice],
    seeds: Sequence[int],
    settings: EnvConfig,
    limits: Limits,
    kwargs: Mapping[str, Any],
) -> Envs:
    """Make the envs of one actor.

    Args:
        env_id: what the user typed, for messages.
        registered: its entry in Gymnasium's registry, which names the game.
        groups: the columns of each group.
        seeds: one a column.
        settings: all of them given, see `EnvConfig.completed`.
        limits: after how many env steps games are truncated, where `max_frames` allow more.
        kwargs: for ale-py's vector env.
    """
    arguments = {**_arguments(registered, settings), **kwargs}
    frame_skip = arguments["frameskip"]
    own = -(-arguments["max_num_frames_per_episode"] // frame_skip)  # the step that reaches them is the last
    if (wanted := limits.shorter_than(own)) is not None:
        arguments["max_num_frames_per_episode"] = wanted * frame_skip
    made = [_vector_env(group.stop - group.start, arguments) for group in groups]
    action = action_spec(made[0].single_action_space, env_id)
    spec = EnvSpec(
        id=env_id,
        observation=observation_leaves(made[0].single_observation_space, env_id, action),
        action=action,
        columns=len(seeds),
        frame_skip=settings.frame_skip or 1,
        info=settings.info_metrics,
    )
    spec = limits.recorded(spec, own)
    rows = empty_rows(spec.observation, spec.columns, spec.info)
    if settings.episodic_life:
        rows = rows._replace(over=np.zeros(spec.columns, np.bool_))
    press = _fire(made[0]) if settings.fire_reset else 0
    games = [
        Lives(envs, rows_of(rows, group), spec.info, press)
        if settings.episodic_life
        else Games(envs, rows_of(rows, group), spec.info)
        for envs, group in zip(made, groups, strict=True)
    ]
    return AtariEnvs(spec, groups, rows, games, seeds)


def _arguments(registered: RegisteredEnv, settings: EnvConfig) -> dict[str, Any]:
    """Return what ale-py's vector env is asked for, nothing left to its defaults that matters."""
    assert settings.noop_max is not None
    return {
        "game": registered.kwargs["game"],
        "full_action_space": registered.kwargs.get("full_action_space", False),
        "frameskip": settings.frame_skip,
        "repeat_action_probability": settings.repeat_action_probability,
        "noop_max": settings.noop_max + 1,  # it draws from numbers below this
        "use_fire_reset": settings.fire_reset,
        "max_num_frames_per_episode": settings.max_frames,
        "img_height": SCREEN,
        "img_width": SCREEN,
        "grayscale": True,
        "stack_num": 1,
        "maxpool": True,
        "episodic_life": False,
        "life_loss_info": False,
        "reward_clipping": False,
    }


def _vector_env(columns: int, arguments: Mapping[str, Any]) -> Any:
    from ale_py.vector_env import AtariVectorEnv
    from gymnasium.vector import AutoresetMode

    return AtariVectorEnv(num_envs=columns, num_threads=1, autoreset_mode=AutoresetMode.NEXT_STEP, **arguments)


def _fire(envs: Any) -> int:
    """Return the number of the action that presses FIRE, or does nothing in games without."""
    names = [action.name for action in envs.ale.get_action_set()]
    return names.index("FIRE") if "FIRE" in names else 0
