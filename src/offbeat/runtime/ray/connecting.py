"""Connect this process to a Ray cluster, or start Ray on this machine, and leave the process else as it was."""

from __future__ import annotations

import logging
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from math import ceil
from pathlib import Path
from secrets import token_hex
from typing import Any

from offbeat.core.errors import ConfigError, unknown
from offbeat.core.importable import is_importable
from offbeat.core.process.threads import usable_cores
from offbeat.runtime.ray.cluster import Cluster
from offbeat.runtime.ray.watchdog import Watchdog

LOCAL = "local"
"""The address for which Ray is started on this machine, and ended again."""
AUTO = "auto"
"""The address of the cluster that RAY_ADDRESS names, or that was started last on this machine."""
IMPORT_S, PROBE_ANSWER_S = 120.0, 10.0
"""Seconds in which Ray must be imported to ask a cluster, and those that the cluster then gets to answer."""
LEAST_STORE = 80 << 20
"""Smallest object store that Ray starts, in bytes."""
_PROBE = """
import signal, sys
from ray._private.services import canonicalize_bootstrap_address
from ray._raylet import GcsClient
signal.setitimer(signal.ITIMER_REAL, float(sys.argv[2]))
try:
    address = canonicalize_bootstrap_address(sys.argv[1])
except ConnectionError:
    address = None
if address is None:
    sys.exit("none")
GcsClient(address=address)
print(address)
"""
"""Prints the address of a cluster; SIGALRM ends it if the cluster does not answer. In a process of its own: Ray may
end a process that waits too long."""


def connect(
    address: str = LOCAL,
    *,
    local_cpus: float = 0,
    local_resources: Mapping[str, float] | None = None,
    object_store_memory: int | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    show_output: bool = True,
) -> Cluster:
    """Connect this process to a cluster; for `LOCAL`, start Ray on this machine.

    A connection that this process already has is used, and stays when the cluster is closed.

    Args:
        address: host:port of a cluster, `AUTO` or `LOCAL`.
        local_cpus: the least number of CPUs of a Ray that is started here, if the machine has fewer cores. Ray counts
            CPUs, it does not reserve them.
        local_resources: custom resources of a Ray that is started here, rounded up, as Ray supports no fractions there.
        object_store_memory: size of the object store of a Ray that is started here, in bytes; None: Ray's default.
        runtime_env: Ray's runtime environment of all tasks and actors: packages, environment variables, files.
        show_output: whether this process prints what tasks and actors print. Ray's own errors are printed always.

    Raises:
        ConfigError: Ray is not installed, nobody answers, the versions of Python or Ray differ, or a key of the runtime
            environment is unknown.
    """
    if not is_importable("ray"):
        raise ConfigError('Ray is not installed here: run pip install "offbeat[ray]"')
    _require_address(address)
    # Without usage statistics. A call after the end of the connection is an error: it starts no other Ray.
    with _variables_kept(RAY_USAGE_STATS_ENABLED="0", RAY_ENABLE_AUTO_CONNECT="0"):
        import ray

        _require_known(runtime_env or {})
        if ray.is_initialized():
            return _found(address, runtime_env)
        if address != LOCAL:
            address = _answering(address)
        restore_limit = _open_files_limit()
        try:
            if address == LOCAL:
                return _start(local_cpus, local_resources, object_store_memory, runtime_env, show_output, restore_limit)
            _init(address, runtime_env=runtime_env, log_to_driver=show_output)
        except BaseException:
            restore_limit()
            raise
        return Cluster(address, is_local=False, closing=[ray.shutdown, restore_limit])


def _require_address(address: str, source: str = "") -> None:
    """Refuse an address that is not host:port, `AUTO` or `LOCAL`; `source`: where it is from, as '(...)'."""
    if "://" in address:
        raise ConfigError(
            f"{address}{source} is an address of Ray Client, which offbeat does not use, because each message would "
            f"take a detour: start the run on a node of the cluster, and pass HOST:PORT, or {AUTO} without RAY_ADDRESS"
        )
    host, _, port = address.rpartition(":")
    if address not in (LOCAL, AUTO) and not (host and port.isdecimal()):
        raise ConfigError(
            f"{address!r}{source} is not the address of a Ray cluster: pass HOST:PORT, such as 10.0.0.1:6379, or {AUTO}"
        )


def _require_known(runtime_env: Mapping[str, Any]) -> None:
    """Refuse unknown keys of a runtime environment, which Ray ignores: it takes them for those of plugins."""
    from ray.runtime_env import RuntimeEnv

    known = sorted(key for key in RuntimeEnv.known_fields if not key.startswith("_"))
    for key in runtime_env.keys() - RuntimeEnv.known_fields:
        if "RAY_RUNTIME_ENV_PLUGINS" not in os.environ:
            raise unknown("key of ray_runtime_env", key, known, f"Ray has {', '.join(known)}")


def _found(address: str, runtime_env: Mapping[str, Any] | None) -> Cluster:
    """Return the connection that this process already has."""
    import ray

    own = ray.get_runtime_context().gcs_address
    if address not in (LOCAL, AUTO, own):
        raise ConfigError(
            f"this process is connected to the Ray cluster {own}, not to {address}: call ray.shutdown() first, or pass "
            f"{AUTO}"
        )
    if runtime_env:
        raise ConfigError(
            "ray_runtime_env is given, but this process is already connected to a Ray cluster: pass runtime_env to "
            "your ray.init(), or call ray.shutdown() first"
        )
    return Cluster(own, is_local=False)


def _answering(address: str) -> str:
    """Return the address of a cluster, host:port, which has answered. For `AUTO`, RAY_ADDRESS may name it."""
    source, variable = "", os.environ.get("RAY_ADDRESS", "")
    if address == AUTO and variable not in ("", AUTO, LOCAL):
        address, source = variable, " (from RAY_ADDRESS)"
        _require_address(address, source)
    try:
        code, printed, stderr = _probe(address)
    except subprocess.TimeoutExpired:
        raise ConfigError(f"Ray could not be imported within {IMPORT_S:g} s: try `python -c 'import ray'`") from None
    if code == 0:
        return printed.strip()
    if code == -signal.SIGALRM:
        raise _no_answer(address, source, f"within {PROBE_ANSWER_S:g} s")
    errors = stderr.splitlines()
    if "none" in errors:
        raise ConfigError(
            "there is no Ray cluster on this machine: start one with `ray start --head`, or pass its address, such as "
            "10.0.0.1:6379; or leave the address out to start Ray for this run"
        )
    if "authentication token" in stderr.lower():
        raise ConfigError(
            f"the Ray cluster at {address}{source} asks for a token, which is missing or wrong here: set "
            "RAY_AUTH_MODE=token, and copy the file ~/.ray/auth_token from the head of the cluster"
        )
    raise _no_answer(address, source, f"({errors[-1] if errors else 'no reason was given'})")


def _probe(address: str) -> tuple[int, str, str]:
    """Run `_PROBE`; return its exit code and what it has printed. Raise TimeoutExpired if the import of Ray hangs."""
    with subprocess.Popen(  # noqa: S603 - our own code, in the same Python
        [sys.executable, "-P", "-c", _PROBE, address, str(PROBE_ANSWER_S)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    ) as probe:
        try:
            printed, errors = probe.communicate(timeout=IMPORT_S + PROBE_ANSWER_S)
        except subprocess.TimeoutExpired:
            probe.kill()
            raise
    return probe.returncode, printed, errors


def _no_answer(address: str, source: str, reason: str) -> ConfigError:
    """Return the error for a cluster that does not answer; `source`: where its address is from, as '(...)'."""
    proxy = ", and that no http_proxy is set for it" if os.environ.get("http_proxy") else ""
    return ConfigError(
        f"no Ray cluster answered at {address}{source} {reason}: check with `ray status --address {address}` that "
        "the cluster runs and its head is not overloaded, that the port is that of `ray start --head` (6379), that no "
        f"firewall closes it{proxy}"
    )


def _start(
    cpus: float,
    resources: Mapping[str, float] | None,
    object_store_memory: int | None,
    runtime_env: Mapping[str, Any] | None,
    show_output: bool,
    restore_limit: Callable[[], None],
) -> Cluster:
    """Start Ray on this machine.

    Its files are in a folder of its own, so other programs do not find this Ray, and nothing is left of it. It listens
    only on this machine, and asks for a token of its own: Ray runs any code that is sent to it.
    """
    import ray

    folder = tempfile.mkdtemp(prefix="offbeat-", dir="/tmp")  # Ray's sockets need a short path
    try:
        watchdog = Watchdog(folder)
    except OSError:  # the limit of processes or files
        shutil.rmtree(folder, ignore_errors=True)
        raise
    store = None if object_store_memory is None else max(LEAST_STORE, object_store_memory)
    token = Path(folder, "token")  # else Ray would use the user's file ~/.ray/auth_token, or write one
    token.write_text(token_hex())
    try:
        with _listening_locally(), _variables_kept(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(token)):
            _read_authentication()
            _init(
                LOCAL,
                num_cpus=max(usable_cores(), ceil(cpus)),
                resources={name: ceil(amount) for name, amount in (resources or {}).items()},
                object_store_memory=store,
                include_dashboard=False,
                runtime_env=runtime_env,
                log_to_driver=show_output,
                _temp_dir=folder,
            )
    except BaseException:
        watchdog.end()
        _read_authentication()
        raise
    closing = [ray.shutdown, watchdog.end, _read_authentication, restore_limit]
    return Cluster(ray.get_runtime_context().gcs_address, is_local=True, closing=closing)


def _init(address: str, *, runtime_env: Mapping[str, Any] | None, **settings: Any) -> None:
    """Call ray.init; if it fails, leave nothing of it: Ray would ask the same cluster again after the next start.

    Raises:
        ConfigError: the versions of Python or Ray differ, or the settings are not valid.
    """
    import ray

    try:
        with ExitStack() as failing:
            failing.callback(ray.shutdown)
            with sigterm_handler_kept():
                ray.init(
                    address,
                    logging_level=logging.ERROR,
                    runtime_env=dict(runtime_env or {}) or None,
                    job_config=_job_config(),
                    **settings,
                )
            failing.pop_all()
    except (ValueError, TypeError) as error:
        raise ConfigError(f"Ray refuses the settings: {error}") from error
    except Exception as error:  # Ray raises this class itself when its processes do not start in time
        raise ConfigError(f"Ray cannot be used at {address}: {error}") from error


class _NoFolders(list[str]):
    """A list to which `extend` adds nothing: ray.init calls it with the folders."""

    def extend(self, folders: Iterable[str]) -> None:
        """Add nothing."""


def _job_config() -> Any:
    """Return settings with which Ray's workers search no folder of this process for modules.

    By default they search its current folder before the installed packages, so a file `gymnasium.py` there would run.
    Actors and tasks add what this process searches after them.
    """
    from ray.job_config import JobConfig

    config: Any = JobConfig()
    config._py_driver_sys_path = _NoFolders()  # noqa: SLF001 - ray.init has no argument for it
    return config


@contextmanager
def _variables_kept(**defaults: str) -> Iterator[None]:
    """Set environment variables that are not set; at the end of this context, restore all, also what Ray has set."""
    before = dict(os.environ)
    os.environ.update({**defaults, **before})
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def _read_authentication() -> None:
    """Let Ray, which has read them at its import, read the environment variables about tokens again."""
    from ray import _raylet

    raylet: Any = _raylet
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()


@contextmanager
def _listening_locally() -> Iterator[None]:
    """Let a Ray that is started in this context listen only at 127.0.0.1, as it does by default on macOS."""
    from ray._private import ray_constants

    constants: Any = ray_constants
    default = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = default


@contextmanager
def sigterm_handler_kept() -> Iterator[None]:
    """Restore the handler of SIGTERM, which Ray replaces in the main thread when it is initialized or starts a node."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def _open_files_limit() -> Callable[[], None]:
    """Return a function that restores the limit of open files, which ray.init raises."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits)
