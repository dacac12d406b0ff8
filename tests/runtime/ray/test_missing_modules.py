"""What a node says of a module that the user's code needs, and that is not there."""

from __future__ import annotations

import pytest

from offbeat.config.importing import import_found
from offbeat.core.errors import ConfigError, RunFailed
from offbeat.runtime.children.child_main import Failed
from offbeat.runtime.ray.missing_modules import naming_this_node

pytest.importorskip("ray", reason="Ray is not installed")


def test_a_missing_module_is_reported_with_the_node_and_the_remedy_and_forbids_a_restart(monkeypatch):
    monkeypatch.setattr("ray.util.get_node_ip_address", lambda: "10.0.0.2")
    with pytest.raises(RunFailed) as refused, naming_this_node("; or copy it"):
        import_found("only_here.envs")
    assert str(refused.value) == Failed.by(refused.value).no_restart_reason
    assert str(refused.value) == (
        "the module only_here is not on the node 10.0.0.2: install it there, or put it into a folder that all nodes see"
        "; or copy it"
    )


def test_another_error_of_a_module_is_reported_as_it_is(tmp_path, monkeypatch):
    (tmp_path / "broken_here.py").write_text("raise ValueError('no licence')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"broken_here cannot be imported.*no licence"), naming_this_node():
        import_found("broken_here")
