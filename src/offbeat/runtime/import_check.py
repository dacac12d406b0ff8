"""Checks in a new process whether it finds, after its imports, an env that is not sent to it.

Without this check each actor would fail at its start, and be restarted until its budget is used up.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from offbeat.core.errors import ConfigError, with_notes_of
from offbeat.envs import sending
from offbeat.runtime.child import start_child
from offbeat.runtime.child_main import ChildContext, Report

LIMIT_S = 60.0
"""Seconds to wait for the imports. After that the run starts, and its processes report what they do not find."""


@dataclass(frozen=True)
class CheckLaunch:
    """The launch spec of the process that checks."""

    code: bytes
    """The env and the encoders, from `sending.package`."""
    parent: int = field(default_factory=os.getpid)
    """Process id of the parent, which makes this spec."""


def main(launch: CheckLaunch, child: ChildContext) -> None:
    """Register the env as an actor does, and report what is refused."""
    try:
        sending.unpack(launch.code)
    except ConfigError as error:
        child.report("refused", error)


def require_found(code: bytes) -> None:
    """Refuse an env that another process does not find after its imports.

    Args:
        code: the env and the encoders, from `sending.package`.

    Raises:
        NotSendable: with the reason.
        OSError: a process cannot be started.
    """
    refused: list[ConfigError] = []

    def on_report(report: Report) -> None:
        refused.append(report.content)

    child = start_child("offbeat.runtime.import_check", CheckLaunch(code), on_report=on_report)
    try:
        child.exits_within(LIMIT_S)
    finally:
        child.kill()
    if refused:
        raise with_notes_of(sending.NotSendable(str(refused[0])), refused[0])
