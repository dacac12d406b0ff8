"""How the loss of Ray's process on this machine, and of the head of a cluster, is noticed: both are sockets here."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from offbeat.core.errors import ConfigError, RunFailed
from offbeat.runtime.ray import cluster_watch
from offbeat.runtime.ray.cluster_watch import TRIES, ClusterWatch

LOGS = ": look at the logs"


@pytest.fixture
def raylet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    monkeypatch.chdir(tmp_path)  # the path of such a socket must be short
    monkeypatch.setattr(cluster_watch, "ASK_HEAD_EVERY_S", 0.0)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("raylet")
        listening.listen()
        yield listening


def listening_head(port: int = 0) -> socket.socket:
    return socket.create_server(("127.0.0.1", port))


def test_a_raylet_that_ends_is_lost(raylet):
    with listening_head() as head, closing(ClusterWatch("raylet", f"127.0.0.1:{head.getsockname()[1]}", LOGS)) as watch:
        connection, _ = raylet.accept()
        watch.require()
        connection.close()
        for require in (watch.require_raylet, watch.require):
            with pytest.raises(RunFailed, match=f"Ray has ended on this machine.*{LOGS}$"):
                require()


def test_a_raylet_that_has_ended_before_is_lost(raylet):
    raylet.close()
    with closing(ClusterWatch("raylet", "127.0.0.1:1", LOGS)) as watch, pytest.raises(RunFailed, match="Ray has ended"):
        watch.require()


def test_a_raylet_that_is_too_busy_to_accept_a_connection_is_not_called_lost(raylet, monkeypatch):
    monkeypatch.setattr(cluster_watch, "CONNECT_S", 1)
    raylet.listen(0)
    with socket.socket(socket.AF_UNIX) as first:
        first.connect("raylet")  # the queue has room for one
        with pytest.raises(ConfigError, match=f"accepted no connection in 1 s{LOGS}$"):
            ClusterWatch("raylet", "127.0.0.1:1", LOGS)


def test_a_head_that_does_not_answer_several_times_in_a_row_is_lost(raylet):  # noqa: ARG001
    head = listening_head()
    port = head.getsockname()[1]
    with closing(ClusterWatch("raylet", f"127.0.0.1:{port}", LOGS)) as watch:
        watch.require()
        head.close()
        for _ in range(TRIES - 1):
            watch.require()
        with listening_head(port):
            watch.require()
        for _ in range(TRIES - 1):
            watch.require()
        with pytest.raises(RunFailed, match=f"the head of the Ray cluster at 127.0.0.1:{port} does not answer"):
            watch.require()
