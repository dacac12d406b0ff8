"""All settings of an algorithm, as `offbeat list settings` and the options page show them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from offbeat.config.env import EnvConfig, protocol_of
from offbeat.config.keys import CONSTRUCTOR_TABLES
from offbeat.config.league import LEAGUE, LeagueConfig
from offbeat.config.preset_files import preset_tables
from offbeat.config.registry import algorithm_entry
from offbeat.config.run_config import RunConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.field_definitions import field_docstrings, hints_of
from offbeat.core.field_texts import describe
from offbeat.core.frozen_table import EMPTY
from offbeat.core.typed_text import as_text


@dataclass(frozen=True)
class ListedSetting:
    """A setting, described in text."""

    table: str
    """Name of its table in config.toml."""
    key: str
    """As `--set` takes it."""
    takes: str
    """The type and the range of its values."""
    default: str
    preset: str
    """The value of the preset; '' if the preset does not have the key, or there is no preset."""
    meaning: str
    """The docstring of the key; '' if it has none."""

    @property
    def sentence(self) -> str:
        """What the setting is, in one sentence; what `none` means if that is the default; and what it is only for."""
        first, *others = re.split(r"(?<=\.) (?=[A-Z0-9\"`])", self.meaning)
        kept = ("Only for", "Not for", *(("None:",) if self.default == "none" else ()))
        return " ".join([first, *(text for text in others if text.startswith(kept))])


def listed_settings(algorithm: str, env: str | None = None) -> tuple[str, list[ListedSetting]]:
    """Return the name of the preset for an algorithm and an env ('' if there is none), and all settings of a run.

    Args:
        algorithm: name or path of the algorithm.
        env: id of the env; None: no preset, and the defaults of envs that belong to no family.

    Raises:
        ConfigError: there is no such algorithm, or it has no valid settings.
    """
    config = algorithm_entry(algorithm).config_class()
    preset = preset_tables(algorithm, env, None) if env is not None else {"run": {}}
    implied = {} if env is None else {"env": vars(protocol_of(env))}
    tables = {algorithm: config, "runtime": RuntimeConfig, "env": EnvConfig, "run": RunConfig, "league": LeagueConfig}
    settings = [
        setting
        for name, table in tables.items()
        for setting in table_settings(name, table, preset.get(name, {}), implied.get(name, {}))
        if (name, setting.key) not in _GIVEN_OTHERWISE
    ]
    return preset["run"].get("preset", ""), [_supported(setting, algorithm, config) for setting in settings]


_GIVEN_OTHERWISE = {("run", "algorithm"), ("run", "env"), ("run", "preset")}
"""Keys of config.toml that `--set` does not take."""


def table_settings(
    name: str, table: type[Any], preset: dict[str, Any] | None = None, implied: dict[str, Any] | None = None
) -> Iterator[ListedSetting]:
    """Yield the settings of a table.

    Args:
        name: name of the table in config.toml.
        table: its class.
        preset: the preset's values, by key.
        implied: values that replace a default of None, by key.
    """
    unsupported: Mapping[str, str] = getattr(table, "unsupported_own_keys", {})
    hints, notes = hints_of(table), field_docstrings(table) | {key: _why(why) for key, why in unsupported.items()}
    texts: Mapping[str, str] = getattr(table, "default_texts", {})
    chosen = {"hidden_sizes": getattr(table, "default_hidden_sizes", None), **(implied or {})}
    for field in fields(table):
        value = chosen.get(field.name) if field.default is None else None
        yield ListedSetting(
            table=name,
            key=_key_of(name, field.name),
            takes=describe(hints[field.name]),
            default=default_text(field, texts) if value is None else as_text(value),
            preset=as_text(preset[field.name]) if preset and field.name in preset else "",
            meaning=notes.get(field.name, ""),
        )


def _why(reason: str) -> str:
    return f"Not supported: {reason}." if reason else "Not supported."


def _key_of(table: str, key: str) -> str:
    """Return a key as `--set` takes it."""
    if table == "league":
        return f"{LEAGUE}{key}"
    return f"{CONSTRUCTOR_TABLES[key]}NAME" if key in CONSTRUCTOR_TABLES else key


def default_text(field: Any, texts: Mapping[str, str] = EMPTY) -> str:
    """Return the default of a dataclass's field as text; `texts` has those that the default does not show, by key."""
    if field.default is MISSING:
        return "must be given"
    if field.name in texts:
        return texts[field.name]
    return "none" if field.default in (None, (), EMPTY) else as_text(field.default) or '""'


def _supported(setting: ListedSetting, algorithm: str, config: type[Any]) -> ListedSetting:
    """Return the setting with the algorithm's own default; one that it does not support says what to pass instead."""
    if setting.table != "runtime":
        return setting
    if setting.key in config.runtime_defaults:
        return replace(setting, default=as_text(config.runtime_defaults[setting.key]))
    if setting.key not in config.unsupported_runtime_keys:
        return setting
    instead = config.unsupported_runtime_keys[setting.key]
    return ListedSetting(
        setting.table, setting.key, setting.takes, "none", "", f"Not supported by {algorithm}: {instead}"
    )
