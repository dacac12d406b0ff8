"""EnvPool's compiled envs, ids 'envpool:ID': one pool a group, so that one group steps while another is used.

A pool reports a failure on the last step that its time limit allows as a truncation: it cannot tell. It takes
the seeds of its columns when it is made, and its state cannot be read: no snapshots. Of its envs, Atari's games know
the settings of [env]; after a lost life their game goes on, and their rewards are raw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offbeat.config.env import ATARI_ONLY, ENVPOOL, EnvConfig, unsupported
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.types import Array, EnvSpec, Tree
from offbeat.envs.advancing import Part, walk
from offbeat.envs.contract import Advanced, Envs, Outcome
from offbeat.envs.encoding import action_encoder
from offbeat.envs.infos import numbers_reader
from offbeat.envs.limits import NO_LIMITS, Limits
from offbeat.envs.rows import (
    FiniteCheck,
    MaskCheck,
    copy_exactly,
    empty_rows,
    failed,
    let_termination_win,
    mark_reset_rows,
    observation_writer,
    require_choices,
    require_finite,
    rows_of,
)
from offbeat.envs.spaces import action_spec, observation_leaves


class Pool:
    """The columns of one group, in synchronous order: a batch is always the whole pool."""

    def __init__(self, spec: EnvSpec, pool: Any, rows: Outcome, first: int, limit: int | None = None) -> None:
        self.envs = pool
        self._limit = limit
        self._id = spec.id
        self._rows = rows
        self._first = first
        self._encode = action_encoder(spec.action)
        self._store = observation_writer(pool.observation_space, spec.observation, list(rows.observation.values()))
        self._check = FiniteCheck(rows)
        self._mask_check = MaskCheck(rows, spec.mask, spec.action.nvec) if spec.mask else None
        self._read_info = numbers_reader(spec.info, rows.info) if spec.info else None

    def reset(self) -> None:
        self._rows.terminated[:] = self._rows.truncated[:] = False
        observation, _ = self.envs.reset()
        self._write(observation)

    def send(self, actions: Array) -> None:
        self.envs.send(self._encode(actions))

    def recv(self) -> Outcome:
        rows = self._rows
        mark_reset_rows(rows)
        observation, *parts, info = self.envs.recv()
        for target, part in zip((rows.reward, rows.terminated, rows.truncated), parts, strict=True):
            copy_exactly(target, part)
        let_termination_win(rows)
        if rows.over is not None:
            np.logical_or(info["terminated"], rows.truncated, rows.over)
        self._write(observation, info)
        if self._limit is not None:
            self._require_limit(info["elapsed_step"])
        return rows

    def _require_limit(self, elapsed: Array) -> None:
        """Refuse a pool that goes on beyond the limit that it was given: some that have one take no other."""
        assert self._limit is not None
        beyond = (elapsed >= self._limit) & ~(self._rows.terminated | self._rows.truncated)
        if beyond.any():
            raise failed(self._id, self._first + int(beyond.argmax()), _unknown_limit(self._id, self._limit))

    def step(self, actions: Array) -> Outcome:
        self.send(actions)
        return self.recv()

    def _write(self, observation: Any, info: Any = None) -> None:
        try:
            self._store(observation)
            if info is not None and self._read_info is not None:
                self._read_info(self._rows.valid, info)
        except (ValueError, KeyError) as error:
            raise failed(self._id, self._first, f"the pool that begins here gave {error}") from error
        require_finite(self._check, self._id, self._first)
        require_choices(self._mask_check, self._id, self._first)


class EnvPoolEnvs:
    """The columns of one actor; call `recv` from one thread only."""

    def __init__(
        self,
        spec: EnvSpec,
        groups: Sequence[slice],
        pools: Sequence[Any],
        *,
        episodic_life: bool = False,
        limit: int | None = None,
    ) -> None:
        """Step `pools`, one a group, which were given `limit`, if it is not their own."""
        self.spec = spec
        self.groups = tuple(groups)
        self._rows = empty_rows(spec.observation, spec.columns, spec.info)
        if episodic_life:
            self._rows = self._rows._replace(over=np.zeros(spec.columns, np.bool_))
        self._pools = [
            Pool(spec, pool, rows_of(self._rows, group), group.start, limit)
            for pool, group in zip(pools, groups, strict=True)
        ]

    def set_progress(self, progress: float) -> None:
        """Do nothing: a pool does not listen."""

    def reset(self) -> Tree:
        """Begin a new episode in every column."""
        for pool in self._pools:
            pool.reset()
        return self._rows.observation

    def advance(
        self, steps: NDArray[np.int64], random: np.random.Generator, before_step: Callable[[], None] = lambda: None
    ) -> Advanced:
        """Step each pool as often as the largest of its columns' `steps`."""
        parts = [Part(group, pool.step) for group, pool in zip(self.groups, self._pools, strict=True)]
        return Advanced(
            self._rows.observation, *walk(self.spec, self._rows.observation, parts, steps, random, before_step)
        )

    def send(self, actions: Array, group: int = 0) -> None:
        """Let the group's pool begin to step; returns at once."""
        self._pools[group].send(actions)

    def recv(self, group: int = 0) -> Outcome:
        """Wait for the group's pool; the arrays are the same ones every time.

        Raises:
            EnvFailed: an observation or a reward is NaN or has a wrong shape.
        """
        return self._pools[group].recv()

    def close(self) -> None:
        for pool in self._pools:
            pool.envs.close()


def ids() -> list[str]:
    """Return EnvPool's ids without the prefix; none where it is not installed."""
    return sorted(_envpool().list_all_envs()) if find_spec("envpool") else []


def make_envpool(
    env_id: str,
    name: str,
    groups: Sequence[slice],
    seeds: Sequence[int],
    settings: EnvConfig,
    limits: Limits,
    kwargs: Mapping[str, Any],
) -> Envs:
    """Make the envs of one actor.

    Raises:
        ConfigError: EnvPool is not installed, has no such env, its spaces are not supported, or a setting is not
            supported by it.
    """
    if find_spec("envpool") is None:
        raise ConfigError(f'{env_id} needs envpool, which is not installed: run pip install "offbeat[envpool]"')
    if name not in ids():
        raise unknown("env", env_id, [f"envpool:{known}" for known in ids()], "`offbeat list envs` shows them.")
    config = _envpool().make_spec(name).config
    arguments = {**_arguments(env_id, config, settings), **kwargs}
    own, limits = _own_limit(env_id, arguments.get("max_episode_steps", config.max_episode_steps), limits)
    if (wanted := limits.shorter_than(own)) is not None:
        arguments["max_episode_steps"] = wanted
    pools = [
        _envpool().make_gymnasium(name, num_envs=group.stop - group.start, seed=list(seeds[group]), **arguments)
        for group in groups
    ]
    action = action_spec(pools[0].action_space, env_id)
    spec = EnvSpec(
        id=env_id,
        observation=observation_leaves(pools[0].observation_space, env_id, action),
        action=action,
        columns=len(seeds),
        frame_skip=int(getattr(pools[0].spec.config, "frame_skip", 1)),
        info=settings.info_metrics,
    )
    spec = limits.recorded(spec, own)
    return EnvPoolEnvs(spec, groups, pools, episodic_life=bool(settings.episodic_life), limit=wanted)


_UNLIMITED = 2**31 - 1
"""What EnvPool says of envs that know no limit."""
_BY_LEVEL = 0
"""What it says of envs of which each level has a limit of its own, and takes another."""


def _own_limit(env_id: str, steps: int, limits: Limits) -> tuple[int | None, Limits]:
    """Return the limit that a pool has of its own, None where it is not known, and those that it can be given.

    An env that knows none plays on beyond the one that it is given, and reports a failure after it as a truncation.

    Raises:
        ConfigError: it cannot be given the limit of the run.
    """
    if steps < _UNLIMITED:
        return None if steps == _BY_LEVEL else steps, limits
    if limits.run is not None:
        raise ConfigError(_unknown_limit(env_id, limits.run))
    return None, NO_LIMITS


def _unknown_limit(env_id: str, limit: int) -> str:
    return (
        f"max_episode_steps is {limit}, but EnvPool's {env_id.removeprefix(ENVPOOL)} has no time limit that could be "
        "set: leave it out, or train on the env of Gymnasium"
    )


_OPTIONS = {
    "frame_skip": "frame_skip",
    "repeat_action_probability": "repeat_action_probability",
    "noop_max": "noop_max",
    "fire_reset": "use_fire_reset",
    "episodic_life": "episodic_life",
}
"""Settings of [env] -> what EnvPool calls them."""


def _arguments(env_id: str, config: Any, settings: EnvConfig) -> dict[str, Any]:
    """Return what EnvPool is asked for beyond its own defaults, `config`.

    Raises:
        ConfigError: a setting is not supported by the env.
    """
    given = {key: value for key in ATARI_ONLY if (value := getattr(settings, key)) is not None}
    if not hasattr(config, "use_fire_reset"):  # only its Atari games have it
        for key, value in given.items():
            raise ConfigError(unsupported(key, value, env_id))
        return {}
    if given.get("noop_max") == 0:
        raise ConfigError(f"noop_max is 0, but {env_id} begins with one frame at least: pass --set noop_max=1")
    frames = given.pop("max_frames", None)
    steps = {} if frames is None else {"max_episode_steps": frames // given.get("frame_skip", config.frame_skip)}
    return {"stack_num": 1, **{_OPTIONS[key]: value for key, value in given.items()}, **steps}


def _envpool() -> Any:
    """Return the module, which is called like this one."""
    return import_module("envpool")
