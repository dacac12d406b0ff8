"""The command of a new run with other settings, as the remedy for what a resume cannot change."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from shlex import quote

from offbeat.config.assignments import env_kwargs_flag, set_flag
from offbeat.config.config import Config
from offbeat.config.env import KWARGS, EnvConfig
from offbeat.config.keys import CONSTRUCTOR_TABLES, ENCODER_KWARGS, flat, values_of
from offbeat.config.league import LEAGUE, LeagueConfig
from offbeat.config.policies import tables_of
from offbeat.config.preset_files import preset_tables
from offbeat.config.resolve import resolve
from offbeat.config.run_config import REPORTING, RunConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.config.trust import modules_of, policies_code
from offbeat.core.errors import ConfigError
from offbeat.core.field_definitions import flag_of, hints_of
from offbeat.core.field_texts import syntax_of
from offbeat.core.fields import read
from offbeat.core.frozen_table import EMPTY
from offbeat.core.typed_text import as_text

_FILE = Path("FILE.toml")
"""Stands for a file that the user writes."""
_RUN = ("steps", "seed", *REPORTING)
"""Keys of [run] that a new run has from another one by `_own`."""


def anew(config: Config, run: Path, given: Mapping[str, object]) -> str:
    """Return the remedy to start a new run with new weights and the settings of another one, with its command.

    Args:
        config: the config of the other run.
        run: its run directory.
        given: the settings of the new run, by key. They may have the algorithm and the env.
    """
    algorithm, env = str(given.get("algorithm", config.run.algorithm)), str(given.get("env", config.run.env))
    own = {**_world(config, run / "config.toml"), **_own(config, algorithm, env, given)}
    return f"start a new run: {_command(config, algorithm, env, own, given)}"


def from_weights(config: Config, run: Path, given: Mapping[str, object] = EMPTY) -> str:
    """Return the remedy to start a new run from the weights of a run, with its command.

    Args:
        config: the config of the run.
        run: the run directory.
        given: the settings of the new run, by key. They may have the env.
    """
    file, note, env = run / "config.toml", "", str(given.get("env", config.run.env))
    if "policies" not in given and any(
        policy.init_policy or (policy.train and policy.init_from) for policy in config.policies.values()
    ):
        note = f", where FILE.toml has the tables [policies.NAME] of {file} without init_from and init_policy"
        file = _FILE
    own = {"init_from": run, **_world(config, file), **_own(config, config.run.algorithm, env, given)}
    condition = "" if env == config.run.env else f", if {env} has the same observations and actions"
    command = _command(config, config.run.algorithm, env, own, given)
    return f"start a new run from this run's weights{condition}: {command}{note}"


def _world(config: Config, file: Path) -> dict[str, object]:
    """Return the policies of a run, which are in `file` if they have tables, and its league, by key."""
    world: dict[str, object] = {}
    if config.run.policies != "shared":
        world["policies"] = file if config.run.policies == "tables" else config.run.policies
    if config.league is not None:
        usual = asdict(LeagueConfig())
        own = {f"{LEAGUE}{key}": value for key, value in asdict(config.league).items() if value != usual[key]}
        world |= own or {"league": True}
    return world


def _own(config: Config, algorithm: str, env: str, given: Collection[str]) -> dict[str, object]:
    """Return the settings of a run that a new one does not have by itself, by key.

    With another algorithm these are only those of the tables [run] and [env]; in another env only the network, which
    must fit the weights, and the runtime.

    Args:
        config: the config of the run.
        algorithm: the algorithm of the new run.
        env: the env of the new run.
        given: keys of the new run. If the runtime is one of them, the settings of the runtime are left out.
    """
    values, runtime = values_of(config), config.runtime.runtime
    same_algorithm, same_env = algorithm == config.run.algorithm, env == config.run.env
    of_runtime = [*hints_of(RuntimeConfig)] if same_algorithm and "runtime" not in given else []
    if same_env:
        of_algorithm = hints_of(type(config.algorithm_settings)) if same_algorithm else {}
        keys = [*_RUN, *hints_of(EnvConfig), *of_runtime, *of_algorithm]
    else:
        keys = [
            *(["runtime"] if of_runtime else []),
            *(config.algorithm_settings.network_keys if same_algorithm else ()),
        ]
    usual_runtime = {} if runtime == _usual_runtime(config, env) or not of_runtime else {"runtime": runtime}
    for flags in (usual_runtime, {}):  # with its usual settings the runtime may be refused
        with suppress(ConfigError):  # the new algorithm or env may be misspelt
            usual = values_of(resolve(algorithm, env, flags=flags))
            own = flags | {key: values[key] for key in keys if values[key] != usual[key]}
            if "actors" in own:  # then split is given by itself, and the other way round
                own.pop("actors" if "split" in given else "split", None)
            return own
    return {}


def _usual_runtime(config: Config, env: str) -> object:
    """Return the runtime of a new run that is given none."""
    return preset_tables(config.run.algorithm, env, None).get("runtime", {}).get("runtime", RuntimeConfig.runtime)


def _command(config: Config, algorithm: str, env: str, own: Mapping[str, object], given: Mapping[str, object]) -> str:
    """Return the command that starts a run, in backticks.

    Args:
        config: the config of a run whose modules the new one imports too.
        algorithm: the algorithm of the new run.
        env: its env.
        own: its settings, by key.
        given: more of its settings, which are preferred to those.
    """
    changed = flat(given)
    tables = {**CONSTRUCTOR_TABLES, "encoder": ENCODER_KWARGS}  # another encoder has other arguments
    replaced = tuple(prefix for key, prefix in tables.items() if key in given)
    kept = {key: value for key, value in flat(own).items() if not key.startswith(replaced)}
    settings = {key: value for key, value in {**kept, **changed}.items() if key not in ("algorithm", "env")}
    if any(key.startswith(LEAGUE) for key in settings):
        settings.pop("league", None)
    given_modules = read("imports", settings.pop("imports", ()), hints_of(RunConfig)["imports"])
    modules = (*config.run.imports, *modules_of(policies_code(tables_of(config.policies))), *given_modules)
    imports = [f"--import {quote(module)}" for module in dict.fromkeys(modules)]
    return f"`{' '.join(['offbeat train', quote(algorithm), quote(env), *imports, *_flags(settings)])}`"


def _flags(settings: Mapping[str, object]) -> list[str]:
    """Return the flags that give a new run these settings, quoted as for a shell."""
    hints = {**hints_of(RunConfig), **hints_of(RuntimeConfig)}
    flags, assigned, arguments = [], {}, {}
    for key, value in settings.items():
        if key == "policies":
            flags.append(f"--policies {_policies_text(value)}")
        elif key == "preset":
            flags.append(f"--preset {quote(as_text(value))}")
        elif key in hints and flag_of(hints[key]):
            flags.append(syntax_of(key, hints[key], quote(as_text(value))))
        elif key.startswith(KWARGS):
            arguments[key.removeprefix(KWARGS)] = value
        else:
            assigned[key] = value
    return [flag for flag in (*flags, env_kwargs_flag(arguments), set_flag(assigned)) if flag]


def _policies_text(value: object) -> str:
    """Return the value of --policies. Tables and functions cannot be typed: a file stands for them."""
    return quote(str(value if isinstance(value, str | Path) else _FILE))
