"""Groups runs that differ only in the seed, and names each group by the settings that differ between the groups."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count
from math import prod
from pathlib import Path
from typing import Any, Protocol, TypeVar

from offbeat.config.runtime_config import CHANGED_BY_AUTO_LAYOUT
from offbeat.config.runtimes import RUNTIMES
from offbeat.metrics.text import first_few
from offbeat.plots.figures import literal
from offbeat.plots.runs import MEMBER, POLICY, POPULATION, PlottedRun
from offbeat.run_directory.names import TRIAL

SEED, ENV, ALGORITHM, DIRECTORY = "run.seed", "run.env", "run.algorithm", "directory"
LABEL = "label"
"""Key in the settings with the label that the caller has given to a run."""
_PRESET, _RUNTIME, _MAX_LAG = "run.preset", "runtime.runtime", "runtime.max_lag"
_LAYOUT = tuple(f"runtime.{key}" for key in CHANGED_BY_AUTO_LAYOUT)


class HasSettings(Protocol):
    """A run with the settings that distinguish it."""

    @property
    def settings(self) -> Mapping[str, Any]: ...


R = TypeVar("R", bound=HasSettings)


def group_by_settings(runs: Sequence[R]) -> list[list[R]]:
    """Return groups of runs that differ only in the seed."""
    groups: dict[str, list[R]] = {}
    for run in runs:
        groups.setdefault(_without_seed(run), []).append(run)
    return list(groups.values())


def _without_seed(run: HasSettings) -> str:
    settings = {key: value for key, value in run.settings.items() if key != SEED}
    return json.dumps(settings, sort_keys=True, default=str)


def distinguished(runs: Mapping[Path, Sequence[PlottedRun]]) -> list[PlottedRun]:
    """Add the name of the directory, or of the trial, to the settings of runs that have the config and seed of another.

    Twins are runs with equal settings but for the seed. If they have several seeds, the first run with each seed gets
    no name, so that these are one group; but twins of which some are sessions of one trial all have the name of theirs.
    """
    each = [(directory, run) for directory, policies in runs.items() for run in policies]
    twins: dict[str, list[tuple[Path, Any]]] = {}
    for directory, run in each:
        twins.setdefault(_without_seed(run), []).append((directory, run.settings.get(SEED)))
    names_of = {key: _names_of({directory for directory, _ in pairs}) for key, pairs in twins.items()}
    earlier: set[tuple[str, Any]] = set()
    result = []
    for directory, run in each:
        key, seed = _without_seed(run), run.settings.get(SEED)
        names, seeds = set(names_of[key].values()), {seed for _, seed in twins[key]}
        first_are_a_group = len(seeds) > 1 and len(names) == len(twins[key])
        unnamed = len(seeds) == len(twins[key]) or (first_are_a_group and (key, seed) not in earlier)
        earlier.add((key, seed))
        result.append(run if unnamed else replace(run, settings={**run.settings, DIRECTORY: names_of[key][directory]}))
    return result


def _names_of(directories: Collection[Path]) -> dict[Path, str]:
    """Return the name of each run directory, or of its trial: the last parts of its path, as many as make names differ.

    Sessions of one trial have one name.
    """
    folders = {path: path.parent if (path.parent / TRIAL).is_file() else path for path in directories}
    parts = {path: folder.absolute().parts for path, folder in folders.items()}
    different = set(parts.values())
    length = next(n for n in count(1) if len({each[-n:] for each in different}) == len(different))
    return {path: "/".join(each[-length:]) for path, each in parts.items()}


def labeled(runs: Mapping[Path, Sequence[PlottedRun]], labels: Mapping[Path, str]) -> dict[Path, list[PlottedRun]]:
    """Put the label of each directory in place of the settings that are equal in all runs with this label."""
    result: dict[Path, list[PlottedRun]] = {}
    for label in dict.fromkeys(labels.values()):
        own = [path for path in runs if labels[path] == label]
        kept = {ENV, ALGORITHM, SEED, POLICY, MEMBER, *_differing([run.settings for path in own for run in runs[path]])}
        for path in own:
            result[path] = [replace(run, settings={LABEL: label, **_only(kept, run.settings)}) for run in runs[path]]
    return {path: result[path] for path in runs}


def _only(keys: Collection[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key in keys}


def seeds_of(group: Sequence[HasSettings]) -> str:
    """Return 'seed 3', '5 seeds', or '5 runs' if two have the same seed; nothing for a member of a population."""
    if MEMBER in group[0].settings:
        return ""
    seeds = [run.settings.get(SEED, "?") for run in group]
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    return f"{len(seeds)} {'seeds' if len(set(seeds)) == len(seeds) else 'runs'}"


# --- labels -------------------------------------------------------------------------------------------------

MAX_KEYS = 4
"""Usual maximum number of settings in a label."""


def labels_of(panels: Sequence[Sequence[Mapping[str, Any]]]) -> list[list[str]]:
    """Return the labels of the groups of each panel, such as 'clip 0.1, epochs 4': the settings that differ.

    Settings beyond MAX_KEYS are counted. Where two groups would have the same label, those in which they differ come
    first, and labels are as long as they need to be.

    Args:
        panels: Settings of each group of each panel. A setting is named in all panels if it differs in one of them.
    """
    differing = list(dict.fromkeys(key for groups in panels for key in _differing(groups)))
    labels = _labels(panels, differing, MAX_KEYS)
    if deciding := _omitted(panels, labels):
        first = (LABEL, ALGORITHM, ENV, *deciding)
        differing.sort(key=lambda key: key not in first)
        for number in range(MAX_KEYS, max(MAX_KEYS, len(differing)) + 1):
            labels = _labels(panels, differing, number, deciding)
            if not _omitted(panels, labels):
                break
    return labels


def _omitted(panels: Sequence[Sequence[Mapping[str, Any]]], labels: Sequence[Sequence[str]]) -> set[str]:
    """Return the keys that distinguish groups with the same label in a panel."""
    return {key for groups, own in zip(panels, labels, strict=True) for key in _differing_in_twins(groups, own)}


def _labels(
    panels: Sequence[Sequence[Mapping[str, Any]]],
    differing: Sequence[str],
    max_keys: int,
    deciding: Collection[str] = (),
) -> list[list[str]]:
    algorithms = {group.get(ALGORITHM) for groups in panels for group in groups}
    return [
        [
            _label(group, [key for key in differing if _is_comparable(key, group, algorithms)], max_keys, deciding)
            for group in groups
        ]
        for groups in panels
    ]


def _differing_in_twins(groups: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> set[str]:
    """Return the keys whose values differ between groups with one label, which omits these keys."""
    alike = [[group for group, own in zip(groups, labels, strict=True) if own == label] for label in set(labels)]
    return {key for twins in alike if len(twins) > 1 for key in _differing(twins)}


def _differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys whose values differ, and that of a given label.

    Settings of an algorithm are compared between runs of this algorithm, those of a policy between runs that have it.
    Presets are compared between runs of one algorithm on one env, and layouts and lags that follow from the runtime
    between runs with one runtime: otherwise they say nothing more.
    """
    keys = dict.fromkeys(key for each in settings for key in each if key != SEED)
    return [key for key in keys if key == LABEL or _differs(key, settings)]


def _differs(key: str, settings: Sequence[Mapping[str, Any]]) -> bool:
    algorithms = {each.get(ALGORITHM) for each in settings}
    shared = (ALGORITHM, ENV) if key == _PRESET else (_RUNTIME,) if _follows_from_runtime(key, settings) else ()
    values: dict[Any, set[str]] = {}
    for each in settings:
        if _is_comparable(key, each, algorithms):
            values.setdefault(tuple(map(each.get, shared)), set()).add(json.dumps(each.get(key), default=str))
    return any(len(different) > 1 for different in values.values())


def _follows_from_runtime(key: str, settings: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether each run has its runtime's default lag, or a layout that leaves a batch the same columns."""
    if key == _MAX_LAG:
        defaults = {name: entry.default_max_lag for name, entry in RUNTIMES.items()}
        return all(each.get(key) == defaults.get(str(each.get(_RUNTIME))) for each in settings)
    return key in _LAYOUT and len(set(map(_batch_columns, settings))) == 1


def _batch_columns(settings: Mapping[str, Any]) -> int:
    """Return the number of columns of a batch; auto layout does not change it."""
    actors, envs, unrolls = (
        settings.get(f"runtime.{key}") for key in ("actors", "envs_per_actor", "unrolls_per_batch")
    )
    unrolls = unrolls if isinstance(unrolls, int) else actors
    return prod(value for value in (unrolls, envs) if isinstance(value, int))


def _is_comparable(key: str, settings: Mapping[str, Any], algorithms: set[Any]) -> bool:
    """Return whether a run has the table of a key; all have those that belong to no policy and no algorithm."""
    owners = [algorithm for algorithm in algorithms if key.startswith(f"{algorithm}.")]
    if owners:
        return bool(settings.get(ALGORITHM) == max(owners, key=len))  # a name may have dots: my_package.module:MyPPO
    if not key.startswith("policies."):
        return True
    of_policy = ".".join(key.split(".")[:2])
    return any(other.startswith(f"{of_policy}.") for other in settings)


def _label(settings: Mapping[str, Any], differing: Sequence[str], max_keys: int, deciding: Collection[str]) -> str:
    if MEMBER in settings:  # its other settings have changed during the run
        differing = [key for key in (LABEL, POPULATION, MEMBER, POLICY) if key in differing or key == MEMBER]
    elif LABEL in settings:
        implied = {ALGORITHM, ENV} - set(deciding)  # the label stands for them, unless two curves have the same one
        differing = [key for key in differing if key in settings and key not in implied]
    unset = [key for key in (LABEL, POPULATION, MEMBER, DIRECTORY) if key not in settings]
    differing = [key for key in differing if key not in unset]
    return ", ".join(first_few([_named(key, settings.get(key)) for key in differing], max_keys))


def _named(key: str, value: Any) -> str:
    """Return a setting with its value. Only the caller's label may have formulas."""
    return str(value) if key == LABEL else literal(_text_of(key, value))


def _text_of(key: str, value: Any) -> str:
    if key == POLICY:
        return "all agents" if value is None else f"policy {value}"
    if key in (ALGORITHM, ENV, _RUNTIME, POPULATION, DIRECTORY):
        return str(value)
    table, _, name = key.rpartition(".")
    if table.startswith("policies."):
        name = f"{name} of {table.split('.')[1]}"
    return f"{name} -" if value is None else f"{name} {value}"
