"""A callback that writes down its calls, and what they must be in a run of any runtime."""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.runs import lines_of

import offbeat
from offbeat.run_directory.checkpoint import load as load_checkpoint

EVALUATED: dict[str, Any] = {
    "steps": 512, "eval_every": 256, "eval_episodes": 2, "checkpoint_every": 256, "evaluator": "inline"
}  # fmt: skip
"""Settings of a run with evaluations and checkpoints on the way."""
HOOKS = ("on_start", "on_metrics", "on_evaluation", "on_checkpoint", "on_end")


class Journal(offbeat.Callback):
    """Writes down its calls."""

    def __init__(self, entries: list[tuple[str, str]] | None = None, name: str = "journal") -> None:
        self.entries: list[tuple[str, str]] = [] if entries is None else entries
        self.name = name
        self.threads: set[tuple[int, int]] = set()
        self.checkpoints: list[Path] = []

    def note(self, hook: str) -> None:
        self.entries.append((self.name, hook))
        self.threads.add((os.getpid(), threading.get_ident()))

    def on_start(self) -> None:
        self.note("on_start")

    def on_metrics(self, line: dict[str, Any]) -> Any:  # noqa: ARG002
        self.note("on_metrics")

    def on_evaluation(self, results: dict[str, float | None]) -> Any:  # noqa: ARG002
        self.note("on_evaluation")

    def on_checkpoint(self, path: Path) -> None:
        load_checkpoint(path)
        self.checkpoints.append(path)
        self.note("on_checkpoint")

    def on_end(self) -> None:
        self.note("on_end")

    @property
    def calls(self) -> list[str]:
        return [hook for _, hook in self.entries]


def assert_called_once_for_each_event(journal: Journal, run: offbeat.Run) -> None:
    """Assert that a callback was called in this thread alone: once for the start, the end and each event of a run."""
    calls = journal.calls
    assert journal.threads == {(os.getpid(), threading.get_ident())}
    assert set(calls) == set(HOOKS)
    assert (calls[0], calls[-1]) == ("on_start", "on_end")
    assert (calls.count("on_start"), calls.count("on_end")) == (1, 1)
    assert calls.count("on_metrics") == len(lines_of(run.path))
    assert calls.count("on_evaluation") == run.metrics["evaluations"] > 0
    assert journal.checkpoints[-1].resolve() == (run.path / "checkpoints" / "latest").resolve()
    assert max(Counter(journal.checkpoints).values()) <= 2, "a checkpoint is told as the latest, and as the best one"
