"""Train, resume and load: what the command line and Python users call."""

from __future__ import annotations

import fcntl
import shutil
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from offbeat import config as configs
from offbeat.config import Config
from offbeat.errors import ConfigError
from offbeat.metrics.progress import About, Progress
from offbeat.registry import import_modules
from offbeat.run_directory import RunDirectory, default_path
from offbeat.threads import forbid_spinning, limit

if TYPE_CHECKING:
    from offbeat.runtime.conductor import Callback, Conductor, Ending
    from offbeat.runtime.wiring import Parts

ProgressKind = Literal["dashboard", "lines", "none"]


@dataclass(frozen=True)
class Run:
    """A run that has ended."""

    path: Path
    state: str
    """finished or interrupted."""
    reason: str
    exit_code: int
    metrics: dict[str, Any]
    """The last metrics line."""


def train(
    algorithm: str,
    env: str,
    *,
    preset: str | None = None,
    run_dir: Path | str | None = None,
    callbacks: Sequence[Callback] = (),
    progress: ProgressKind | None = "none",
    **settings: object,
) -> Run:
    """Train an agent and return the run.

    Args:
        algorithm: name, such as 'ppo'.
        env: Gymnasium id, or an id with an adapter's prefix.
        preset: name of a preset; None takes the one for this algorithm and env, if there is one.
        run_dir: a directory that does not exist yet; None makes one under runs/.
        callbacks: each is called with every metrics line, and may return 'stop'.
        progress: 'dashboard', 'lines' or 'none'; None chooses by the terminal.
        settings: any config key: steps, seed, max_lag, learning_rate, ...

    Raises:
        ConfigError: bad input; nothing has been begun.
        RunFailed: the run could not go on.
    """
    config = configs.resolve(algorithm, env, preset=preset, flags=settings)
    return start(config, Path(run_dir) if run_dir else None, progress=progress, callbacks=callbacks)


def start(
    config: Config,
    run_dir: Path | None = None,
    *,
    progress: ProgressKind | None = None,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Train with a config that has been put together. Raises as `train` does."""
    path = run_dir or default_path(config)
    RunDirectory(path).refuse_existing()
    parts = _prepare(config)
    try:
        initial = _initial_weights(config, parts)
        directory = RunDirectory.create(path, config)
        with _lock(directory):
            return _go(parts, directory, progress, callbacks, _Beginning(initial))
    finally:
        parts.close()


def resume(run: Path, *, steps: int | None = None, progress: ProgressKind | None = None) -> Run:
    """Continue a run from its latest checkpoint, to its `steps` or to more.

    Raises:
        ConfigError: there is nothing to resume, or the checkpoint is damaged or of another env.
        RunFailed: the run could not go on.
    """
    from offbeat import checkpoint
    from offbeat.metrics.sinks import truncate_metrics

    directory = RunDirectory.open(run)
    config = directory.read_config().with_run(stop_at=None, time=None)
    with _lock(directory):
        saved = checkpoint.load(directory.store().path("latest"))
        state = saved.state
        if state is None:
            raise ConfigError(f"the latest checkpoint of {run} holds weights only: begin with --init-from {run}")
        config = _extended(config, run, state["counters"]["env_steps"], steps)
        origin = state["counters"]["learning_step"] * config.runtime.pace.unrolls_per_batch
        parts = _prepare(config, origin)
        try:
            _same_env(saved.policy, parts, run)
            config.save(directory.config)
            truncate_metrics(directory.metrics, state["counters"]["learning_step"])
            return _go(parts, directory, progress, (), _Continuation(saved.weights, state))
        finally:
            parts.close()


def _extended(config: Config, run: Path, env_steps: int, steps: int | None) -> Config:
    wanted = config.run.steps if steps is None else steps
    if wanted <= env_steps:
        raise ConfigError(
            f"{run} has learned from {env_steps} env steps, and steps is {wanted}, so nothing is left to do: "
            f"type offbeat resume {run} --steps {2 * env_steps}, or any number above {env_steps}"
        )
    return config.with_run(steps=wanted)


def _prepare(config: Config, origin: int = 0) -> Parts:
    """Check what can be checked before any work starts, and make the parts."""
    import_modules(config.run.imports)
    from offbeat.envs.check import preflight

    preflight(config.run.env)
    forbid_spinning()
    limit(config.runtime.learner_threads)
    from offbeat.runtime.wiring import build

    return build(config, origin)


def _initial_weights(config: Config, parts: Parts) -> Mapping[str, Any] | None:
    """Return the weights of `--init-from`, if it was given."""
    if config.run.init_from is None:
        return None
    from offbeat import checkpoint

    run = Path(config.run.init_from)
    saved = checkpoint.load(RunDirectory.open(run).store().path("latest"))
    _same_env(saved.policy, parts, run)
    return {"weights": saved.weights, "state": saved.state}


def _same_env(saved: Mapping[str, Any], parts: Parts, run: Path) -> None:
    from offbeat.models.spec import PolicySpec

    theirs = PolicySpec.from_json(saved["policy"])
    if theirs != parts.policy:
        differences = ", ".join(
            f"{name} {getattr(theirs, name)} against {getattr(parts.policy, name)}"
            for name in ("observation", "action", "hidden_sizes", "activation", "distribution", "normalize")
            if getattr(theirs, name) != getattr(parts.policy, name)
        )
        raise ConfigError(
            f"the checkpoint of {run} is of another policy, trained on {saved['env']}; it does not fit "
            f"{parts.config.run.env} with these settings: {differences}. Use the same env and network settings"
        )


# --- the run itself -----------------------------------------------------------------------------------------


class _Beginning:
    """A new run: version 0 is the initial weights, and every actor begins new episodes."""

    def __init__(self, initial: Mapping[str, Any] | None) -> None:
        self._initial = initial

    def apply(self, parts: Parts, _conductor: Conductor) -> str:
        if self._initial is not None:
            parts.algorithm.load_weights(self._initial["weights"])
            if self._initial["state"] is not None:
                statistics = {**self._initial["state"]["learner"]["algorithm"]}
                parts.algorithm.restore({**parts.algorithm.state(), **_statistics_of(statistics)})
        parts.learner.publish(0)
        for actor in parts.actors:
            actor.begin()
        return ""


def _statistics_of(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: state[name] for name in ("observations", "returns") if name in state}


class _Continuation:
    """A resumed run."""

    def __init__(self, weights: Mapping[str, Any], state: dict[str, Any]) -> None:
        self._weights, self._state = weights, state

    def apply(self, parts: Parts, conductor: Conductor) -> str:
        parts.algorithm.load_weights(self._weights)
        continued = conductor.restore(self._state)
        episodes = (
            "episodes under way go on where they were"
            if continued
            else "episodes under way were not saved: new ones begin, at a marked cut"
        )
        return (
            f"resumed at {conductor.counters.env_steps} env steps: weights, optimizer, normalisers, schedules and "
            f"random streams restored; {episodes}"
        )


def _go(
    parts: Parts,
    directory: RunDirectory,
    kind: ProgressKind | None,
    callbacks: Sequence[Callback],
    origin: _Beginning | _Continuation,
) -> Run:
    """Run to the end, whatever it is, and leave the directory in order."""
    from offbeat.metrics.dashboard import make_progress

    progress = make_progress(kind, sys.stderr)
    directory.write_status("running")
    try:
        ending, line = _conduct(parts, directory, progress, callbacks, origin)
    except Exception as error:
        _failed(directory, error)
        raise
    directory.write_status(ending.state, ending.reason)
    return Run(directory.path, ending.state, ending.reason, ending.exit_code, line)


def _failed(directory: RunDirectory, error: Exception) -> None:
    """Keep what was learned; a run that learned nothing leaves no directory behind."""
    with directory.log.open("a") as log:
        log.write("".join(traceback.format_exception(error)))
    if directory.checkpoints.is_dir():
        directory.write_status("failed", str(error))
    else:
        shutil.rmtree(directory.path)


def _conduct(
    parts: Parts,
    directory: RunDirectory,
    progress: Progress,
    callbacks: Sequence[Callback],
    origin: _Beginning | _Continuation,
) -> tuple[Ending, dict[str, Any]]:
    from offbeat.metrics.recorder import Recorder
    from offbeat.metrics.sinks import JsonLines, TensorBoard
    from offbeat.runtime.conductor import Conductor, Ending
    from offbeat.runtime.serial import run_serial
    from offbeat.runtime.signals import StopSignals, TooLate

    recorder = Recorder([JsonLines(directory.metrics), TensorBoard(directory.tensorboard)])
    store = directory.store(parts.config.run.checkpoints_kept)
    progress.start(_about(parts.config, directory))
    with StopSignals() as signals:
        conductor = Conductor(parts, store, recorder, progress, signals, callbacks)
        try:
            message = origin.apply(parts, conductor)
            if message:
                progress.message(message)
            run_serial(parts, conductor)
            ending = conductor.close()
        except TooLate:
            ending = Ending("interrupted", "stopped before a boundary came: see the last checkpoint", 130)
        finally:
            recorder.close()
            progress.close("")
    return ending, conductor.line


def _about(config: Config, directory: RunDirectory) -> About:
    return About(
        algorithm=config.run.algorithm,
        env=config.run.env,
        runtime=config.runtime.runtime,
        actors=config.runtime.actors,
        envs_per_actor=config.runtime.envs_per_actor,
        max_lag=config.runtime.max_lag,
        device=config.runtime.device,
        run_dir=directory.path,
    )


@contextmanager
def _lock(directory: RunDirectory) -> Iterator[None]:
    """Hold the run for this process alone; the lock dies with the process.

    Raises:
        ConfigError: another process is training in it.
    """
    with (directory.path / ".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(
                f"another process is training in {directory.path}: wait for it, or stop it first"
            ) from None
        yield
