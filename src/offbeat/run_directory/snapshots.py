"""The snapshots of a league on disk: frozen policies that can be loaded, and that can play in `offbeat match`.

    league/NAME/snapshot-000012/   manifest.json, weights.safetensors and policy.json, as in a checkpoint

NAME is that of the policy; in a run with one policy it is `default`. A snapshot is written to a temporary directory,
synced and renamed, so that each one that is found is complete. It is verified when it is loaded.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from offbeat.core.errors import ConfigError
from offbeat.core.files import sync
from offbeat.core.policy_names import DEFAULT_POLICY
from offbeat.run_directory.checkpoint import POLICY_NAME, Checkpoint, SavedPolicy, load
from offbeat.run_directory.store import TEMPORARY, delete_whole, write_whole

_SNAPSHOT = re.compile(r"snapshot-(\d{6,})")
_MOST_LISTED = 10


class SnapshotStore:
    """The snapshots of one run.

    Args:
        directory: Path of the directory; it is created by the first save.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def policies(self) -> list[str]:
        """The policies with snapshots, in alphabetical order."""
        folders = self._directory.glob("*")
        return sorted(path.name for path in folders if re.fullmatch(POLICY_NAME, path.name) and self.numbers(path.name))

    def numbers(self, policy: str) -> list[int]:
        """Return the ids of a policy's snapshots, the oldest first."""
        names = (path.name for path in (self._directory / policy).glob("snapshot-*") if path.is_dir())
        return sorted(int(found[1]) for found in map(_SNAPSHOT.fullmatch, names) if found)

    def load(self, policy: str, number: int) -> SavedPolicy:
        """Read a snapshot and verify it.

        Raises:
            ConfigError: there is no such snapshot, or it is damaged.
        """
        if not self._path(policy, number).is_dir():
            listed = _listed(self.numbers(policy))
            raise ConfigError(f"{self._directory.parent} has no snapshot {number}{_of(policy)}: {listed}")
        policies = load(self._path(policy, number), with_state=False).policies
        if policies.keys() != {DEFAULT_POLICY}:
            raise ConfigError(
                f"{self._path(policy, number)} has the policies {', '.join(policies)}, but a snapshot has one: the "
                "file was changed"
            )
        return policies[DEFAULT_POLICY]

    def save(self, policy: str, number: int, saved: SavedPolicy) -> None:
        """Write a snapshot atomically.

        Raises:
            OSError: it could not be written. Nothing of it is left.
        """
        path = self._path(policy, number)
        for folder in (self._directory, path.parent):
            if not folder.is_dir():
                folder.mkdir()
                sync(folder.parent)
        write_whole(path, Checkpoint({DEFAULT_POLICY: saved}, None))

    def keep(self, policy: str, numbers: Collection[int]) -> None:
        """Delete all other snapshots of a policy, and temporary files of a killed run.

        Errors are ignored: a file that cannot be deleted only takes space, and the next call tries again.
        """
        for path in (self._directory / policy).glob(f"{TEMPORARY}*"):
            shutil.rmtree(path, ignore_errors=True)
        for number in set(self.numbers(policy)) - set(numbers):
            with suppress(OSError):
                delete_whole(self._path(policy, number))

    def _path(self, policy: str, number: int) -> Path:
        return self._directory / policy / f"snapshot-{number:06d}"


def _of(policy: str) -> str:
    return "" if policy == DEFAULT_POLICY else f" of the policy {policy}"


def _listed(numbers: list[int]) -> str:
    """Say which snapshots there are."""
    if not numbers:
        return "it has none. Only a run with a league has snapshots"
    shown = ", ".join(map(str, numbers[-_MOST_LISTED:]))
    before = "..., " if len(numbers) > _MOST_LISTED else ""
    return f"it has {before}{shown}. A run with --set league.keep_all=true keeps all"
