"""The adapter of PettingZoo, ids 'pettingzoo:GROUP/NAME_vN': envs with several agents.

Envs in which all agents act at the same time are used by the parallel API, the others by the AEC API.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from offbeat.config.env import KWARGS_SYNTAX
from offbeat.core.closing import closed_on_error
from offbeat.core.constructor_arguments import require_arguments
from offbeat.core.errors import ConfigError
from offbeat.envs.adapters.pettingzoo.kinds import world_of
from offbeat.envs.adapters.pettingzoo.sources import PREFIX, installed_ids, source_of
from offbeat.envs.worlds.contract import World


class PettingZooAdapter:
    """Ids with the prefix 'pettingzoo:'."""

    def make_world(self, env_id: str, kwargs: Mapping[str, Any], render_mode: str | None = None) -> World:
        """Make one world. Exceptions of the env's constructor are not caught."""
        source = source_of(env_id.removeprefix(PREFIX))
        require_arguments(env_id, source.constructor, kwargs, KWARGS_SYNTAX)
        modes = {} if render_mode is None else {"render_mode": render_mode}
        env = source.create(**{**kwargs, **modes})
        with closed_on_error([env]):
            offered = env.metadata.get("render_modes", ())
            if render_mode is not None and render_mode not in offered:
                raise ConfigError(f"{env_id} cannot be rendered in the mode {render_mode}, but in {', '.join(offered)}")
            return world_of(env)

    def ids(self) -> list[str]:
        """Return the ids of all envs whose packages are installed."""
        return installed_ids()


ADAPTER = PettingZooAdapter()
