from __future__ import annotations

import signal

import pytest

from offbeat.core.process import kills
from offbeat.core.process.kills import killed_by, memory_kills, signal_name


@pytest.mark.parametrize(("number", "name"), [(signal.SIGKILL, "SIGKILL"), (40, "signal 40")])
def test_each_signal_that_can_kill_a_process_has_a_name_also_real_time_signals(number, name):
    assert signal_name(number) == name


def test_a_process_that_was_killed_while_memory_ran_out_is_told_apart(tmp_path, monkeypatch):
    counters = tmp_path / "vmstat"
    monkeypatch.setattr(kills, "_COUNTERS", counters)
    assert memory_kills() == 0  # another system
    counters.write_text("pgfault 12\noom_kill 3\nnuma_hit 5\n")
    assert killed_by(signal.SIGKILL, memory_kills()) == "SIGKILL"
    assert killed_by(signal.SIGKILL, 2) == "SIGKILL (perhaps because memory ran out)"
    assert killed_by(signal.SIGSEGV, 2) == "SIGSEGV"
