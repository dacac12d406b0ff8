"""The algorithm's settings of one policy: those of the run, with the values of its table [policies.NAME.settings]."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from offbeat.config.env import EnvConfig
from offbeat.config.run_config import RunConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.config.settings import AlgorithmSettings
from offbeat.config.unknown_keys import unknown_key
from offbeat.core.errors import ConfigError
from offbeat.core.field_definitions import hints_of
from offbeat.core.fields import read
from offbeat.core.frozen_table import EMPTY


def settings_of_policy(
    name: str, own: Mapping[str, Any], settings: AlgorithmSettings, runtime: RuntimeConfig
) -> AlgorithmSettings:
    """Return the algorithm's settings with the values of one policy.

    Args:
        name: the policy.
        own: its values, by key.
        settings: the settings of the run.
        runtime: the runtime and its layout.

    Raises:
        ConfigError: a key is unknown or belongs to the whole run, or a value is invalid.
    """
    where, hints = f"[policies.{name}.settings]", hints_of(type(settings))
    for key in own:
        if any(key in hints_of(table) for table in (RunConfig, EnvConfig, RuntimeConfig)):
            raise _of_whole_run(name, key)
        if key not in hints:
            raise unknown_key(key, own[key], hints, f"See {where}.")
    remedy = f"change it in {where}"
    values = {key: read(key, value, hints[key], remedy) for key, value in own.items()}
    if "encoder_kwargs" in hints and "encoder" in values and values["encoder"] != getattr(settings, "encoder", None):
        values.setdefault("encoder_kwargs", EMPTY)  # those of the run are arguments of another constructor
    with naming(name, own):
        changed = replace(settings, **values)
        changed.check(runtime)
        shared, memory = settings.memory(runtime), changed.memory(runtime)
    if memory != shared:
        raise _of_whole_run(name, " and ".join([key for key in values if key in settings.topology_keys] or values))
    return changed


@contextmanager
def naming(name: str, own: Mapping[str, Any]) -> Iterator[None]:
    """Name a policy in errors about its settings, if it has values of its own; `own`: these."""
    try:
        yield
    except ConfigError as error:
        if not own:
            raise
        raise ConfigError(f"the policy {name}, in [policies.{name}.settings]: {error}") from error


def _of_whole_run(name: str, keys: str) -> ConfigError:
    return ConfigError(
        f"[policies.{name}.settings] has {keys}, which all policies of a run share: set it for the whole run, and "
        "remove it there"
    )
