"""The connection to a Ray cluster, and what is refused before anything runs on it."""

from __future__ import annotations

import logging
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from benchmarks.soak.processes import descendants
from tests.support import ray_clusters
from tests.support.ray_clusters import processes_of_ray
from tests.support.runs import run_python, wait_until
from tests.support.warm import REPOSITORY

from offbeat.core.errors import ConfigError
from offbeat.runtime.ray import cluster, connecting
from offbeat.runtime.ray.cluster import Cluster, Node


def test_the_raylet_of_a_node_that_ray_does_not_list_is_refused(connected: Cluster, monkeypatch) -> None:
    assert Path(connected.raylet).is_socket()
    monkeypatch.setattr(connected, "own_node", "another")
    with pytest.raises(ConfigError, match="Ray does not list the node of this process, another"):
        _ = connected.raylet


def test_resources_that_no_node_has_are_refused_with_what_there_is(connected: Cluster) -> None:
    connected.require({"CPU": 1, "other": 1}, "an actor", "")
    with pytest.raises(ConfigError, match=r"an actor needs 2 CPU, but no node has that.* with 1 CPU.*: pass less$"):
        connected.require({"CPU": 2}, "an actor", "pass less")


def test_nodes_with_another_version_of_a_package_are_refused(connected: Cluster) -> None:
    connected.require({}, "an actor")
    here = {**cluster.own_versions(), "torch": "1.0"}
    with (
        patch.object(cluster, "own_versions", return_value=here),
        pytest.raises(ConfigError, match=r"torch is \S+ on \S+ and 1.0 here. Install the same versions"),
    ):
        connected.require({}, "an actor")


def test_nodes_that_cannot_run_a_task_are_refused_with_the_reason_and_where_to_read_more(connected: Cluster) -> None:
    said = refusal_of_a_failing_node(connected)
    assert re.search(r"(?s)the nodes cannot run .* ray_runtime_env: .*no such package.*session_latest/logs$", said)


def test_a_connection_is_closed_to_its_end_if_a_step_fails():
    ended: list[str] = []

    def fail() -> None:
        raise OSError("Ray does not end")

    connection = Cluster("here:1", is_local=True, closing=[fail, lambda: ended.append("watchdog")])
    with pytest.raises(OSError, match="Ray does not end"):
        connection.close()
    assert ended == ["watchdog"]


def refusal_of_a_failing_node(connected: Cluster) -> str:
    def fail(_packages: object) -> None:
        raise RuntimeError("no such package")

    with patch.object(cluster, "_asking_versions", return_value=fail), pytest.raises(ConfigError) as refused:
        connected.require({}, "an actor")
    return str(refused.value)


def test_a_node_that_is_lost_before_it_says_its_versions_is_not_waited_for(connected: Cluster) -> None:
    lost = Node("1" * 56, "10.0.0.1", {"CPU": 1.0})
    with patch.object(connected, "nodes", return_value=[*connected.nodes(), lost]):
        connected.require({}, "an actor")


def test_keys_of_a_runtime_environment_that_ray_does_not_know_are_refused(monkeypatch) -> None:
    monkeypatch.delenv("RAY_RUNTIME_ENV_PLUGINS", raising=False)
    with pytest.raises(ConfigError, match=r"unknown key of ray_runtime_env 'env_var'\. Did you mean 'env_vars'\?"):
        connecting.connect(runtime_env={"pip": [], "env_var": {"A": "1"}})


# --- connections of their own -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def unconnected(nodes: Any) -> Any:
    """The cluster, to which this process is not connected."""
    ray_clusters.disconnect()
    return nodes


def test_connection_lists_the_resources_of_all_nodes_and_ends_when_it_is_closed(unconnected: Any) -> None:
    import ray

    with connecting.connect(unconnected.address) as connected:
        listed = sorted(str(node).partition(" with ")[2] for node in connected.nodes())
        assert listed == ["1 CPU", "1 CPU, 1 other"]
    assert not ray.is_initialized()


def test_workers_do_not_search_the_current_folder_for_modules(unconnected: Any, tmp_path: Path, monkeypatch) -> None:
    import ray

    monkeypatch.chdir(tmp_path)
    remote: Any = ray.remote
    with connecting.connect(unconnected.address):
        assert str(tmp_path) not in ray.get(remote(lambda: list(sys.path)).remote())


def test_connection_that_the_caller_has_made_is_used_and_stays(unconnected: Any) -> None:
    import ray

    ray.init(unconnected.address, logging_level=logging.ERROR)
    try:
        connecting.connect().close()
        assert ray.is_initialized()
        with pytest.raises(ConfigError, match=r"is connected to the Ray cluster .*, not to 10.0.0.1:6379"):
            connecting.connect("10.0.0.1:6379")
        with pytest.raises(ConfigError, match=r"pass runtime_env to your ray.init\(\)"):
            connecting.connect(runtime_env={"env_vars": {"A": "1"}})
    finally:
        ray.shutdown()


def test_settings_that_ray_refuses_leave_no_connection_and_the_limit_of_open_files_as_it_was(unconnected: Any) -> None:
    import ray

    nodes: Any = ray.nodes
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lower = (min(1024, before[0]), before[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, lower)
    try:
        with pytest.raises(ConfigError, match="Ray refuses the settings"):
            connecting.connect(unconnected.address, runtime_env={"pip": ["anything"], "conda": "anything"})
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == lower
        with pytest.raises(ray.exceptions.RaySystemError):
            nodes()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}
"""127.0.0.1, as /proc/net/tcp and tcp6 write it."""


def listening_addresses(port: int) -> set[str]:
    """Return the addresses at which a port is open for what this process has started: others may have the same port."""
    own = {link for pid in descendants(os.getpid()) for link in open_files(pid)}
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    ends = [line[1].split(":") for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in own]
    found = {address for address, number in ends if int(number, 16) == port}
    assert found, "nobody listens"
    return found


def open_files(pid: int) -> Iterator[str]:
    with suppress(OSError):  # it has ended
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                yield str(file.readlink())


def test_ray_that_was_started_here_is_closed_to_others_ends_and_leaves_no_files_or_variables(tmp_path: Path) -> None:
    """In a process of its own: in one that returns to a cluster from another one, Ray loses its actors."""
    code = "from tests.runtime.ray.test_cluster import start_ray_here; start_ray_here()"
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    home = {"HOME": str(tmp_path), "PYTHONPATH": path}
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTHONBREAK"))}
    said = run_python(code, folder=tmp_path, environment=environment | home)
    assert said.code == 0, said.err
    assert not (tmp_path / ".ray").exists()


def start_ray_here() -> None:
    environment = dict(os.environ)
    handler, limit = signal.getsignal(signal.SIGTERM), resource.getrlimit(resource.RLIMIT_NOFILE)
    resources: dict[str, Any] = {"local_cpus": 7, "local_resources": {"fast": 1.4}}
    with connecting.connect(**resources, object_store_memory=connecting.LEAST_STORE) as started:
        import ray
        from ray._private.authentication import authentication_utils

        assert "logs" not in refusal_of_a_failing_node(started), "they are deleted with this Ray"
        assert dict(os.environ) == environment
        port = started.address.rpartition(":")[2]
        with (
            patch.object(connecting, "PROBE_ANSWER_S", 60.0),
            patch.object(connecting, "_PROBE", connecting._PROBE.replace("canonicalize_bootstrap_address(", "str(")),
            pytest.raises(ConfigError, match=r"asks for a token.*: set RAY_AUTH_MODE=token"),
        ):  # not another address of this machine, where this Ray does not listen
            connecting._answering(started.address)
        assert [(node.resources["CPU"], node.resources["fast"]) for node in started.nodes()] == [(7.0, 2.0)]
        folder = Path(ray.nodes()[0]["RayletSocketName"]).parents[2]
        assert folder.is_dir()
        assert signal.getsignal(signal.SIGTERM) is handler
        assert listening_addresses(int(port)) <= LOOPBACK
    assert not folder.exists()
    assert dict(os.environ) == environment
    assert not authentication_utils.is_token_auth_enabled(), "this process can connect to clusters without a token"
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == limit


STARTS_RAY = """
import os, ray, sys
from offbeat.runtime.ray.connecting import LEAST_STORE, connect
with connect(object_store_memory=LEAST_STORE):
    open("folder", "w").write(str(ray.nodes()[0]["RayletSocketName"]))
    os.rename("folder", "started")
    sys.stdin.read()
"""


@pytest.mark.thorough  # chaos/test_ray.py kills a run that has started Ray
def test_ray_that_was_started_by_a_killed_process_ends_and_leaves_no_files(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", STARTS_RAY], cwd=tmp_path, stdin=subprocess.PIPE) as process:
        wait_until((tmp_path / "started").exists)
        folder = Path((tmp_path / "started").read_text()).parents[2]
        started = processes_of_ray(folder)
        assert [name for name in started if name.startswith("ray::RuntimeEnvAgent")]  # it would end a minute later
        process.kill()
    wait_until(lambda: not folder.exists())
    assert processes_of_ray(folder) == []


def test_address_that_nobody_answers_is_refused() -> None:
    with socket.socket() as silent, patch.object(connecting, "PROBE_ANSWER_S", 0.5):
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        with pytest.raises(ConfigError, match=f"no Ray cluster answered at 127.0.0.1:{port} within 0.5 s: check with"):
            connecting.connect(f"127.0.0.1:{port}")


def test_the_address_of_a_cluster_that_answers_at_once_is_used(monkeypatch):
    monkeypatch.setattr(connecting, "_PROBE", "print('10.0.0.1:6379')")
    assert connecting._answering(connecting.AUTO) == "10.0.0.1:6379"


def test_the_look_for_a_cluster_does_not_search_the_current_folder_for_modules(tmp_path, monkeypatch):
    (tmp_path / "marker.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(connecting, "_PROBE", "import marker")
    code, _, errors = connecting._probe("auto")
    assert (code, "No module named 'marker'" in errors) == (1, True)


def test_a_ray_whose_import_hangs_is_refused(monkeypatch):
    monkeypatch.setattr(connecting, "IMPORT_S", 0.5)
    monkeypatch.setattr(connecting, "PROBE_ANSWER_S", 0.0)
    monkeypatch.setattr(connecting, "_PROBE", "import time; time.sleep(60)")
    with pytest.raises(ConfigError, match=r"Ray could not be imported within 0\.5 s"):
        connecting._answering("10.0.0.1:6379")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ray://10.0.0.1:10001", "ray://10.0.0.1:10001(SOURCE) is an address of Ray Client"),
        ("somewhere", "'somewhere'(SOURCE) is not the address of a Ray cluster"),
    ],
)
def test_address_of_another_form_is_refused(address: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=message.replace("(SOURCE)", "")):
        connecting.connect(address)
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ConfigError, match=message.replace("(SOURCE)", r" \(from RAY_ADDRESS\)")):
        connecting.connect(connecting.AUTO)


def test_the_message_about_a_cluster_that_does_not_answer_names_the_address_of_ray_address(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    monkeypatch.setattr(connecting, "PROBE_ANSWER_S", 0.5)
    with pytest.raises(ConfigError, match=r"at 127.0.0.1:1 \(from RAY_ADDRESS\) .*`ray status --address 127.0.0.1:1`"):
        connecting.connect(connecting.AUTO)


def test_missing_ray_is_refused_with_the_extra_to_install() -> None:
    with (
        patch.object(connecting, "is_importable", return_value=False),
        pytest.raises(ConfigError, match=r'run pip install "offbeat\[ray\]"'),
    ):
        connecting.connect()


def test_a_ray_without_a_watchdog_is_not_started_and_leaves_no_folder(tmp_path, monkeypatch):
    def fail(*_arguments: object, **_named: object) -> None:
        raise OSError("Too many open files")

    monkeypatch.setattr(tempfile, "mkdtemp", lambda **_: str(tmp_path / "files"))
    (tmp_path / "files").mkdir()
    monkeypatch.setattr(connecting, "Watchdog", fail)
    with pytest.raises(OSError, match="Too many open files"):
        connecting.connect()
    assert not any(tmp_path.iterdir())
