"""The end of a node of a Ray cluster: what computes on it for a run ends with it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from offbeat.runtime.children.child_main import PR_SET_PDEATHSIG
from offbeat.runtime.children.process_groups import GROUPS


def end_with_node() -> None:
    """End this process, with all that its envs start, when the process of its node ends, even if it was stopped."""
    if os.getpgid(0) != os.getpid():
        os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    GROUPS.add(os.getpid())
