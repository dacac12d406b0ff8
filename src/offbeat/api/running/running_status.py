"""Writes status.json of a running run: its phase and its processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from offbeat.metrics.progress.status import Status
from offbeat.run_directory.directory import RunDirectory


class RunningStatus:
    """The status of a run: shows it, and writes its phase into status.json when it changes."""

    def __init__(self, directory: RunDirectory, show: Callable[[Status], None]) -> None:
        self._directory, self._show = directory, show
        self._phase = "starting"
        self._processes: dict[str, Mapping[int, int]] = {}

    def set_processes(self, role: str, pids: Mapping[int, int]) -> None:
        """Write the process ids of all children of a role, by index."""
        self._processes[role] = pids
        self._write()

    def update(self, status: Status) -> None:
        """Show the status; called often."""
        collects = status.phase == "training" and status.first_batch is not None
        phase = "collecting" if collects else status.phase
        if phase != self._phase:
            self._phase = phase
            self._write()
        self._show(status)

    def _write(self) -> None:
        self._directory.write_status("running", phase=self._phase, children=self._processes)
