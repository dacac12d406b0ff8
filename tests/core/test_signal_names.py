from __future__ import annotations

import signal

import pytest

from offbeat.core.signal_names import signal_name


@pytest.mark.parametrize(("number", "name"), [(signal.SIGKILL, "SIGKILL"), (40, "signal 40")])
def test_each_signal_that_can_kill_a_process_has_a_name_also_real_time_signals(number, name):
    assert signal_name(number) == name
