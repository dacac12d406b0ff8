"""What `train` and `resume` prepare in the same way: the progress view, the code, and the parts of a run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread, current_thread, main_thread
from time import monotonic
from typing import TYPE_CHECKING

from offbeat.api.running.compiled_modules import import_compiled
from offbeat.config.config import Config
from offbeat.config.importing import import_modules
from offbeat.core.process.allocator import keep_freed_memory
from offbeat.core.process.caller_state import CallerState
from offbeat.core.process.threads import start_thread
from offbeat.metrics.progress.views import ProgressKind, View

if TYPE_CHECKING:
    from offbeat.runtime.parts import Parts

REMIND_S = 60.0
"""Seconds between reminders that something in this thread still runs."""


def view_on_stderr(kind: ProgressKind | None) -> View:
    """Return the progress view that `progress` of `train` and `resume` selects. It writes to standard error."""
    from offbeat.metrics.progress.dashboard import make_view

    return make_view(kind, sys.stderr)


def load_code(config: Config, view: View, caller: CallerState) -> None:
    """Import the modules that the config names, and those that are compiled."""
    import_modules(config.run.imports)
    caller.save_library_settings()
    import_compiled(config, view.message)


def prepare(config: Config, view: View) -> Parts:
    """Check the env and the settings, and create the parts of the learner, or those that lock-free workers share.

    The code of the run is loaded already.
    """
    keep_freed_memory()
    with notifying_if_slow(f"testing {config.run.env}", view.message):
        from offbeat.runtime.devices import set_up_device
        from offbeat.runtime.runtimes import build

        set_up_device(config)
        parts: Parts = build(config, view.message)
        return parts


@contextmanager
def notifying_if_slow(what: str, notify: Callable[[str], None]) -> Iterator[None]:
    """Notify the user again and again that `what` still runs in this thread, where no other process could end it."""
    finished, started = Event(), monotonic()
    remedy = "press Ctrl-C" if current_thread() is main_thread() else "kill the process"

    def remind() -> None:
        while not finished.wait(REMIND_S):
            notify(f"still {what} after {monotonic() - started:.0f} s: if it hangs, {remedy}")

    reminder = Thread(target=remind, name="offbeat reminder", daemon=True)
    start_thread(reminder)
    try:
        yield
    finally:
        finished.set()
        reminder.join()
