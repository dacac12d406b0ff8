"""A trial: one setting on one env, with the config that all its sessions share but for the seed."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

from offbeat.config.config import Config
from offbeat.config.env import EnvConfig
from offbeat.config.registry import algorithm_entry
from offbeat.config.resolve import resolve
from offbeat.config.run_config import RunConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import ConfigError
from offbeat.core.fields import hints_of
from offbeat.envs.check import preflight
from offbeat.experiments.search import Range, Values
from offbeat.experiments.spec import Spec
from offbeat.run_directory.directory import RunDirectory


@dataclass(frozen=True)
class Trial:
    """One setting on one env."""

    number: int
    env: str
    values: Values
    """What is searched over."""
    settings: dict[str, Any]
    """All keys that the spec gives, those of `values` included."""
    config: Config
    """Of all sessions, but for the seed."""

    @property
    def name(self) -> str:
        return f"trial-{self.number:03}"

    @property
    def label(self) -> str:
        """Say what is searched over in a few words; '' where nothing is."""
        return ", ".join(f"{key} {spelled(value)}" for key, value in self.values.items())

    def tables(self) -> dict[str, Any]:
        """Return what trial.toml says: the values that were searched over, and the config without a seed."""
        tables = self.config.tables()
        del tables["run"]["seed"]
        return {"searched": self.values, **tables}


def spelled(value: object) -> str:
    """Return a value as --set takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(spelled, value)) if isinstance(value, list | tuple) else str(value)


def trials_of(spec: Spec) -> list[Trial]:
    """Return all trials of a spec whose values do not depend on results; settings first, then envs.

    Raises:
        ConfigError: a setting is not accepted, in whichever trial.
    """
    settings: list[Values] = [{}] if spec.search is None else spec.search.settings(whole_keys(spec))
    return [
        trial_of(spec, number * len(spec.envs) + index, env, values)
        for number, values in enumerate(settings)
        for index, env in enumerate(spec.envs)
    ]


def trial_of(spec: Spec, number: int, env: str, values: Values) -> Trial:
    """Return a trial with its config.

    Raises:
        ConfigError: a setting is not accepted.
    """
    settings = {**spec.settings, **values}
    imports = {"imports": spec.imports} if spec.imports else {}
    try:
        config = resolve(spec.algorithm, env, preset=spec.preset, flags={**settings, **imports, "seed": spec.seeds[0]})
    except ConfigError as error:
        tried = ", ".join(f"{key} {spelled(value)}" for key, value in values.items())
        raise ConfigError(f"a trial on {env}{' with ' * bool(tried)}{tried}: {error}") from error
    return Trial(number, env, values, settings, config)


def whole_keys(spec: Spec) -> set[str]:
    """Return the keys with a range that take whole numbers alone.

    Raises:
        ConfigError: a key takes no numbers, or whole ones where the range has others.
    """
    over = {} if spec.search is None else spec.search.over
    tables = (RunConfig, EnvConfig, RuntimeConfig, algorithm_entry(spec.algorithm).config_class())
    hints = {key: hint for table in tables for key, hint in hints_of(table).items()}
    ranges = {key: values for key, values in over.items() if isinstance(values, Range) and key in hints}
    kinds = {key: _kind(hints[key]) for key in ranges}
    for key, kind in kinds.items():
        if kind not in (int, float, Fraction):
            raise ConfigError(f"{key} is searched over a range, but takes no numbers: list its values, {key} = [...]")
        parts = (ranges[key].low, ranges[key].high, ranges[key].step or 1)
        if kind is int and any(part != int(part) for part in parts):
            raise ConfigError(f"{key} takes whole numbers: give its range a low, a high and a step that are whole")
    return {key for key, kind in kinds.items() if kind is int}


def _kind(hint: Any) -> Any:
    """Return the type behind bounds and 'or none'."""
    if get_origin(hint) is Annotated:
        return _kind(get_args(hint)[0])
    options = [option for option in get_args(hint) if option is not NoneType]
    return _kind(options[0]) if len(options) == 1 and NoneType in get_args(hint) else hint


def require_sound(trials: list[Trial]) -> None:
    """Refuse trials that could not begin, after a few steps in each env.

    Raises:
        ConfigError: an env does not work, or does not suit the settings; a run to begin from or a GPU is not there.
    """
    from offbeat.runtime.assembly import device_of

    envs = {trial.env: preflight(trial.env) for trial in trials}
    for trial in trials:
        config = trial.config
        config.settings.policy_spec(replace(envs[trial.env], columns=config.runtime.envs_per_actor))
        device_of(config)
        if config.run.init_from is not None:
            RunDirectory.open(Path(config.run.init_from))


# --- on disk ------------------------------------------------------------------------------------------------


def write_trial(trial: Trial, file: Path) -> None:
    """Write trial.toml, in one step."""
    import tomli_w

    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(".trial.toml.writing")
    temporary.write_text(tomli_w.dumps(trial.tables()), encoding="utf-8")
    temporary.replace(file)


def read_trial(spec: Spec, number: int, file: Path) -> Trial:
    """Return a trial of the spec whose values stand in its trial.toml.

    Raises:
        ConfigError: the file is no TOML, or lacks them.
    """
    tables = _tables_in(file)
    env = tables.get("run", {}).get("env")
    if not isinstance(tables.get("searched"), dict) or env not in spec.envs:
        raise ConfigError(
            f"{file} does not say which env and which values it is for: restore it, or give another --dir"
        )
    return trial_of(spec, number, env, tables["searched"])


def require_same_trial(trial: Trial, file: Path) -> None:
    """Refuse a trial.toml that is of another setting; keys that this version of offbeat has added may be missing.

    Raises:
        ConfigError: with what differs.
    """
    if not file.exists():
        return
    there, here = _flat(_tables_in(file)), _flat(as_toml(trial.tables()))
    differences = [
        f"{key} is {spelled(value)} there and {spelled(here.get(key, 'not known'))} now"
        for key, value in there.items()
        if here.get(key) != value
    ]
    if differences:
        raise ConfigError(
            f"{file} was begun with other settings than the spec means now: {'; '.join(differences)}. The spec, a "
            "preset or a default has changed: put it back, or give another --dir"
        )


def as_toml(tables: dict[str, Any]) -> dict[str, Any]:
    """Return tables as they are read again once they have been written: lists for tuples."""
    read: dict[str, Any] = json.loads(json.dumps(tables))
    return read


def _tables_in(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not TOML ({error}): restore it, or give another --dir") from None


def _flat(tables: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, table in tables.items():
        flat |= {f"{name}.{key}": value for key, value in table.items()} if isinstance(table, dict) else {name: table}
    return flat
