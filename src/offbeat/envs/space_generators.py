"""The random generators of spaces. Some envs sample states, rewards or noise from their own spaces.

Gymnasium's `reset(seed)` seeds the generator of the env, not those of its spaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from functools import partial
from inspect import getattr_static
from typing import Any
from weakref import ReferenceType, ref

import gymnasium as gym
from gymnasium import spaces

from offbeat.core.seeding import derive_seed
from offbeat.envs.contract import State

_NAMES = ("action_space", "observation_space", "single_action_space", "single_observation_space")
"""Attributes of envs; only vector envs have the last two."""


def spaces_of(env: Any) -> list[gym.Space[Any]]:
    """Return the spaces of a Gymnasium env and of the env inside its wrappers, each once."""
    found = [getattr(owner, name, None) for owner in (env, env.unwrapped) for name in _NAMES]
    return _once(space for space in found if isinstance(space, gym.Space))  # only the wrappers of some envs have spaces


_users: dict[int, tuple[ReferenceType[Any], gym.Space[Any]]] = {}
"""id of a space -> the env without its wrappers that uses it, and the space, so that no other space gets this id."""


def separate_spaces(env: Any) -> None:
    """Give a Gymnasium env copies of the spaces that other envs use too, such as attributes of its class.

    Another one is a constant of a module. Without copies these envs sample from the same generators, and what one gets
    depends on the others.
    """
    inner = env.unwrapped
    for name in _NAMES:
        space = getattr_static(inner, name, None)
        if not isinstance(space, gym.Space):
            continue
        if name not in vars(inner) or _has_another_user(space, inner):
            space = deepcopy(space)
            setattr(inner, name, space)
        _note_user(space, inner)


def separate_spaces_of_agents(env: Any, agents: Iterable[str]) -> None:
    """Do the same for an env of PettingZoo, whose spaces are in dicts or are returned by methods."""
    inner = getattr(env, "unwrapped", env)
    for kind in ("action", "observation"):
        own = getattr_static(inner, f"{kind}_spaces", None)  # PettingZoo's envs warn if the dict is read
        if isinstance(own, dict) and _are_shared(own.values(), inner):
            setattr(inner, f"{kind}_spaces", deepcopy(own))
        method = getattr(inner, f"{kind}_space", None)
        if callable(method):
            of_agents = {agent: method(agent) for agent in agents}
            if _are_shared(of_agents.values(), inner):
                of_agents = deepcopy(of_agents)
                setattr(inner, f"{kind}_space", of_agents.__getitem__)
            own = of_agents
        for space in (own or {}).values():
            _note_user(space, inner)


def _are_shared(all_spaces: Iterable[gym.Space[Any]], env: Any) -> bool:
    return any(_has_another_user(space, env) for space in all_spaces)


def _has_another_user(space: gym.Space[Any], env: Any) -> bool:
    user = _users[id(space)][0]() if id(space) in _users else None
    return user is not None and user is not env


def _note_user(space: gym.Space[Any], env: Any) -> None:
    _users[id(space)] = ref(env, partial(_forget, id(space))), space


def _forget(space: int, user: ReferenceType[Any]) -> None:
    if space in _users and _users[space][0] is user:
        del _users[space]


def seed_spaces(env: Any, seed: int) -> None:
    """Seed the spaces of a Gymnasium env, after `separate_spaces`."""
    separate_spaces(env)
    seed_each(spaces_of(env), seed)


def seed_each(all_spaces: Iterable[gym.Space[Any]], seed: int) -> None:
    """Seed some spaces of an env, each with a seed of its own, which is not that of the env's generator either."""
    for index, space in enumerate(all_spaces):
        space.seed(derive_seed(seed, "space", index))


def save_generators(all_spaces: Iterable[gym.Space[Any]]) -> State:
    """Return the states of the generators of some spaces, as far as they have one."""
    return {
        str(index): space.np_random.bit_generator.state
        for index, space in enumerate(_with_parts(all_spaces))
        if space._np_random is not None  # noqa: SLF001 - `np_random` makes a generator
    }


def load_generators(all_spaces: Iterable[gym.Space[Any]], state: State) -> None:
    """Restore the states that `save_generators` returned, in the same spaces or in those of a newly made env."""
    for index, space in enumerate(_with_parts(all_spaces)):
        if (saved := state.get(str(index))) is not None:
            space.np_random.bit_generator.state = saved


def _with_parts(all_spaces: Iterable[gym.Space[Any]]) -> list[gym.Space[Any]]:
    """Return the spaces with all spaces in them, each once."""
    return _once(part for space in all_spaces for part in _parts(space))


def _parts(space: gym.Space[Any]) -> Iterator[gym.Space[Any]]:
    yield space
    for part in _inside(space):
        yield from _parts(part)


def _inside(space: gym.Space[Any]) -> Iterable[gym.Space[Any]]:
    """Return the spaces that a space is made of; each has a generator of its own."""
    match space:
        case spaces.Dict():
            return space.spaces.values()
        case spaces.Tuple() | spaces.OneOf():
            return space.spaces
        case spaces.Sequence():
            return (space.feature_space,)
        case spaces.Graph():
            return (space.node_space,) if space.edge_space is None else (space.node_space, space.edge_space)
        case _:
            return ()


def _once(all_spaces: Iterable[gym.Space[Any]]) -> list[gym.Space[Any]]:
    """Return the spaces without repetitions of the same object."""
    return list({id(space): space for space in all_spaces}.values())
