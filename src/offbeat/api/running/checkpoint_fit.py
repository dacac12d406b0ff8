"""Refuses a checkpoint whose policies differ from those of the current settings."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from offbeat.config.changes import Changed
from offbeat.config.config import Config
from offbeat.core.errors import ConfigError
from offbeat.core.policy_names import DEFAULT_POLICY
from offbeat.core.typed_text import as_text
from offbeat.core.types import in_brief

if TYPE_CHECKING:
    from offbeat.core.types import Tree
    from offbeat.run_directory.checkpoint import Checkpoint, SavedPolicy
    from offbeat.runtime.parts import Parts, PolicyParts

NAMED_ARRAYS = 3
"""Number of arrays that a message names."""
NOTHING: Changed = {}
OF_ENV = ("observation", "action", "no_decision")
"""Fields of a policy's spec that follow from the env."""


def require_checkpoint_fit(saved: Checkpoint, parts: Parts, run: Path) -> None:
    """Refuse a checkpoint whose policies or arrays differ from those of the current settings.

    Raises:
        ConfigError: with the differences.
    """
    names = [policy.name for policy in parts.policies]
    if list(saved.policies) != names:
        raise ConfigError(
            f"the checkpoint of {run} has the policies {', '.join(saved.policies)}, but these settings have "
            f"{', '.join(names)}: use the policies that it was trained with, as in {run / 'config.toml'}"
        )
    for policy in parts.policies:
        require_policy_fit(saved.policies[policy.name], policy, parts.config, run)


def require_policy_fit(
    saved: SavedPolicy, policy: PolicyParts, config: Config, run: Path, differing: Changed = NOTHING, remedy: str = ""
) -> None:
    """Refuse a saved policy whose spec or arrays differ from those of a policy with the current settings.

    Args:
        saved: from a checkpoint.
        policy: the policy of the new run.
        config: settings of the new run.
        run: run directory of the checkpoint, for messages.
        differing: the settings of the network that differ, if they are known: key -> value in the checkpoint and now.
            The message names them in place of what follows from them.
        remedy: what to pass so that they are the same. Where the env or the algorithm differs, it is left out: it would
            not be enough.

    Raises:
        ConfigError: with the differences.
    """
    if differences := _differences(saved, policy, differing):
        name = "" if policy.name == DEFAULT_POLICY else f" as the policy {policy.name}"
        is_enough = differences.keys().isdisjoint((*OF_ENV, "algorithm"))
        raise ConfigError(
            f"the checkpoint of {run}, trained on {saved.about['env']}, does not fit {config.run.env} with these "
            f"settings{name}: {'; '.join(differences.values())}. Use the env, the network and the normalisation that "
            f"it was trained with, as in {run / 'config.toml'}" + f": {remedy}" * bool(remedy and is_enough)
        )


def _differences(saved: SavedPolicy, policy: PolicyParts, differing: Changed) -> dict[str, str]:
    """Return the differences between a saved policy and the policy of a run: what differs -> a phrase about it."""
    from offbeat.models.spec import PolicySpec
    from offbeat.models.spec_file import read_spec

    spec, current = read_spec(saved.about.get("policy")), policy.spec
    both = {field.name: (getattr(spec, field.name), getattr(current, field.name)) for field in fields(PolicySpec)}
    differs = {name: tuple(map(in_brief, values)) for name, values in both.items() if values[0] != values[1]}
    arrays = sorted({name for name, _ in _shapes(saved.weights) ^ _shapes(policy.algorithm.weights())})
    if not differs and not arrays:
        return {}
    if differing:
        of_env = {name: values for name, values in differs.items() if name in OF_ENV}
        differs = {**of_env, **{key: _with_defaults(values, both.get(key)) for key, values in differing.items()}}
    if differs:
        return {name: f"{name} is {old} in the checkpoint and {new} now" for name, (old, new) in differs.items()}
    more = f" and {len(arrays) - NAMED_ARRAYS} more" if len(arrays) > NAMED_ARRAYS else ""
    names = f"{', '.join(arrays[:NAMED_ARRAYS])}{more}"
    return {"arrays": f"these arrays are missing in one of them, or have another shape: {names}"}


def _with_defaults(values: tuple[object, object], in_specs: tuple[object, object] | None) -> tuple[str, ...]:
    """Return a setting in the checkpoint and now as text, where it is none with what the spec of the policy has."""
    return tuple(
        f"none ({as_text(in_spec)})" if value == "none" and in_spec else as_text(value)
        for value, in_spec in zip(values, in_specs or (None, None), strict=True)
    )


def _shapes(weights: Tree) -> set[tuple[str, tuple[int, ...]]]:
    return {(name, array.shape) for name, array in weights.items()}
