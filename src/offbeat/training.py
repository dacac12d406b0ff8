"""Train, resume and load: what the command line and Python users call."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from offbeat import config as configs
from offbeat import versions
from offbeat.allocator import keep_freed_memory
from offbeat.config import Config
from offbeat.errors import ConfigError
from offbeat.metrics.progress import About, Progress
from offbeat.registry import import_modules, place_of
from offbeat.run_directory import RunDirectory, default_path, hold
from offbeat.runtime.signals import StopSignals, TooLate
from offbeat.threads import blas_kernels, limit, place, usable_core_numbers
from offbeat.tracking.tracker import begin as begin_tracking
from offbeat.tracking.tracker import require_package
from offbeat.types import ActionSpec, Leaf

if TYPE_CHECKING:
    from offbeat.checkpoint import Checkpoint
    from offbeat.metrics.sinks import Sink
    from offbeat.runtime.callbacks import Callback
    from offbeat.runtime.child import Child
    from offbeat.runtime.conductor import Conductor, Ending, Watchers
    from offbeat.runtime.crew import LockFreeParts
    from offbeat.runtime.wiring import Parts
    from offbeat.types import Tree

    AnyParts = Parts | LockFreeParts

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
    algorithm: str | type[Any],
    env: str | Callable[..., Any],
    *,
    preset: str | None = None,
    run_dir: Path | str | None = None,
    callbacks: Sequence[Callback] = (),
    progress: ProgressKind | None = "none",
    **settings: object,
) -> Run:
    """Train an agent and return the run.

    Args:
        algorithm: name, such as 'ppo', or a class of your own at the top of a module.
        env: Gymnasium id, or an id with an adapter's prefix; or a class of your own, or a function that makes one of
            your envs, at the top of a module.
        preset: name of a preset; None takes the one for this algorithm and env, if there is one.
        run_dir: a directory that does not exist yet; None makes one under runs/.
        callbacks: each is called with every metrics line, and may return 'stop', or a dict of numbers that become
            metrics of the next line.
        progress: 'dashboard', 'lines' or 'none'; None chooses by the terminal.
        settings: any config key: steps, seed, max_lag, learning_rate, ...

    Raises:
        ConfigError: bad input; nothing has been begun.
        RunFailed: the run could not go on.
    """
    algorithm = _named("algorithm", algorithm, 'offbeat.register_algorithm("my_algorithm", it)')
    env = _named("env", env, 'offbeat.register_env("my_env/MyEnv-v0", it)')
    config = configs.resolve(algorithm, env, preset=preset, flags=settings)
    return start(config, Path(run_dir) if run_dir else None, progress=progress, callbacks=callbacks)


def _named(kind: str, given: object, remedy: str) -> str:
    """Return the name of what is to be trained, or to be trained on: that of code of the user's says where it is."""
    if isinstance(given, str):
        return given
    if not callable(given):
        raise ConfigError(f"{kind} is {given!r}, but its name, or the class or function that makes it, is expected")
    return place_of(given, f"{remedy}, and train by that name")


def start(
    config: Config,
    run_dir: Path | None = None,
    *,
    progress: ProgressKind | None = None,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Train with a config that has been put together. Raises as `train` does."""
    if callable(callbacks):
        raise ConfigError("callbacks is a function, but a list of functions is expected: pass callbacks=[it]")
    view = _view(progress)
    path = run_dir or default_path(config)
    RunDirectory(path).refuse_existing()
    require_package(config.run.tracker)
    config, reason = _settled(config, view)
    parts = _prepare(config, view)
    try:
        initial = _initial(config, parts)
        with StopSignals() as signals:  # from here on there is something to put in order
            directory = RunDirectory.create(path, config)
            with _lock(directory):
                return _go(parts, directory, view, callbacks, signals, partial(_begin, initial=initial, reason=reason))
    finally:
        parts.close()


def resume(
    run: Path | str,
    *,
    steps: int | None = None,
    runtime: str | None = None,
    callbacks: Sequence[Callback] = (),
    progress: ProgressKind | None = "none",
    trust_code: bool = False,
) -> Run:
    """Continue a run from its latest checkpoint; the rest is as for `train`.

    Args:
        run: its directory.
        steps: env steps to go on to; None: those that it was begun with.
        runtime: serial, threads or processes; None: the one that it was in. With lag exact the bits are the same.
            A run in hogwild goes on in hogwild, and no other does.
        callbacks: as for `train`.
        progress: as for `train`.
        trust_code: import whatever the run names: for one's own runs. Otherwise only what is installed as a package,
            or what this process was given before.

    Raises:
        ConfigError: there is nothing to resume, the checkpoint is damaged or of another env, or the run names code that
            was refused.
        RunFailed: the run could not go on.
    """
    from offbeat.metrics.sinks import truncate_metrics

    view = _view(progress)
    directory = RunDirectory.open(Path(run), trust_code=trust_code)
    directory.require_code(trust_code=trust_code)
    with _lock(directory):
        saved, state = _resumable(directory, with_replay=True)
        config = _extended(directory.read_config(), directory.path, state["counters"]["env_steps"], steps)
        _require_same_kind(state, runtime or config.runtime.runtime)
        config = config if runtime is None else config.in_runtime(runtime)
        _require_layout(state, config)
        require_package(config.run.tracker)
        learned = state["counters"]["learning_step"]
        parts = _prepare(config, view)
        try:
            _require_fit(saved, parts, directory.path)
            with StopSignals() as signals:
                config.save(directory.config)
                truncate_metrics(directory.metrics, learned)
                directory.store().drop_beyond(state["counters"]["env_steps"])
                replays, saved = [saved.replay], replace(saved, replay=None)
                beginning = partial(_continue, run=directory.path, saved=saved, state=state, replays=replays)
                return _go(parts, directory, view, callbacks, signals, beginning, learned)
        finally:
            parts.close()


def _view(kind: ProgressKind | None) -> Progress:
    from offbeat.metrics.dashboard import make_progress

    return make_progress(kind, sys.stderr)


def _extended(config: Config, run: Path, env_steps: int, steps: int | None) -> Config:
    """Return the config to go on with: the stops of the last time no longer hold, `steps` may be more."""
    wanted = config.run.steps if steps is None else steps
    if wanted <= env_steps:
        raise ConfigError(
            f"{run} has learned from {env_steps} env steps, and steps is {wanted}, so nothing is left to do: "
            f"type offbeat resume {run} --steps {2 * env_steps}, or any number above {env_steps}"
        )
    return config.with_run(steps=wanted, stop_at=None, time=None)


def _settled(config: Config, view: Progress) -> tuple[Config, str]:
    """Return the config with its layout, measured if need be, and the reason for it."""
    if config.runtime.split == "given":
        return config, ""
    view.message("measuring what acting and learning cost here, to choose the number of actors")
    import_modules(config.run.imports)
    from offbeat.runtime.split import settled

    return settled(config, view.message)


def _prepare(config: Config, view: Progress) -> AnyParts:
    """Check what can be checked before any work starts, and make the learner's side, or what workers share."""
    import_modules(config.run.imports)
    limit(config.blas_threads)
    keep_freed_memory()
    if config.runtime.runtime == "hogwild":
        from offbeat.runtime.crew import build_lock_free

        return build_lock_free(config, view.message)
    from offbeat.runtime.wiring import build

    return build(config, view.message)


def _resumable(directory: RunDirectory, *, with_replay: bool = False) -> tuple[Checkpoint, dict[str, Any]]:
    """Read the latest checkpoint of a run, and its state."""
    from offbeat.runtime.saved_state import require_state

    saved = directory.read_checkpoint("latest", with_replay=with_replay)
    if saved.state is None:
        full = ", ".join(directory.store().full()) or "none"
        raise ConfigError(
            f"the latest checkpoint of {directory.path} holds only weights, for evaluation; of those in "
            f"{directory.checkpoints}, these can be gone on from: {full}: let the link latest mean one of them"
        )
    require_state(saved.state, directory.path)
    return saved, saved.state


def _initial(config: Config, parts: AnyParts) -> tuple[Checkpoint, dict[str, Any]] | None:
    """Return the checkpoint that `--init-from` names, if it was given."""
    if config.run.init_from is None:
        return None
    run = Path(config.run.init_from)
    saved, state = _resumable(RunDirectory.open(run))
    _require_fit(saved, parts, run)
    return saved, state


def _require_fit(saved: Checkpoint, parts: AnyParts, run: Path) -> None:
    """Refuse a checkpoint whose policy or other arrays are not those that these settings make.

    Raises:
        ConfigError: with what differs.
    """
    from offbeat.models.spec import PolicySpec

    theirs = PolicySpec.from_json(saved.policy.get("policy"))
    differences = [
        f"{field.name} is {_brief(getattr(theirs, field.name))} there and "
        f"{_brief(getattr(parts.policy, field.name))} here"
        for field in fields(PolicySpec)
        if getattr(theirs, field.name) != getattr(parts.policy, field.name)
    ]
    arrays, wanted = _shapes(saved.weights), _shapes(parts.algorithm.weights())
    if not differences and arrays != wanted:
        differences = [f"{name} is only in one of them, or of another shape" for name, _ in sorted(arrays ^ wanted)]
    if differences:
        raise ConfigError(
            f"the checkpoint of {run}, trained on {saved.policy['env']}, does not fit {parts.config.run.env} with "
            f"these settings: {'; '.join(differences)}. Use the env, the network and the normalisation that it was "
            "trained with"
        )


def _brief(value: object) -> str:
    """Say in a few words what a field of a policy's spec is."""
    if isinstance(value, ActionSpec):
        return f"{value.kind} {list(value.nvec or value.shape)}"
    if isinstance(value, tuple) and value and isinstance(value[0], Leaf):
        return ", ".join(f"{leaf.name} {list(leaf.choices or leaf.shape)}" for leaf in value)
    return str(value)


def _shapes(weights: Tree) -> set[tuple[str, tuple[int, ...]]]:
    return {(name, array.shape) for name, array in weights.items()}


_MAY_DIFFER = {"runtime", *configs.ONLY} - {"workers", "hogwild_moments"}
"""Settings of the runtime that no part of a checkpoint belongs to."""


def _require_same_kind(state: dict[str, Any], runtime: str) -> None:
    """Refuse to go on lock-free with a run that was not, and the other way round.

    Raises:
        ConfigError: each worker of a lock-free run has a part of it.
    """
    before = state["runtime"]["runtime"]
    if (before == "hogwild") != (runtime == "hogwild"):
        raise ConfigError(
            f"the run was in the {before} runtime, and cannot go on in {runtime}: of a lock-free run, each worker has "
            "a part. Begin a new run from this one's weights with --init-from"
        )


def _require_layout(state: dict[str, Any], config: Config) -> None:
    """Refuse to go on with another layout: envs, tickets and versions belong to the one that was saved.

    Raises:
        ConfigError: with what differs.
    """
    here = config.layout()
    differences = [
        f"{key} is {value} there and {here.get(key)} here"
        for key, value in state["runtime"].items()
        if key not in _MAY_DIFFER and here.get(key) != value
    ]
    if differences:
        raise ConfigError(
            f"the checkpoint was made with another layout than config.toml says: {'; '.join(differences)}. Put "
            "these back as they were, or begin a new run from this one's weights with --init-from"
        )


# --- the run itself -----------------------------------------------------------------------------------------


Beginning = Callable[["AnyParts", "Conductor"], str]
"""Puts the parts into the state that the run goes on from; returns a message for the user."""


def _begin(
    parts: AnyParts, conductor: Conductor, initial: tuple[Checkpoint, dict[str, Any]] | None, reason: str
) -> str:
    """Begin a new run: version 0 is the initial weights, and every actor begins new episodes."""
    from offbeat.runtime.saved_state import misfits_refused

    statistics = None
    if initial is not None:
        saved, state = initial
        parts.algorithm.load_weights(saved.weights)
        statistics = state["learner"]["algorithm"]
    with misfits_refused(Path(parts.config.run.init_from or "")) if initial else nullcontext():
        conductor.begin_anew(statistics)
    origin = "" if initial is None else f"weights and normalisers taken from {parts.config.run.init_from}"
    doubts = parts.config.settings.doubts(parts.config.run.steps)
    return "; ".join(filter(None, (origin, reason, doubts)))


def _continue(
    parts: AnyParts,
    conductor: Conductor,
    run: Path,
    saved: Checkpoint,
    state: dict[str, Any],
    replays: list[Tree | None],
) -> str:
    """Go on from a checkpoint. `replays` holds its replay alone, and is emptied: its file is not held on to."""
    from offbeat.runtime.saved_state import misfits_refused, require_like

    with misfits_refused(run):
        if (learner := getattr(parts, "learner", None)) is not None:
            made = learner.state()
            for part in ("algorithm", "adam"):
                require_like(state["learner"][part], made[part], f"learner, {part}")
        parts.algorithm.load_weights(saved.weights)
        continued, memory = conductor.restore(state, replays.pop())
    episodes = (
        "episodes under way go on where they were"
        if continued
        else "episodes under way were not saved: new ones begin, at a marked cut"
    )
    before, now = state.get("blas_kernels"), blas_kernels()
    kernels = f"; OpenBLAS computes with {now}, not {before}: equal to rounding, not bit for bit" * (before != now)
    restored = "weights, optimizer, normalisers, schedules and random streams restored"
    dropped = "only the newest checkpoint keeps its replay" if saved.replay_dropped else ""
    told = "; ".join(filter(None, (restored, memory, dropped, episodes)))
    return f"resumed at {conductor.counters.env_steps} env steps: {told}{kernels}"


def _go(
    parts: AnyParts,
    directory: RunDirectory,
    progress: Progress,
    callbacks: Sequence[Callback],
    signals: StopSignals,
    beginning: Beginning,
    learned: int = 0,
) -> Run:
    """Run to the end, whatever it is, and leave the directory in order."""
    from offbeat.runtime.conductor import Ending

    directory.write_status("running")
    directory.note(f"running, process {os.getpid()}")
    try:
        _record_versions(directory)
        ending, line = _conduct(parts, directory, progress, callbacks, signals, beginning, learned)
    except TooLate:
        signals.disarm()
        ending, line = Ending("interrupted", "stopped before its actors had been made", 130), {}
    except BaseException as error:
        signals.disarm()
        _broken_off(directory, error)
        raise
    directory.write_status(ending.state, ending.reason)
    directory.note("; ".join(filter(None, (f"{ending.state}: {ending.reason}", ending.verdict))))
    return Run(directory.path, ending.state, ending.reason, ending.exit_code, line)


def _record_versions(directory: RunDirectory) -> None:
    """Write down what this part of the run is made with; the log is told what differs from the part before."""
    try:
        changes = versions.record(directory.path)
    except OSError as error:
        directory.note(f"versions.json could not be written ({error}): the run goes on")
        return
    if changes:
        directory.note(f"made with other versions than the part before: {'; '.join(changes)}")


def _broken_off(directory: RunDirectory, error: BaseException) -> None:
    """Keep what was learned; a run that learned nothing leaves no directory behind."""
    if directory.checkpoints.is_dir():
        directory.note("".join(traceback.format_exception(error)))
        error.add_note(
            f"The run is kept in {directory.path}: log.txt has the traceback, and `offbeat resume {directory.path}` "
            "goes on from what was learned"
        )
        directory.write_status("failed", str(error) or type(error).__name__)
    else:
        directory.discard()


def _conduct(
    parts: AnyParts,
    directory: RunDirectory,
    progress: Progress,
    callbacks: Sequence[Callback],
    signals: StopSignals,
    beginning: Beginning,
    learned: int,
) -> tuple[Ending, dict[str, Any]]:
    """Join the parts with what watches them, and run until the end; signals are disarmed from then on."""
    from offbeat.runtime.conductor import Ending

    runtime = parts.config.runtime
    with ExitStack() as closing:
        closing.callback(place, usable_core_numbers(), None)
        closing.callback(progress.close, "")
        progress.start(_about(parts.config, directory))
        tracker = begin_tracking(parts.config, directory, partial(_tell, directory, progress))
        if tracker is not None:
            closing.callback(tracker.close)
        conductor = _joined(closing, parts, directory, progress, callbacks, signals, learned, tracker)
        try:
            message = beginning(parts, conductor)
            if message:
                _tell(directory, progress, message)
            conductor.begin()
            place(runtime.learner_cores, runtime.learner_nice)
            conductor.run()
            ending = conductor.close()
            signals.disarm()
        except TooLate:
            signals.disarm()
            ending = Ending("interrupted", conductor.lost(), 130)
        except Exception:
            signals.disarm()
            conductor.salvage()
            raise
        if tracker is not None:
            tracker.state = ending.state
    return ending, conductor.line


def _joined(
    closing: ExitStack,
    parts: AnyParts,
    directory: RunDirectory,
    progress: Progress,
    callbacks: Sequence[Callback],
    signals: StopSignals,
    learned: int,
    tracker: Sink | None,
) -> Conductor:
    """Make the other side, of actors or workers, and the conductor; leave to `closing` what must be closed at last."""
    from offbeat.metrics.memory import Memory
    from offbeat.metrics.recorder import Recorder
    from offbeat.metrics.sinks import JsonLines, TensorBoard
    from offbeat.runtime.conductor import Watchers
    from offbeat.runtime.wiring import layout_of

    role = "worker" if parts.config.runtime.runtime == "hogwild" else "actor"

    memory, roles = Memory(), {role: list[int](), "evaluator": []}

    def show(role: str, children: Sequence[Child]) -> None:
        roles[role] = [child.process.pid for child in children]
        memory.watch(role, roles[role])
        directory.write_status("running", children=roles)

    tell = partial(_tell, directory, progress)
    sinks: list[Sink] = [JsonLines(directory.metrics), TensorBoard(directory.tensorboard)]
    if tracker is not None:  # last: it is told when a line has been written
        sinks.append(tracker)
    recorder = Recorder(
        sinks,
        layout_of(parts.config, parts.threads),
        tell,
        episodes_window=parts.config.run.episodes_window,
        info=parts.config.env.info_metrics,
        memory=memory.read,
    )
    closing.callback(recorder.close)
    store = directory.store(parts.config.run.checkpoints_kept)
    watchers = Watchers(store, recorder, progress, tell, partial(show, "evaluator"), signals, callbacks)
    conductor = _conductor(closing, parts, learned, watchers, partial(show, role))
    closing.callback(conductor.end_evaluations)
    return conductor


def _conductor(
    closing: ExitStack,
    parts: AnyParts,
    learned: int,
    watchers: Watchers,
    show: Callable[[Sequence[Child]], None],
) -> Conductor:
    """Make the conductor that suits the parts, and those whom it conducts."""
    from offbeat.runtime.crew import Crew, LockFreeParts

    if isinstance(parts, LockFreeParts):
        from offbeat.runtime.hogwild import HogwildConductor

        crew = Crew(parts, watchers.tell, show)
        closing.callback(crew.close)
        return HogwildConductor(parts, crew, watchers)
    from offbeat.runtime.paced import PacedConductor
    from offbeat.runtime.wiring import acting_of

    acting = acting_of(parts, learned, watchers.tell, show)
    closing.callback(acting.close)
    return PacedConductor(parts, acting, watchers)


def _tell(directory: RunDirectory, progress: Progress, text: str, details: str = "") -> None:
    """Tell the user, and the log; `details` are for the log alone."""
    directory.note("\n".join(filter(None, (text, details.rstrip()))))
    progress.message(text)


def _about(config: Config, directory: RunDirectory) -> About:
    from offbeat.runtime.wiring import device_of

    return About(
        algorithm=config.run.algorithm,
        env=config.run.env,
        runtime=config.runtime.runtime,
        actors=config.workers if config.runtime.runtime == "hogwild" else config.runtime.actors,
        envs_per_actor=config.runtime.envs_per_actor,
        lead=_lead(config),
        device=device_of(config),
        run_dir=directory.path,
        lag=config.runtime.lag,
    )


def _lead(config: Config) -> str:
    """Say how far the sides may be apart."""
    if config.runtime.runtime == "hogwild":
        return f"{config.runtime.hogwild or 'shared'}, moments {config.runtime.hogwild_moments or 'shared'}"
    return f"{config.settings.lead.strip('-').replace('-', '_')} {config.memory.pace.versions - 1}"


@contextmanager
def _lock(directory: RunDirectory) -> Iterator[None]:
    """Hold the run for this process alone; the lock dies with the process.

    Raises:
        ConfigError: another process is training in it.
    """
    with (directory.path / ".lock").open("a") as file:
        hold(file, f"another process is training in {directory.path}: wait for it, or stop it first")
        yield
