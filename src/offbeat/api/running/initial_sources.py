"""Which policy of another run gives a policy its initial weights, and whether its spaces are the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from offbeat.api.running.checkpoint_fit import OF_ENV
from offbeat.config.config import Config
from offbeat.core.errors import ConfigError
from offbeat.core.files import user_path
from offbeat.core.policy_names import DEFAULT_POLICY
from offbeat.core.types import in_brief
from offbeat.models.spec_file import read_spec
from offbeat.run_directory.checkpoint import SavedPolicy
from offbeat.run_directory.directory import RunDirectory
from offbeat.run_directory.store import LATEST


def require_sources(config: Config, specs: Mapping[str, object]) -> None:
    """Refuse initial weights that are missing, or that are of other spaces than those of the policies of a new run.

    Args:
        config: the config of the new run.
        specs: the spec of each of its policies.

    Raises:
        ConfigError: with the run, and the policy that it lacks or the spaces that differ.
    """
    runs = config.initial_runs
    read = {}
    for run in dict.fromkeys(runs.values()):
        read[run] = RunDirectory.open(Path(run)).read_checkpoint(LATEST, with_state=False)
    for policy, run in runs.items():
        saved = read[run].policies
        source = source_of(policy, config, list(saved), user_path(run))
        _require_spaces(policy, config, saved[source], specs[policy], user_path(run))


def source_of(policy: str, config: Config, names: Sequence[str], run: Path) -> str:
    """Return the name of the policy of another run whose weights a policy takes.

    Args:
        policy: the policy of the new run.
        config: the config of the new run.
        names: the policies of the other run.
        run: its run directory, for messages.

    Raises:
        ConfigError: there is no such policy.
    """
    chosen = config.policies[policy].init_policy if policy in config.policies else None
    if chosen is None and policy in names:
        return policy
    if chosen is None and len(names) == 1:
        return names[0]
    if chosen is not None and chosen in names:
        return chosen
    missing = "none with this name" if chosen is None else f"no policy {chosen!r}"
    remedy = f'write init_policy = "{names[0]}" in [policies.{policy}], or another of these names'
    if policy == DEFAULT_POLICY:
        remedy = "write a table [policies.NAME] with init_policy, and pass it with --policies FILE.toml"
    raise ConfigError(
        f"the policy {policy} is to start with weights of {run}, which has the policies {', '.join(names)}, but "
        f"{missing}: {remedy}"
    )


def _require_spaces(policy: str, config: Config, saved: SavedPolicy, spec: object, run: Path) -> None:
    """Refuse the weights of a policy that was trained with other spaces.

    Args:
        policy: the policy of the new run.
        config: the config of the new run.
        saved: the policy whose weights it takes.
        spec: the spec of the policy of the new run.
        run: the run directory of the other one.

    Raises:
        ConfigError: with the differences.
    """
    before = read_spec(saved.about.get("policy"))
    both = {name: (getattr(before, name), getattr(spec, name)) for name in OF_ENV}
    differences = [
        f"{name} is {in_brief(old)} there and {in_brief(new)} now" for name, (old, new) in both.items() if old != new
    ]
    if differences:
        name = "" if policy == DEFAULT_POLICY else f"the policy {policy} of "
        raise ConfigError(
            f"the weights of {run}, trained on {saved.about['env']}, do not fit {name}{config.run.env}: "
            f"{'; '.join(differences)}. Use weights that were trained with the same observations and actions"
        )
