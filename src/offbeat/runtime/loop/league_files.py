"""Writes the snapshots of a run's league into its run directory."""

from __future__ import annotations

from time import monotonic

from offbeat.models.published import published_layout
from offbeat.run_directory.checkpoint import SavedPolicy
from offbeat.runtime.loop.run_services import RunServices
from offbeat.runtime.loop.saving import policy_json
from offbeat.runtime.parts import PacedParts, PacedPolicy


class LeagueSnapshotFiles:
    """The snapshots on disk: those of the window, and with `keep_all` all earlier ones.

    If writing fails, training continues, and the snapshot is written with the next one, while it is in the window.
    """

    def __init__(self, parts: PacedParts, services: RunServices) -> None:
        assert parts.league is not None
        assert parts.config.league is not None
        self._parts, self._league, self._keep_all = parts, parts.league, parts.config.league.keep_all
        self._store, self._warn = services.directory.snapshot_store(), services.warn
        self._presence = services.directory.presence()
        self._taken: dict[str, int] = {}
        """Policy -> number of its snapshots at the last call of `update`."""

    def update(self) -> None:
        """Write the snapshots that were taken since the last call, and delete those that are not kept.

        The first call also makes good what a run that has crashed has left: it deletes the snapshots that were taken
        after the checkpoint from which the run has been resumed, and writes those of the window that are missing.

        Raises:
            RunDirectoryGone: the run directory does not exist any more.
        """
        for policy in self._parts.policies:
            taken = len(self._league.table.snapshots[policy.name])
            if taken != self._taken.get(policy.name):
                self._taken[policy.name] = taken
                started = monotonic()
                self._update(policy, taken)
                self._parts.timings.add("checkpoint", monotonic() - started)

    def _update(self, policy: PacedPolicy, taken: int) -> None:
        window = self._league.window(policy.name)
        self._store.keep(policy.name, range(taken) if self._keep_all else window)
        try:
            for number in sorted(set(window) - set(self._store.numbers(policy.name))):
                self._store.save(policy.name, number, self._saved(policy, number))
        except OSError as error:
            self._presence.require(at_once=True)
            self._warn(f"a snapshot of the league could not be written ({error}): the run continues")

    def _saved(self, policy: PacedPolicy, number: int) -> SavedPolicy:
        weights = published_layout(policy.spec).views(self._league.snapshot(policy.name, number))
        numbers = vars(self._league.table.snapshots[policy.name][number])
        return SavedPolicy(weights, policy_json(self._parts.config, policy, numbers))
