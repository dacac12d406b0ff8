"""What is drawn: a panel for each metric on each env, with groups of runs and their names in the legend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from offbeat.core.errors import ConfigError
from offbeat.core.messages import ignore
from offbeat.metrics.text import compact
from offbeat.plots.alignment import can_be_paired
from offbeat.plots.labels import ENV, distinguished, group_by_settings, labeled, labels_of, seeds_of
from offbeat.plots.runs import PlottedRun, XAxis, metrics_of, read_run


@dataclass(frozen=True)
class Panel:
    """What one pair of axes shows: the groups of runs on one env, with one metric."""

    env: str
    metric: str
    groups: list[list[PlottedRun]]


def read_panels(
    directories: Sequence[Path],
    x: XAxis,
    metrics: Sequence[str],
    labels: Mapping[Path, str],
    notify: Callable[[str], None] = ignore,
) -> list[Panel]:
    """Read the panels of each metric in turn, one for each env.

    Args:
        directories: Paths of run directories.
        x: Quantity on the x axis.
        metrics: "return", or names of metrics.
        labels: Labels of the directories; empty without labels.
        notify: Called with a message that names the runs without one of the metrics.

    Raises:
        ConfigError: a directory is not a run or has no returns yet, or no run has one of the metrics.
    """
    panels = []
    for metric in dict.fromkeys(metrics):
        found = {path: read_run(path, x, metric) for path in directories}
        if not any(found.values()):
            raise _unknown_metric(metric, directories)
        if lacking := [str(path) for path, runs in found.items() if not runs]:
            notify(f"left out, because {metric} is missing there: {', '.join(lacking)}")
        runs = distinguished(labeled(found, labels) if labels else found)
        panels += [
            Panel(env, metric, group_by_settings([run for run in runs if _env(run) == env]))
            for env in dict.fromkeys(map(_env, runs))
        ]
    return panels


def _env(run: PlottedRun) -> str:
    return str(run.settings.get(ENV, "?"))


def _unknown_metric(metric: str, directories: Sequence[Path]) -> ConfigError:
    known = sorted(set().union(*map(metrics_of, directories)))
    similar = [name for name in known if metric in name][:5] or get_close_matches(metric, known, n=3)
    remedy = f"pass return, or one of {', '.join(known)}" if known else "no metrics are there yet: train longer first"
    remedy = f"did you mean {' or '.join(similar)}?" if similar else remedy
    runs = str(directories[0]) if len(directories) == 1 else f"each of the {len(directories)} runs"
    return ConfigError(f"the metric {metric} is missing in {runs}: {remedy}")


# --- ends of curves -----------------------------------------------------------------------------------------

_EARLY = 0.9
"""A curve of several seeds that goes less far than this part of the longest one is named."""
UNITS: Mapping[XAxis, str] = {"steps": "env steps", "frames": "frames", "time": "seconds"}
"""Units of the x axes."""


def ended_early(panels: Sequence[Panel], names: Sequence[Sequence[str]], x: XAxis) -> list[str]:
    """Return the curves of several seeds that end early, because one of the seeds does; each with this seed.

    A seed without evaluations ends their curve at 0. Over time only such seeds count, because speeds differ.
    """
    several_envs = len({panel.env for panel in panels}) > 1
    found = []
    for panel, each in zip(panels, names, strict=True):
        for group, name in zip(panel.groups, each, strict=True):
            curve = "".join(f"{part}, " for part in (panel.env if several_envs else "", name) if part)
            found += [f"{curve}{end}" for end in _early_ends(group, x)]
    return list(dict.fromkeys(found))


def _early_ends(group: Sequence[PlottedRun], x: XAxis) -> Iterator[str]:
    """Yield where the training curve and the evaluation curve of a group end, if that is early."""
    kinds = {"": [run.training for run in group], "evaluations of ": [run.evaluation for run in group]}
    for kind, curves in kinds.items():
        ends = [float(curve.x.max(initial=0.0)) for curve in curves]
        least, most = min(ends), max(ends)
        is_early = (least < _EARLY * most and x != "time") or least == 0 < most
        if is_early and not can_be_paired(curves):
            yield f"{kind}{seeds_of([group[ends.index(least)]])} after {compact(least)} of {compact(most)} {UNITS[x]}"


# --- names of groups ----------------------------------------------------------------------------------------


def names_of(panels: Sequence[Panel], labels: Sequence[str]) -> list[list[str]]:
    """Return the name of each group of each panel: its label, or the settings that differ between the groups.

    Args:
        panels: The panels.
        labels: One label for each group; empty if there are none, or if the runs have labels already.

    Raises:
        ConfigError: the number of labels is not that of the groups.
    """
    names = _names_with_seeds(panels, labels_of([[group[0].settings for group in panel.groups] for panel in panels]))
    return _replaced(names, labels, panels) if labels else names


def _names_with_seeds(panels: Sequence[Panel], names: Sequence[Sequence[str]]) -> list[list[str]]:
    """Add the seeds to the names of groups, if a group beside others has no other name, or if the seeds differ.

    With several envs the titles of the panels have the seeds that differ.
    """
    several_envs = len({panel.env for panel in panels}) > 1
    seeds = {} if several_envs else _differing_seeds([group for panel in panels for group in panel.groups])
    return [
        [
            _with_seeds(name, seeds.get(id(group), "" if name or len(each) == 1 else seeds_of(group)))
            for group, name in zip(panel.groups, each, strict=True)
        ]
        for panel, each in zip(panels, names, strict=True)
    ]


def _replaced(names: Sequence[Sequence[str]], labels: Sequence[str], panels: Sequence[Panel]) -> list[list[str]]:
    """Return the labels in place of the names, one for each different name. Raises as `names_of`."""
    distinct = list(dict.fromkeys(name for each in names for name in each))
    envs = {panel.env for panel in panels}
    if len(envs) > 1 and len(distinct) == 1:
        raise ConfigError(
            f"{len(labels)} {'label is' if len(labels) == 1 else 'labels are'} given, but {len(envs)} envs have a "
            "panel with one curve each, and the titles of the panels name them: leave the label out, or pass one for "
            "each run"
        )
    if len(labels) != len(distinct):
        raise _wrong_number_of_labels(labels, panels, distinct)
    given = dict(zip(distinct, labels, strict=True))
    return [[given[name] for name in each] for each in names]


def _differing_seeds(groups: Sequence[Sequence[PlottedRun]]) -> dict[int, str]:
    """Return the seed, or the number of seeds, of each group by its id, if they are not the same in all groups."""
    of_groups = {id(group): seeds_of(group) for group in groups}
    return of_groups if len(set(of_groups.values())) > 1 else {}


def _with_seeds(name: str, seeds: str) -> str:
    return f"{name} ({seeds})" if name and seeds else name or seeds


def _wrong_number_of_labels(labels: Sequence[str], panels: Sequence[Panel], names: Sequence[str]) -> ConfigError:
    runs = max(sum(map(len, panel.groups)) for panel in panels)
    curves = f"{len(names)} curves ({'; '.join(names)})" if len(names) > 1 else "1 curve"
    return ConfigError(
        f"{len(labels)} {'label is' if len(labels) == 1 else 'labels are'} given, but "
        f"{runs} {'run makes' if runs == 1 else 'runs make'} {curves}: "
        "pass one label for each run, or one for each curve"
    )
