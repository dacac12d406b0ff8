"""Keys as `--set` takes them: those of the tables in [env], of [league] and of [policies.NAME], and of the table
`encoder_kwargs` in that of the algorithm, have a prefix.

These functions make such keys from tables:

    function    given, for example                               keys
    values_of   a config                                         gamma, kwargs, league.window, policies.a.settings.gamma
    own_values  {"a": {"settings": {"gamma": 0.9}}}              policies.a.settings.gamma
    flat        {"gamma": 0.9, "kwargs": {"size": 8}}            gamma, env.kwargs.size
    flat_items  {"env": {"kwargs": {"size": 8}}}, as TOML reads  env.kwargs.size
                env.kwargs.size; and what flat is given
    leaves      depth 1, "table", {"x": {"low": 1}}              table.x
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from offbeat.config.config import Config
from offbeat.config.env import ARGUMENT_TABLES
from offbeat.config.league import LEAGUE
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.fields import read
from offbeat.core.frozen_table import PlainTable, in_toml

POLICIES = "policies."
"""Prefix of the keys policies.NAME.settings.KEY: a policy's own value of a setting."""
ENCODER_KWARGS = "encoder_kwargs."
"""Prefix of a key that sets one argument of the encoder's constructor."""
CONSTRUCTOR_TABLES = {**ARGUMENT_TABLES, "encoder_kwargs": ENCODER_KWARGS}
"""Table of arguments of a constructor, of the env or of the encoder -> prefix of a key that sets one of them."""
TABLES = {**CONSTRUCTOR_TABLES, "league": LEAGUE}
"""Key whose value is a table -> prefix of a key that sets one value in it."""
PREFIXES = (*TABLES.values(), POLICIES)
"""Prefixes of keys of which `--set` sets a value in a table."""
SETTINGS = "settings"
_DEPTH = 3
"""Depth of the values below the table [policies]."""


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


def refuse_repeated(settings: Mapping[str, object]) -> None:
    """Refuse a value that is given in a table, and by a key of its own.

    Raises:
        ConfigError: with the key and the table.
    """
    for table, inner in settings.items():
        prefix = TABLES.get(table, f"{table}.")
        for key in (f"{prefix}{name}" for name in (inner if isinstance(inner, Mapping) else ())):
            if key in settings:
                raise in_key_and_table(key, table)


def in_key_and_table(key: str, table: str) -> ConfigError:
    """Return the error for a value that is given by its own key and in a table."""
    return ConfigError(f"{key} is given twice, by this key and in the table {table}: pass only one of them")


def flat(settings: Mapping[str, object]) -> dict[str, object]:
    """Return settings with a key for each value of the tables in `TABLES`."""
    keys = dict(settings)
    for table, prefix in TABLES.items():
        if isinstance(inner := keys.get(table), Mapping):
            del keys[table]
            keys = {**{f"{prefix}{name}": value for name, value in inner.items()}, **keys}
    return keys


def flat_items(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the keys and values of a table of a spec, with the keys `env.kwargs.NAME`, `env.eval_kwargs.NAME`,
    `encoder_kwargs.NAME`, `league.NAME` and `policies.NAME.settings.KEY`.

    TOML reads them as tables of tables.
    """
    for key, given in table.items():
        match key, given:
            case "env", dict(env) if env and env.keys() <= ARGUMENT_TABLES.keys():
                yield from flat_items(env)
            case "policies", dict(policies) if policies:
                yield from leaves(_DEPTH, key, policies)
            case "league", dict(league) if not league:
                yield key, True
            case _:
                yield from flat({key: given}).items()


def is_argument(key: str) -> bool:
    """Whether a key sets one argument of a constructor, of the env or of an encoder. Its type is not known."""
    return _own_key(key).startswith(tuple(CONSTRUCTOR_TABLES.values()))


def is_arguments(key: str) -> bool:
    """Whether a key sets one argument of a constructor, or the whole table of its arguments."""
    return _own_key(key) in CONSTRUCTOR_TABLES or is_argument(key)


def _own_key(text: str) -> str:
    """Return the KEY of policies.NAME.settings.KEY, and every other text itself."""
    return re.sub(r"^policies\.[^.]*\.settings\.", "", text)


def parts_of(text: str) -> tuple[str, str]:
    """Return the policy and the setting of a key policies.NAME.settings.KEY; KEY may be encoder_kwargs.NAME.

    Raises:
        ConfigError: the key has another form.
    """
    match text.split(".", 3):
        case [_, name, part, key] if name and key and part == SETTINGS:
            if "." not in key or key.startswith(ENCODER_KWARGS):
                return name, key
    raise ConfigError(
        f"{text} is not a key: of the tables of policies, only policies.NAME.settings.KEY can be given, such as "
        "policies.good.settings.learning_rate. The other keys are in the file that --policies names, and a resume "
        "cannot change them"
    )


def setting_of(text: str) -> str:
    """Return the setting that a key is about: the KEY of policies.NAME.settings.KEY, and every other key itself."""
    return parts_of(text)[1] if text.startswith(POLICIES) else text


def leaves(depth: int, name: str, given: Any) -> Iterator[tuple[str, Any]]:
    """Yield key -> value of what is at a depth below a table, and of what is below `encoder_kwargs` there.

    TOML reads keys with dots as tables in tables.
    """
    if depth == 0 and name.endswith(".encoder_kwargs"):
        depth = 1
    if depth == 0 or not isinstance(given, dict):
        yield name, given
    else:
        for key, inner in given.items():
            yield from leaves(depth - 1, f"{name}.{key}", inner)


def set_own(tables: Mapping[str, dict[str, Any]], text: str, value: object, hints: Mapping[str, Any]) -> None:
    """Write a policy's own value into the tables [policies.NAME].

    Args:
        tables: the tables, by policy.
        text: the key, policies.NAME.settings.KEY.
        value: as flags or `--set` give it.
        hints: type hints of the algorithm's settings. Values of other keys are written as they are, and refused later.

    Raises:
        ConfigError: the key has another form, there is no such table, or the value is invalid.
    """
    name, key = parts_of(text)
    if not tables:
        raise ConfigError(
            f"{text} is given, but there is no table [policies.{name}]: write it into a file for --policies, or into "
            f"the spec, or set {key} for the whole run"
        )
    if name not in tables:
        raise unknown("policy", name, tables, f"The run has the policies {', '.join(tables)}.")
    own = tables[name].setdefault(SETTINGS, {})
    if key.startswith(ENCODER_KWARGS):
        set_argument(own, "encoder_kwargs", key.removeprefix(ENCODER_KWARGS), value)
    else:
        set_value(own, key, in_toml(read(text, value, hints[key])) if key in hints else value)


def set_value(table: dict[str, Any], key: str, value: object) -> None:
    """Write a value into a table. An encoder in place of another one starts without its arguments."""
    if key == "encoder" and table.get(key, value) != value:
        table.pop("encoder_kwargs", None)
    table[key] = value


def set_argument(table: dict[str, Any], key: str, name: str, value: object) -> None:
    """Write one argument of a constructor into the table of arguments that a table has under a key."""
    table[key] = {**read(key, table.get(key, {}), PlainTable), name: value}


def order_of(key: str) -> tuple[bool, bool, int]:
    """Return a value that sorts keys so that each can be written over the earlier ones: settings of the run before
    those of policies, encoders before their arguments, and whole tables before values in them.
    """
    return key.startswith(PREFIXES), is_arguments(key), key.count(".")


def own_values(tables: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield policies.NAME.settings.KEY -> value, for the own settings in the tables [policies.NAME]."""
    for name, table in tables.items():
        yield from ((f"{POLICIES}{name}.{SETTINGS}.{key}", value) for key, value in table[SETTINGS].items())
