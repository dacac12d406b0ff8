"""The adapter of EnvPool, ids 'envpool:ID': one pool per group, so that one group steps while another is used.

A failure on the last step of the time limit is reported as a truncation, because EnvPool does not distinguish the two.
A pool takes the seeds of its columns when it is made. There are no snapshots, because its state cannot be read. Only
EnvPool's Atari games support the Atari settings of [env]: their rewards are raw, and a game continues after a lost
life. EnvPool itself repeats the actions of Atari games; those of other envs are repeated here, in `recv`: only the
first step is taken while another group is used.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from offbeat.config.env import EnvConfig, refuse_atari_settings
from offbeat.core.closing import all_or_closed, closed_on_error
from offbeat.core.constructor_arguments import unknown_argument
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.importable import is_importable
from offbeat.core.seeding import derive_seed
from offbeat.core.types import Array, EnvSpec
from offbeat.envs.actions import action_encoder
from offbeat.envs.adapters.envpool.pool_of_one import PoolOfOne
from offbeat.envs.adapters.grouped import GroupedEnvs
from offbeat.envs.contract import NO_LIMITS, EnvRequest, Envs, Limits, Outcome
from offbeat.envs.failures import column_failed
from offbeat.envs.infos import vector_info_reader
from offbeat.envs.observations import observation_leaves
from offbeat.envs.rows import RowChecks, copy_exactly, empty_rows, mark_reset_rows, prefer_termination, rows_of
from offbeat.envs.spaces import action_spec
from offbeat.envs.writers import observation_writer

PREFIX = "envpool:"


class Pool:
    """The columns of one group, stepped synchronously: a batch is always the whole pool.

    Call `recv` from one thread only.
    """

    def __init__(
        self, spec: EnvSpec, pool: Any, rows: Outcome, first: int, limit: int | None = None, repeats: int = 1
    ) -> None:
        """Step EnvPool's `pool`, whose first column is `first`, and write into `rows`.

        Args:
            spec: Spec of the envs.
            pool: The pool.
            rows: The rows of its columns.
            first: Its first column.
            limit: Env steps after which each episode must have ended; None: the pool's own limit is enough.
            repeats: Steps of the pool per env step.
        """
        self._pool = pool
        self._limit = limit
        self._repeats = repeats
        self._actions: Any = None
        """The actions that were sent last, [n, *shape]."""
        self._spec = spec
        self._rows = rows
        self._first = first
        self._encode = action_encoder(spec.action)
        self._write_observation = observation_writer(
            pool.observation_space, spec.observation, list(rows.observation.values())
        )
        self._checks = RowChecks(spec, rows, first)
        self._read_info = vector_info_reader(spec.info, rows.info)

    def reset(self) -> None:
        self._rows.terminated[:] = self._rows.truncated[:] = False
        observation, _ = self._pool.reset()
        self._write(observation)

    def send(self, actions: Array) -> None:
        self._actions = self._encode(actions)
        self._pool.send(self._actions)

    def recv(self) -> Outcome:
        rows = self._rows
        mark_reset_rows(rows)
        observation, *parts, info = self._repeated(self._pool.recv())
        for target, part in zip((rows.reward, rows.terminated, rows.truncated), parts, strict=True):
            copy_exactly(target, part)
        if rows.over is not None:  # a life may be lost in the row of the time limit
            np.logical_or(info["terminated"], rows.truncated, rows.over)
        prefer_termination(rows)
        self._write(observation, info)
        if self._limit is not None:
            self._require_limit(info["elapsed_step"])
        return rows

    def _repeated(self, result: tuple[Any, ...]) -> tuple[Any, ...]:
        """Repeat the actions in the columns whose episodes continue; return the last results, with summed rewards.

        Args:
            result: (observation, reward, terminated, truncated, info) of the first step, of all columns.
        """
        _, reward, terminated, truncated, _ = result
        for _ in range(self._repeats - 1):
            columns = np.flatnonzero(self._rows.valid & ~(terminated | truncated)).astype(np.int32)
            if len(columns) == 0:
                break
            self._pool.send(self._actions[columns], columns)
            observation, gained, *others = self._pool.recv()  # of these columns, in this order
            _overwrite(result, columns, (observation, reward[columns] + gained, *others))
        return result

    def _require_limit(self, elapsed: Array) -> None:
        """Raise EnvFailed if an episode continues beyond the limit of the run: some pools ignore it."""
        assert self._limit is not None
        beyond = (elapsed >= self._limit * self._repeats) & ~(self._rows.terminated | self._rows.truncated)
        if beyond.any():
            what = _no_such_limit(self._spec.id, self._limit, "has a time limit of its own that cannot be shortened")
            raise column_failed(self._spec, self._first + int(beyond.argmax()), what)

    def close(self) -> None:
        self._pool.close()

    def _write(self, observation: Any, info: Any = None) -> None:
        try:
            self._write_observation(observation)
            if info is not None:
                self._read_info(self._rows.valid, info)
        except (ValueError, KeyError) as error:
            what = f"the pool of envs of which this is the first returned {error}"
            raise column_failed(self._spec, self._first, what) from error
        self._checks.require()


class EnvPoolAdapter:
    """Ids with the prefix 'envpool:'."""

    def make(self, request: EnvRequest) -> Envs:
        """Make the envs of one actor: one pool per group."""
        plan = _plan(request)
        settings = request.settings
        required = Limits(plan.limits.run).shorter_than(plan.own_limit)
        pools = all_or_closed(
            _make_pool(request.name, request.seeds[group], plan.arguments) for group in request.groups
        )
        with closed_on_error(pools):
            _read_spaces(pools)
            spec = plan.limits.spec_with_limits(_spec_of(request, pools[0], plan.repeats), plan.own_limit)
            rows = empty_rows(spec.observation, spec.columns, spec.info)
            if settings.episodic_life:
                rows = rows._replace(over=np.zeros(spec.columns, np.bool_))
            parts = [
                Pool(spec, pool, rows_of(rows, group), group.start, required, plan.repeats)
                for pool, group in zip(pools, request.groups, strict=True)
            ]
            return GroupedEnvs(spec, request.groups, rows, parts)

    def make_single(self, env_id: str, settings: EnvConfig) -> PoolOfOne:
        """Return a pool with one column, as a single env without the limits of the settings."""
        return _pool_of_one(env_id, replace(settings, max_episode_steps=None), {})

    def make_renderable(self, env_id: str, settings: EnvConfig, render_mode: str) -> PoolOfOne:
        """Return a pool with one column, as a single env."""
        return _pool_of_one(env_id, settings, {"render_mode": render_mode})

    def ids(self) -> list[str]:
        """Return the ids of EnvPool's envs with one agent; none if it is not installed."""
        if not is_importable("envpool"):
            return []
        return [PREFIX + name for name in sorted(_envpool().list_all_envs()) if _registered_players(name) == 1]


ADAPTER = EnvPoolAdapter()


class _Plan(NamedTuple):
    """How the pools of a request are made."""

    arguments: dict[str, Any]
    repeats: int
    """Steps of the pools per env step."""
    own_limit: int | None
    """Of the pools, in env steps; None if it is not known."""
    limits: Limits
    """Those that can be requested."""


def _plan(request: EnvRequest) -> _Plan:
    """Return how the pools of a request are made.

    Raises:
        ConfigError: there is no such env, EnvPool is missing, or a setting is not supported.
    """
    request.refuse_curriculum()
    env_id, settings = request.env_id, request.settings
    if not is_importable("envpool"):
        raise ConfigError(f'{env_id} needs envpool, which is not installed: run pip install "offbeat[envpool]"')
    if request.name not in _envpool().list_all_envs():
        raise unknown("env", env_id, ADAPTER.ids(), "Run `offbeat list envs` for a list.")
    config = _envpool().make_spec(request.name).config
    _require_one_player(env_id, config)
    _require_arguments(env_id, config, request.kwargs)
    arguments = request.constructor_arguments(_arguments(env_id, config, settings))
    repeats = 1 if _is_atari(config) else settings.action_repeats
    steps = arguments.get("max_episode_steps", config.max_episode_steps)
    own_limit, limits = _own_limit(env_id, steps, request.limits, repeats)
    limit = limits.shorter_than(own_limit)
    if limit is not None:
        arguments["max_episode_steps"] = limit * repeats  # as the pool counts
    return _Plan(arguments, repeats, own_limit, limits)


def _registered_players(name: str) -> int:
    """Return the number of players of an env from EnvPool's registry: to make the configs of all envs takes minutes."""
    *_, arguments = _envpool().registration.registry.specs[name]
    return int(arguments.get("max_num_players", 1))


def _require_one_player(env_id: str, config: Any) -> None:
    if config.max_num_players > 1:
        raise ConfigError(
            f"{env_id} has {config.max_num_players} players, but only EnvPool's envs with one agent are supported: "
            "games with several agents have ids such as openspiel:kuhn_poker or pettingzoo:classic/tictactoe_v3"
        )


_BY_OFFBEAT = ("num_envs", "batch_size", "max_num_players", "seed", "env_seed", "gym_reset_return_info", "render_mode")
"""Arguments of a pool that offbeat determines."""
_OF_PIXELS = ("from_pixels", "render_width", "render_height", "render_camera_id")
"""Arguments that are not in EnvPool's configs: images as observations, where the env supports them."""


def _require_arguments(env_id: str, config: Any, kwargs: Mapping[str, Any]) -> None:
    """Raise ConfigError for arguments that a pool does not have, or that offbeat determines."""
    names = [name for name in (*config._fields, *_OF_PIXELS) if name not in _BY_OFFBEAT]
    for name, value in kwargs.items():
        if name in _BY_OFFBEAT:
            raise ConfigError(f"env.kwargs.{name} is {value!r}, but offbeat determines this argument: leave it out")
        if name not in names:
            raise unknown_argument(env_id, name, names)


def _make_pool(name: str, seeds: Sequence[int], arguments: Mapping[str, Any]) -> Any:
    return _envpool().make_gymnasium(name, num_envs=len(seeds), seed=list(seeds), **arguments)


def _pool_of_one(env_id: str, settings: EnvConfig, arguments: Mapping[str, Any]) -> PoolOfOne:
    request = EnvRequest(env_id, (slice(0, 1),), (0,), settings, Limits(settings.max_episode_steps))
    plan = _plan(request)

    def make(seed: int) -> Any:
        pool = _make_pool(request.name, [derive_seed(seed, "single", 0, 0, 0)], {**plan.arguments, **arguments})
        with closed_on_error([pool]):
            _read_spaces([pool])
        return pool

    return PoolOfOne(make, plan.repeats, bool(settings.episodic_life))


_CHANGING_FILTERS = Lock()
"""The filters of warnings belong to all threads."""


def _read_spaces(pools: Iterable[Any]) -> None:
    """Let each pool make its spaces, which it keeps, without Gymnasium's warnings that their bounds are float64."""
    with _CHANGING_FILTERS, warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*precision lowered by casting")
        for pool in pools:
            _ = pool.observation_space, pool.action_space


def _overwrite(whole: Any, columns: Array, part: Any) -> None:
    """Overwrite columns of nested arrays, [n, *shape] each, with `part`, which has these columns only."""
    if isinstance(whole, np.ndarray):
        whole[columns] = part
        return
    for key in whole if isinstance(whole, Mapping) else range(len(whole)):
        _overwrite(whole[key], columns, part[key])


def _spec_of(request: EnvRequest, pool: Any, repeats: int) -> EnvSpec:
    action = action_spec(pool.action_space, request.env_id)
    observation = observation_leaves(pool.observation_space, request.env_id, action, request.settings)
    return request.spec_of(observation, action, int(getattr(pool.spec.config, "frame_skip", 1)) * repeats)


_UNLIMITED = 2**31 - 1
"""EnvPool's `max_episode_steps` of envs without a time limit."""
_BY_LEVEL = 0
"""EnvPool's `max_episode_steps` of envs whose levels have their own limits; another one can be requested."""


def _own_limit(env_id: str, steps: int, limits: Limits, repeats: int = 1) -> tuple[int | None, Limits]:
    """Return the pool's own limit in env steps, None if it is not known, and the limits that can be requested.

    An env without a limit continues beyond a requested one, and reports a later failure as a truncation.

    Args:
        env_id: Id of the env.
        steps: The pool's own limit, in its own steps.
        limits: The limits of the run.
        repeats: Steps of the pool per env step.

    Raises:
        ConfigError: the env does not support the limit of the run.
    """
    if steps == _BY_LEVEL:
        return None, Limits(limits.run)  # some pools ignore it; in training that is an error
    if steps < _UNLIMITED:
        return -(-steps // repeats), limits
    if limits.run is not None:
        raise ConfigError(_no_such_limit(env_id, limits.run, "has no time limit"))
    return None, NO_LIMITS


def _no_such_limit(env_id: str, limit: int, why: str) -> str:
    name = env_id.removeprefix(PREFIX)
    return f"max_episode_steps is {limit}, which is not supported by EnvPool's {name}, because it {why}: leave it out"


_OPTIONS = {
    "frame_skip": "frame_skip",
    "repeat_action_probability": "repeat_action_probability",
    "noop_max": "noop_max",
    "fire_reset": "use_fire_reset",
    "episodic_life": "episodic_life",
}
"""Settings of [env] for Atari games -> EnvPool's names for them."""


def _arguments(env_id: str, config: Any, settings: EnvConfig) -> dict[str, Any]:
    """Return EnvPool's arguments that the settings determine; those that are not given have its defaults, `config`.

    Raises:
        ConfigError: a setting is not supported by the env.
    """
    if not _is_atari(config):
        refuse_atari_settings(settings, env_id)
        return {}
    if settings.noop_max == 0:
        raise ConfigError(f"noop_max is 0, but {env_id} needs at least 1: pass --set noop_max=1")
    options = {name: getattr(config, name) for name in _OPTIONS.values()}
    given = {name: value for key, name in _OPTIONS.items() if (value := getattr(settings, key)) is not None}
    arguments = {"stack_num": 1, "reward_clip": False, **options, **given}
    if settings.max_frames is not None:
        arguments["max_episode_steps"] = -(-settings.max_frames // arguments["frame_skip"])  # as in ale.py
    return arguments


def _is_atari(config: Any) -> bool:
    """Whether a config of EnvPool is that of an Atari game: only these have this option."""
    return hasattr(config, "use_fire_reset")


def _envpool() -> Any:
    """Return the package envpool, which has the same name as this module."""
    return import_module("envpool")
