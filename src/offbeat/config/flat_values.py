"""All settings of a config by key, as `--set` takes them."""

from __future__ import annotations

from offbeat.config.config import Config
from offbeat.config.league import LEAGUE
from offbeat.config.own_settings import own_values


def values_of(config: Config) -> dict[str, object]:
    """Return key -> value of all settings of a config, with the keys as in `--set`."""
    tables = config.tables()
    policies = tables.pop("policies", {})
    values = {
        f"{LEAGUE if name == 'league' else ''}{key}": value
        for name, table in tables.items()
        for key, value in table.items()
    }
    return {**values, **dict(own_values(policies))}
