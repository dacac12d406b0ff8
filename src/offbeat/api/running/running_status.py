"""Writes status.json of a running run: its phase and its processes."""

from __future__ import annotations

from collections.abc import Mapping

from offbeat.metrics.progress import Progress
from offbeat.metrics.status import About, Status
from offbeat.run_directory.directory import RunDirectory


class RunningStatus:
    """A view of a run that writes its phase into status.json when it changes, and shows all to another view."""

    def __init__(self, directory: RunDirectory, view: Progress) -> None:
        self._directory, self._view = directory, view
        self._phase = "starting"
        self._processes: dict[str, Mapping[int, int]] = {}

    def set_processes(self, role: str, pids: Mapping[int, int]) -> None:
        """Write the process ids of all children of a role, by index."""
        self._processes[role] = pids
        self._write()

    def start(self, about: About) -> None:
        self._view.start(about)

    def update(self, status: Status) -> None:
        collects = status.phase == "training" and status.first_batch is not None
        phase = "collecting" if collects else status.phase
        if phase != self._phase:
            self._phase = phase
            self._write()
        self._view.update(status)

    def message(self, text: str) -> None:
        self._view.message(text)

    def close(self, summary: str) -> None:
        self._view.close(summary)

    def _write(self) -> None:
        self._directory.write_status("running", phase=self._phase, children=self._processes)
