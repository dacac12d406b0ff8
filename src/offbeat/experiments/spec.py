"""The spec file of an experiment, read and checked. Only a search, or an unknown key, needs torch for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from offbeat.config.env import EVAL_KWARGS
from offbeat.config.importing import import_modules
from offbeat.config.keys import POLICIES, TABLES, flat_items
from offbeat.config.other_libraries import names_like, other_calls
from offbeat.config.policies import NO_POLICIES, Policies, read_policies, tables_of
from offbeat.config.policy_choice import choice_of
from offbeat.config.registry import algorithm_entry
from offbeat.config.resolve import setting_names
from offbeat.config.trust import Code, clusters_of, modules_in, policies_code, require, texts, wrappers_in
from offbeat.config.unknown_keys import unknown_key
from offbeat.core.errors import ConfigError, suggestion
from offbeat.core.fields import Natural
from offbeat.core.toml_files import read_toml
from offbeat.experiments.search import MOST_SESSIONS, Search, SessionCount, expect, read_search, refuse_duplicates
from offbeat.experiments.setting_types import for_settings
from offbeat.experiments.spec_notation import with_place

_KEYS = {
    "algorithm": str,
    "env": str,
    "envs": tuple[str, ...],
    "preset": str,
    "seeds": tuple[Natural, ...],
    "sessions": SessionCount,
    "target_return": float | None,
    "imports": tuple[str, ...],
}
_TABLES = ("settings", "search", "policies", "population")
_ELSEWHERE = {
    "name": "an experiment has the name of its file, and --dir sets its directory",
    **dict.fromkeys(("method", "trials", "over"), "it belongs under [search]"),
}
"""Keys that a spec does not have at its top -> what sets them."""
_MISPLACED = {
    **dict.fromkeys(_KEYS, "it belongs at the top of the file, above the tables"),
    "seed": "each session has its own: write seeds = [1, 2, 3], or sessions = 3, at the top of the file",
    "run_dir": "each session has its own directory in that of the experiment, which --dir sets",
    "env_kwargs": "write [settings.env.kwargs], and below it name = value for each argument of the env's constructor",
    "progress": "it is no setting; pass --progress to `offbeat run`",
    "verbose": "it is no setting; pass --progress to `offbeat run`",
    "callbacks": "a spec names no code of callbacks; pass them to offbeat.train in Python",
}
"""Keys that are not settings of a trial -> where they belong."""


@dataclass(frozen=True)
class Spec:
    """An experiment: its settings, its search space, and its seeds."""

    algorithm: str
    envs: tuple[str, ...]
    preset: str | None
    """As `--preset`: 'none' is the text, and selects none. None: the one for the algorithm and each env, if any."""
    seeds: tuple[int, ...]
    """Seeds of the sessions. Each trial has one session per seed."""
    target_return: float | None
    """Target return. The table has the time until it is first reached. None: no target."""
    imports: tuple[str, ...]
    settings: Mapping[str, Any]
    """Settings of all trials: keys that `offbeat train` accepts as flags or with --set."""
    search: Search | None
    policies: Policies = NO_POLICIES
    """The tables [policies.NAME] of all trials."""
    population: Mapping[str, Any] | None = None
    """The table [population], unchecked: the package `population` reads it. None: the spec is of an experiment."""
    where: str = "the spec"
    """The file, for messages."""
    caller_imports: tuple[str, ...] = ()
    """Modules that the caller has named. Each process imports them, but they do not define the sessions."""

    def identity(self) -> dict[str, Any]:
        """Return the part that defines the sessions. Specs that differ here are different experiments."""
        policies = [{"name": name, **table} for name, table in tables_of(self.policies).items()]
        return {
            "algorithm": self.algorithm,
            "envs": list(self.envs),
            "preset": self.preset,
            "imports": list(self.imports),
            "settings": dict(self.settings),
            "search": None if self.search is None else self.search.identity(),
            **({"policies": policies} if policies else {}),
            **({} if self.population is None else {"population": dict(self.population)}),
        }

    @property
    def trials_per_env(self) -> int | None:
        """Number of combinations of a random search or of Optuna; None for a grid or no search."""
        return None if self.search is None else self.search.trials


def read_spec(path: Path, *, imports: tuple[str, ...] = (), trust_code: bool = False) -> Spec:
    """Read a spec file.

    Args:
        path: Path of the file.
        imports: Modules to import first, here and in each process of a session or member.
        trust_code: Whether to import and call all code that it names.

    Raises:
        ConfigError: the file is missing or not TOML, a key or value is invalid, it names code that is not trusted, or
            an import fails.
    """
    import_modules(imports)
    tables = _read_tables(path)
    other_cluster = 'leave out ray_address and ray_runtime_env, or write ray_address = "auto"'
    require(Code.joined(_codes_of(tables)), str(path), trust_code=trust_code, other_cluster=other_cluster)
    return replace(spec_of(tables, str(path)), caller_imports=imports)


def is_population(path: Path) -> bool:
    """Whether a spec file has the table [population]. Raises as `read_spec` if it cannot be read."""
    return "population" in _read_tables(path)


def _read_tables(path: Path) -> dict[str, Any]:
    begin = 'a spec begins with algorithm = "ppo" and env = "CartPole-v1"'
    form = f"{begin}; then follow tables, such as [settings] with steps = 10_000"
    return read_toml(path, f"the spec {path}", if_unreadable="pass a TOML file", if_invalid=form)


def _codes_of(tables: Mapping[str, Any]) -> Iterator[Code]:
    """Yield all code that a spec and its files of policies name. Wrong values are skipped; they are refused later."""
    over = tables.get("search", {}).get("over") if isinstance(tables.get("search"), dict) else None
    settings = [dict(flat_items(table)) for table in (tables.get("settings"), over) if isinstance(table, dict)]
    encoders = [value for table in settings for key, value in table.items() if key.rpartition(".")[2] == "encoder"]
    yield Code(modules_in(tables.get("imports")))
    yield from (Code(envs=(env,)) for key in ("env", "envs") for env in texts(tables.get(key)))
    yield from (Code(algorithms=(algorithm,)) for algorithm in texts(tables.get("algorithm")))
    yield from (Code(encoders=(encoder,)) for value in encoders for encoder in texts(value))
    wrappers = [value for table in settings for key, value in table.items() if key.rpartition(".")[2] == "wrappers"]
    yield from (Code(wrappers=wrappers_in(text)) for value in wrappers for text in _all_texts(value))
    yield from (Code(clusters=clusters_of(table)) for table in settings)
    yield policies_code(tables.get("policies"))
    yield from (policies_code(_tables_named_by(text)) for table in settings for text in texts(table.get("policies")))


def _tables_named_by(policies: str) -> Mapping[str, Any] | None:
    """Return the tables of policies in the file that a value of `policies` names; None if it names none."""
    with suppress(ConfigError):
        return choice_of(policies).tables
    return None


def _all_texts(value: object) -> Iterator[str]:
    """Yield all strings in a value of a TOML file, at any depth: a search has lists of values that are lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        yield from (
            text for item in (value.values() if isinstance(value, dict) else value) for text in _all_texts(item)
        )


def spec_of(tables: Mapping[str, Any], where: str) -> Spec:
    """Return the spec in the tables of a TOML file. `where` is the file, for messages. Raises as `read_spec`."""
    for key in tables:
        if key not in (*_KEYS, *_TABLES):
            raise _unknown_key(key, tables[key], where)
    if isinstance(seed := tables.get("seeds"), int) and not isinstance(seed, bool):
        raise ConfigError(
            f"{where}: seeds is {seed}: write seeds = [{seed}] for this seed, or sessions = {seed} for {seed} seeds"
        )
    top = {key: expect(where, key, tables[key], hint) for key, hint in _KEYS.items() if key in tables}
    if "algorithm" not in top:
        raise ConfigError(f'{where} names no algorithm: write for example algorithm = "ppo" at its top')
    import_modules(top.get("imports", ()))
    try:
        algorithm_entry(top["algorithm"])
    except ConfigError as error:
        raise with_place(where, error) from error
    settings = _with_flat_keys(where, "settings", _table(where, tables, "settings"))
    searched = _table(where, tables, "search")
    if isinstance(searched.get("over"), dict):
        searched = {**searched, "over": _with_flat_keys(where, "search.over", searched["over"])}
    search = read_search(where, searched) if "search" in tables else None
    policies = read_policies(_table(where, tables, "policies"), where)
    _refuse_config_tables(where, top["algorithm"], settings)
    _refuse_misplaced_keys(where, settings, search)
    _check_policies(where, policies, settings, search)
    if search is not None:
        search = replace(search, over=for_settings(where, top["algorithm"], search.over))
    spec = Spec(
        algorithm=top["algorithm"],
        envs=_envs(where, top),
        preset=top.get("preset"),
        seeds=_seeds(where, top),
        target_return=top.get("target_return"),
        imports=top.get("imports", ()),
        settings=settings,
        search=search,
        policies=policies,
        population=_table(where, tables, "population") if "population" in tables else None,
        where=where,
    )
    _limit_sessions(spec)
    return spec


def _limit_sessions(spec: Spec) -> None:
    """Refuse a spec with more than `MOST_SESSIONS` sessions."""
    combinations = 1 if spec.search is None else spec.search.combinations
    if (count := combinations * len(spec.envs) * len(spec.seeds)) > MOST_SESSIONS:
        raise ConfigError(
            f"{spec.where} has {count:,} sessions (combinations of values: {combinations:,}, envs: {len(spec.envs):,}, "
            f"seeds: {len(spec.seeds):,}), but at most {MOST_SESSIONS:,} are expected: list fewer envs or "
            'seeds, or search fewer combinations, such as method = "random" with trials = 100'
        )


def _unknown_key(key: str, value: object, where: str) -> ConfigError:
    """Return the error for an unknown key at the top of a spec: the key that is meant, or else where it belongs."""
    settings = setting_names()
    if key in _ELSEWHERE or key in settings:
        remedy = _ELSEWHERE.get(key, "settings of a run belong under [settings]")
        return ConfigError(f"{where}: unknown key {key!r}: {remedy}")
    theirs = bool(names_like(key)) or key in other_calls()
    if not theirs and (meant := suggestion(key, (*_KEYS, *_TABLES), likeness=0.7)):
        return ConfigError(f"{where}: unknown key {key!r}.{meant}")
    own = "Settings of a run belong under [settings], of a search under [search], of a population under [population]."
    return with_place(where, unknown_key(key, value, settings, own))


def _with_flat_keys(where: str, name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of the spec with the keys of `flat_items`. `name`: that of the table.

    Raises:
        ConfigError: two of its keys give the same value.
    """
    values, given_by = dict[str, Any](), dict[str, str]()
    for outer, given in table.items():
        for key, value in flat_items({outer: given}):
            if key in values:
                raise ConfigError(
                    f"{where}: {key} is given twice under [{name}], by {given_by[key]!r} and by {outer!r}: keep one of "
                    "them"
                )
            values[key], given_by[key] = value, outer
    return values


def _check_policies(where: str, policies: Policies, settings: Mapping[str, Any], search: Search | None) -> None:
    """Refuse policies that are given in two ways, and tables of policies in lists: code that they name is not known."""
    over = {} if search is None else search.over
    if policies and ("policies" in settings or "policies" in over):
        raise ConfigError(
            f"{where}: policies is both a setting and the tables of {', '.join(policies)}: keep one of them"
        )
    choices = over["policies"].examples() if "policies" in over else ()
    if any(isinstance(choice, dict) for choice in choices):
        raise ConfigError(
            f"{where}: policies has tables under [search.over], but they belong at the top of the file: write "
            "[policies.NAME], or list files with such tables"
        )


def _table(where: str, tables: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = tables.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: {name} is {table!r}, but a table is expected: write [{name}], and its keys below")
    return table


def _envs(where: str, top: Mapping[str, Any]) -> tuple[str, ...]:
    envs: tuple[str, ...] = (top["env"],) if "env" in top else top.get("envs", ())
    if not envs or {"env", "envs"} <= top.keys():
        raise ConfigError(f'{where}: write either env = "CartPole-v1", or envs = [...] with at least one')
    refuse_duplicates(where, "envs", envs)
    return envs


def _seeds(where: str, top: Mapping[str, Any]) -> tuple[int, ...]:
    seeds: tuple[int, ...] = tuple(range(top["sessions"])) if "sessions" in top else top.get("seeds", ())
    if not seeds or {"seeds", "sessions"} <= top.keys():
        raise ConfigError(f"{where}: write either seeds = [1, 2, 3], or sessions = 3, which are the seeds 0, 1 and 2")
    refuse_duplicates(where, "seeds", seeds)
    return seeds


def _refuse_config_tables(where: str, algorithm: str, settings: Mapping[str, Any]) -> None:
    """Refuse the tables of a config.toml below [settings], which has the keys of all of them."""
    for name in ("run", "env", "runtime", algorithm):
        if isinstance(settings.get(name), dict):
            raise ConfigError(
                f"{where}: [settings.{name}] is a table of a config.toml: write its keys directly under [settings]"
            )


def _refuse_misplaced_keys(where: str, settings: Mapping[str, Any], search: Search | None) -> None:
    over = {} if search is None else search.over
    for key in settings:
        if key.startswith(POLICIES):
            raise ConfigError(
                f"{where}: {key} is under [settings], but it belongs in [policies.{key.split('.')[1]}] at the top of "
                "the file: write it there"
            )
    for table, keys in (("settings", settings), ("search.over", over)):
        for key in keys:
            if key in _MISPLACED:
                raise ConfigError(f"{where}: {key} is under [{table}]: {_MISPLACED[key]}")
    for key in over:
        if key == "eval_kwargs" or key.startswith(EVAL_KWARGS):
            raise ConfigError(
                f"{where}: {key} is under [search.over], but trials are compared by their evaluations, which must be "
                "in the same env: write it under [settings]"
            )
        if key in settings:
            raise ConfigError(f"{where}: {key} is both under [settings] and under [search.over]: keep one of them")
        _refuse_parts(where, key, {**dict.fromkeys(settings, "settings"), **dict.fromkeys(over, "search.over")})


def _refuse_parts(where: str, key: str, table_of: Mapping[str, str]) -> None:
    """Refuse values in a table that is searched over as a whole: they would replace those of each of its values.

    Args:
        where: the file of the spec, for messages.
        key: a key that is searched over.
        table_of: key -> the table of the spec that it is under.
    """
    prefix = TABLES.get(key, f"{key}.")
    if part := next((each for each in table_of if each.startswith(prefix)), None):
        raise ConfigError(
            f"{where}: {key} is searched over as a whole table, but {part} is under [{table_of[part]}]: write it into "
            f"each table of {key}, or search over {prefix}NAME"
        )
