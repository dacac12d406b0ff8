"""The file tracker.json: what a resume needs to continue the run at its tracker."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from offbeat.core.files import replace_file
from offbeat.core.strict_json import LARGEST_RECORD, read_json

_KNOWN = ("entity", "project", "name", "id")


@dataclass(frozen=True)
class TrackerFile:
    """The content of tracker.json."""

    tracker: str
    """Name of the tracker."""
    known: dict[str, str] = field(default_factory=dict)
    """What the tracker identifies the run by: its project, name and id; empty for a run that is new to it."""
    position: int = 0
    """Position in metrics.jsonl, in bytes, after the lines that the tracker has."""

    @classmethod
    def read(cls, path: Path, tracker: str) -> TrackerFile:
        """Read the run that a tracker has."""
        saved = cls.saved(path)
        return saved if saved is not None and saved.tracker == tracker else cls(tracker)

    @classmethod
    def saved(cls, path: Path) -> TrackerFile | None:
        """Read the file; None if there is none, or it is damaged.

        Everything else in it is left out: it would be arguments of the tracker, and others may have written the file.
        """
        with suppress(OSError, ValueError):
            saved = read_json(path, LARGEST_RECORD)
            if isinstance(tracker := saved.get("tracker"), str):
                known = {key: text for key in _KNOWN if isinstance(text := saved.get(key), str)}
                position = saved.get("position")
                return cls(tracker, known, position if isinstance(position, int) and position > 0 else 0)
        return None

    def within(self, metrics_size: int) -> TrackerFile:
        """Return the same for a metrics.jsonl of which a resume keeps only so many bytes."""
        return replace(self, position=min(self.position, metrics_size))

    def write(self, path: Path) -> None:
        """Replace the file.

        Raises:
            OSError: it cannot be written.
        """
        content = {"tracker": self.tracker, **self.known, "position": self.position}
        replace_file(path, (json.dumps(content, indent=1) + "\n").encode())
