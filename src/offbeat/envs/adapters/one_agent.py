"""The methods of `Adapter` for envs with one agent, in libraries whose envs all have several."""

from __future__ import annotations

from typing import NoReturn

from offbeat.config.env import EnvConfig
from offbeat.core.errors import ConfigError
from offbeat.envs.contract import EnvRequest


class NoSingleAgentEnvs:
    """Refuses to make envs with one agent. The library's adapter is a `WorldAdapter` too, which makes worlds."""

    def make(self, request: EnvRequest) -> NoReturn:
        """Raise ConfigError."""
        raise _several(request.env_id)

    def make_single(self, env_id: str, settings: EnvConfig) -> NoReturn:  # noqa: ARG002
        """Raise ConfigError."""
        raise _several(env_id)

    def make_renderable(self, env_id: str, settings: EnvConfig, render_mode: str) -> NoReturn:  # noqa: ARG002
        """Raise ConfigError."""
        raise _several(env_id)


def _several(env_id: str) -> ConfigError:
    return ConfigError(f"{env_id} is a world with several agents, but an env with one agent is expected here")
