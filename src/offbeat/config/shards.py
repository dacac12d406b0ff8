"""Checks of `shards`, the number of parts into which each minibatch is cut."""

from __future__ import annotations

from offbeat.config.runtime_config import RuntimeConfig
from offbeat.config.settings import AlgorithmSettings
from offbeat.core.errors import ConfigError


def require_shards_supported(runtime: RuntimeConfig, settings: AlgorithmSettings, algorithm: str) -> None:
    """Refuse shards with an algorithm that cannot cut its minibatches.

    Raises:
        ConfigError: with the remedy.
    """
    if runtime.shards > 1 and not settings.supports_shards:
        raise ConfigError(
            f"shards is {runtime.shards}, which is not supported by {algorithm}: leave it out, or set supports_shards "
            f"in {type(settings).__qualname__} and define the algorithm's method `cut`"
        )


def require_shards(runtime: RuntimeConfig, settings: AlgorithmSettings, columns: int) -> None:
    """Refuse more shards than a minibatch has parts.

    Args:
        runtime: the layout.
        settings: those of a policy.
        columns: columns that an actor has for the policy.

    Raises:
        ConfigError: with the arithmetic and the remedy.
    """
    if runtime.shards == 1:
        return
    limit, arithmetic = settings.most_shards(runtime, columns)
    if runtime.shards > limit:
        remedy = f"pass --set shards={limit} or less" if limit > 1 else "leave shards out"
        raise ConfigError(f"shards is {runtime.shards}, but {arithmetic}: {remedy}, or make minibatches larger")
