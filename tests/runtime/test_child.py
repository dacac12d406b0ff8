from __future__ import annotations

import subprocess
import sys
from multiprocessing.connection import Pipe
from threading import Event, Timer
from typing import Any

from offbeat.runtime.child import Child


class SlowStream:
    """A stream that writes only once it is let go on."""

    def __init__(self) -> None:
        self.text, self.writes, self.may_write = "", Event(), Event()

    def write(self, text: str) -> None:
        self.writes.set()
        self.may_write.wait(timeout=60)
        self.text += text

    def flush(self) -> None:
        pass


def test_the_last_output_of_a_child_is_written_before_kill_returns(monkeypatch):
    stream = SlowStream()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("offbeat.runtime.child.LAST_REPORT_S", 60.0)
    ours, theirs = Pipe()
    command = [sys.executable, "-c", "print('last words')"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, process_group=0)
    theirs.close()
    any_pipe: Any = ours
    child = Child(0, process, any_pipe, None)
    assert stream.writes.wait(timeout=60)
    Timer(0.2, stream.may_write.set).start()
    child.kill()
    assert stream.text == "last words\n"
