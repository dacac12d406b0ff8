"""A trial: one combination of settings on one env. Its sessions have the same config except for the seed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offbeat.config.config import Config
from offbeat.config.env import KWARGS, EnvConfig
from offbeat.config.importing import import_flags
from offbeat.config.keys import flat
from offbeat.config.policies import Policies, tables_of
from offbeat.config.resolve import resolve
from offbeat.config.trust import modules_of, policies_code
from offbeat.core.errors import ConfigError, EnvFailed, with_notes_of, without_full_stop
from offbeat.core.files import replace_file
from offbeat.core.printing import print_text
from offbeat.core.toml_files import read_toml
from offbeat.core.typed_text import as_text, change_text
from offbeat.experiments.search import Range, Values
from offbeat.experiments.spec import Spec
from offbeat.experiments.spec_notation import with_place

if TYPE_CHECKING:
    from offbeat.core.tasks import TaskSample
    from offbeat.core.types import EnvSpec
    from offbeat.envs.worlds.contract import WorldSpec
    from offbeat.runtime.tested_envs import TestedEnvs

POLICIES = "policies.toml"
"""Name of the file with the tables of policies, in the folder of a trial: the value of --policies."""
_OF_ARGUMENTS = (TypeError, ValueError, AssertionError, EnvFailed)
"""What an env raises if an argument must be an integer, and is not: in its constructor, or later."""


def trial_name(number: int) -> str:
    """Return the name of a trial, and of its directory."""
    return f"trial-{number:03}"


@dataclass(frozen=True)
class Trial:
    """One combination of settings on one env."""

    number: int
    env: str
    values: Values
    """Values of the keys that are searched over."""
    settings: dict[str, Any]
    """All settings of the spec, including `values`, and the number of workers."""
    config: Config
    """Config of all sessions, except for the seed."""

    @property
    def name(self) -> str:
        return trial_name(self.number)

    @property
    def label(self) -> str:
        """The values that are searched over, as text; '' without a search."""
        return ", ".join(f"{key} {as_text(value)}" for key, value in self.values.items())

    def tables(self) -> dict[str, Any]:
        """Return the content of trial.toml: the searched values, and the config without a seed."""
        tables = self.config.tables()
        del tables["run"]["seed"]
        return {"searched": self.values, **tables}


def trials_of(spec: Spec) -> list[Trial]:
    """Return all trials of a spec without Optuna, ordered by combination of settings, then by env.

    Raises:
        ConfigError: a setting of any trial is invalid, or there are fewer different settings than trials.
    """
    return [
        trial_of(spec, number * len(spec.envs) + index, env, values)
        for number, values in enumerate(different_settings(spec))
        for index, env in enumerate(spec.envs)
    ]


def different_settings(spec: Spec) -> list[Values]:
    """Return the values of all combinations of a grid or of a random search; one without values if nothing is searched.

    Raises:
        ConfigError: there are fewer different ones than trials.
    """
    if spec.search is None:
        return [{}]
    found, trials = spec.search.settings(), spec.search.trials
    if trials is not None and len(found) < trials:
        raise ConfigError(
            f"{spec.where}: trials is {trials}, but only {len(found)} different settings were found in [search.over]: "
            f"write trials = {len(found)}, or add values"
        )
    return found


def trial_of(spec: Spec, number: int, env: str, values: Values) -> Trial:
    """Return a trial with its config.

    Raises:
        ConfigError: a setting is invalid.
    """
    settings = flat({**spec.settings, **values})
    try:
        config = config_of(spec, env, settings)
    except ConfigError as error:
        raise _named(spec.where, "trial", env, values, error) from error
    return Trial(number, env, values, with_workers(settings, config), config)


def with_workers(settings: Mapping[str, Any], config: Config) -> dict[str, Any]:
    """Return settings with the number of workers of their config: by default a machine has as many as cores.

    So all sessions have the same number, wherever they start.
    """
    workers = {"workers": config.runtime.workers} if config.runtime.entry.workers_learn else {}
    return {**settings, **workers}


def config_of(spec: Spec, env: str, settings: Mapping[str, Any]) -> Config:
    """Return the config of a run of a spec, with these settings and the first seed.

    Raises:
        ConfigError: a setting is invalid.
    """
    given = {"policies": tables_of(spec.policies), "imports": spec.imports}
    flags = {**settings, **{key: value for key, value in given.items() if value}, "seed": spec.seeds[0]}
    return resolve(spec.algorithm, env, preset=spec.preset, flags=flags)


def _named(where: str, kind: str, env: str, values: Values, error: ConfigError) -> ConfigError:
    """Return an error with the file, and with the env and the searched values of its trial, or other `kind`."""
    tried = ", ".join(f"{key} {as_text(value)}" for key, value in values.items())
    run = f"a {kind} on {env} with {tried}" if tried else env
    return with_place(f"{where}, {run}", error)


def try_envs(trials: list[Trial], spec: Spec, *, kind: str = "trial", elsewhere: bool = False) -> list[TestedEnvs]:
    """Take a few steps in each env, and raise ConfigError if a trial could not start; return what each would have.

    Args:
        trials: the trials.
        spec: their spec.
        kind: what they are, for messages.
        elsewhere: whether they run on other machines, so that their GPUs are not here.

    Raises:
        ConfigError: an env fails or is not supported by the settings; the weights of `init_from` are missing, or do not
            fit its spaces; or a GPU is missing.
    """
    from offbeat.api.running.initial_sources import require_sources
    from offbeat.runtime.devices import device_of
    from offbeat.runtime.tested_envs import columns_of, tested_env

    specs: dict[object, WorldSpec | EnvSpec] = {}
    found = []
    for trial in trials:
        config, envs = trial.config, _envs_of(trial)
        try:
            if envs not in specs:
                imports = (*spec.caller_imports, *spec.imports)
                specs[envs] = tested_env(config, imports, partial(print_text, stream=sys.stderr))
            tested = columns_of(config, specs[envs])
            found.append(tested)
            require_sources(tested.config, {name: _policy_spec(tested, name) for name in tested.policies})
            if not elsewhere:
                device_of(config)
        except ConfigError as error:
            refused = envs not in specs and isinstance(error.__cause__, _OF_ARGUMENTS)
            hint = _hint_on_ranges(spec) if refused else ""
            text = f"{without_full_stop(error)}. {hint}" if hint else str(error)
            named = _named(spec.where, kind, trial.env, trial.values, ConfigError(text))
            raise with_notes_of(named, error) from error
    return found


def _policy_spec(tested: TestedEnvs, name: str) -> object:
    """Return the policy that its settings make for the columns that it has in an env."""
    with tested.config.naming(name):
        return tested.config.of_policy(name).algorithm_settings.policy_spec(tested.policies[name])


def _hint_on_ranges(spec: Spec) -> str:
    """Return how an env gets integers only; '' if no argument of it has a range of other numbers."""
    over = {} if spec.search is None else spec.search.over
    ranges = {key: values for key, values in over.items() if key.startswith(KWARGS) and isinstance(values, Range)}
    keys = " or ".join(key for key, values in ranges.items() if not values.whole)
    return f"If {keys} must be an integer, write its range with integers, and step = 1" if keys else ""


def _envs_of(trial: Trial) -> tuple[str, EnvConfig, TaskSample | None]:
    """Return the env of a trial, its table [env], and the tasks that are sampled from it."""
    return trial.env, trial.config.env, trial.config.tasks


# --- on disk ------------------------------------------------------------------------------------------------


def write_trial(trial: Trial, file: Path) -> None:
    """Write trial.toml and, if the trial has tables of policies, policies.toml, each atomically."""
    import tomli_w

    file.parent.mkdir(parents=True, exist_ok=True)
    write_policies(trial.config.policies, file.parent)
    replace_file(file, tomli_w.dumps(trial.tables()).encode())


def write_policies(policies: Policies, folder: Path) -> None:
    """Write policies.toml into a folder, atomically; nothing if there are no tables."""
    import tomli_w

    if policies:
        replace_file(folder / POLICIES, tomli_w.dumps({"policies": tables_of(policies)}).encode())


def with_written_policies(
    settings: Mapping[str, Any], policies: Policies, folder: Path
) -> tuple[list[str], dict[str, Any]]:
    """Return the flags that give a run the policies in the policies.toml of a folder, and its settings without them.

    The modules of their encoders must be named, because a file names the encoders.
    """
    if not policies:
        return [], dict(settings)
    imports = import_flags(modules_of(policies_code(tables_of(policies))))
    others = {key: value for key, value in settings.items() if key != "policies"}
    return [*imports, "--policies", str(folder / POLICIES)], others


def read_trial(spec: Spec, number: int, file: Path) -> Trial:
    """Return a trial of the spec, with the searched values in its trial.toml.

    Raises:
        ConfigError: the file is not TOML, lacks the values, or has values that the spec does not search over. Others
            may have written it, and values can name code.
    """
    tables = _tables_in(file)
    run, searched = tables.get("run"), tables.get("searched")
    env = run.get("env") if isinstance(run, dict) else None
    if not isinstance(searched, dict) or env not in spec.envs:
        raise ConfigError(f"{file} lacks the env or the searched values: restore it, or pass another --dir")
    if spec.search is None or not spec.search.allows(searched):
        raise ConfigError(
            f"{file} has values under [searched] that the spec does not search over: restore it, or pass another --dir"
        )
    return trial_of(spec, number, env, searched)


def with_saved_workers(spec: Spec, trial: Trial, file: Path) -> Trial:
    """Return a trial with the number of workers in its trial.toml, if there is one and the spec does not give it.

    The trial may have been started on a machine with another number of cores.

    Raises:
        ConfigError: the file is not TOML, or its number is invalid.
    """
    given = {**spec.settings, **trial.values}
    if "workers" in given or not trial.config.runtime.entry.workers_learn or not file.exists():
        return trial
    saved = _by_key(_tables_in(file)).get("runtime.workers", trial.config.runtime.workers)
    return trial_of(replace(spec, settings={**spec.settings, "workers": saved}), trial.number, trial.env, trial.values)


def require_same_trial(trial: Trial, file: Path) -> None:
    """Raise ConfigError, with the differences, if a trial.toml has other settings than the trial.

    Keys that were added in newer versions of offbeat may be missing.
    """
    if not file.exists():
        return
    saved, current = _by_key(_tables_in(file)), _by_key(trial.tables())
    differences = [
        change_text(key, value, current.get(key, "not known"))
        for key, value in saved.items()
        if current.get(key) != value
    ]
    if differences:
        raise ConfigError(
            f"{file} was started with other settings: {'; '.join(differences)}. The spec, a preset or a "
            "default has changed: restore it, or pass another --dir"
        )


def _tables_in(file: Path) -> dict[str, Any]:
    restore = "restore it, or pass another --dir"
    return read_toml(file, str(file), if_unreadable=restore, if_invalid=restore)


def _by_key(tables: dict[str, Any]) -> dict[str, Any]:
    """Return the values of all tables by 'table.key'. Tables in them are compared as a whole."""
    values: dict[str, Any] = {}
    for name, table in tables.items():
        values |= {f"{name}.{key}": value for key, value in table.items()} if isinstance(table, dict) else {name: table}
    return values
