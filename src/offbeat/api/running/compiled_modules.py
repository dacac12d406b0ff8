"""Imports the modules that are compiled when they are imported for the first time on a machine."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from threading import Timer

from offbeat.config.config import Config
from offbeat.config.policies import names_of
from offbeat.core.process.threads import start_thread

SLOW_S = 2.0
"""Seconds after which the user is notified. An import of a module that was compiled earlier takes less."""


def import_compiled(config: Config, notify: Callable[[str], None]) -> None:
    """Import the compiled modules of all policies, before the run, because the clock of its speed does not run yet."""
    policies = [config.of_policy(name).algorithm_settings for name in names_of(config.policies)]
    modules = dict.fromkeys(module for settings in policies for module in settings.compiled_modules)
    if not modules:
        return
    slow = Timer(SLOW_S, notify, ["compiling the gradients for this machine: this takes some seconds, only once"])
    slow.name, slow.daemon = "offbeat reminder", True
    start_thread(slow)
    try:
        for module in modules:
            import_module(module)
    finally:
        slow.cancel()
        slow.join()
