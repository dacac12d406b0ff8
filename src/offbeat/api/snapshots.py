"""The snapshots of a run's league as policies, and their average."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from offbeat.api.load import LoadedPolicy, load
from offbeat.run_directory.directory import RunDirectory

Snapshots = Literal["all", "window", "none"]


def load_snapshots(
    run: Path | str, which: Literal["all", "window"] = "all", *, trust_code: bool = False
) -> dict[str, dict[int, LoadedPolicy]]:
    """Load the snapshots of a run's league that are on disk: policy -> id -> snapshot, the oldest first.

    Args:
        run: a run directory.
        which: all, or only those of the window.
        trust_code: as for `load`.

    Raises:
        ConfigError: a snapshot is damaged, or names code that was refused.
    """
    directory = RunDirectory.open(Path(run), trust_code=trust_code)
    store, league = directory.snapshots(), directory.read_league()
    if league is None:
        return {}
    first = 0 if which == "all" else -league.window
    return {
        policy: {
            number: load(run, policy=policy, snapshot=number, trust_code=trust_code)
            for number in store.numbers(policy)[first:]
        }
        for policy in store.policies
    }
