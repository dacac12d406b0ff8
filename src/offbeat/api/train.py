"""Train and resume: the functions that the command line and Python users call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from offbeat.api import process_count
from offbeat.api.callbacks import Callback, CallbackFunction
from offbeat.api.called_callbacks import Callbacks
from offbeat.api.compiled_modules import import_compiled
from offbeat.api.initial import InitialPolicy, initial_policies, load_initial, origin_of
from offbeat.api.named_code import env_settings, name_of_algorithm, name_of_encoder, name_of_env
from offbeat.api.resume import (
    LATEST,
    Changes,
    Continuation,
    read_resumable,
    require_fit,
    require_same_runtime_kind,
    require_topology,
    resumed_config,
)
from offbeat.api.run import Run, run_to_end
from offbeat.api.run_context import RunContext, Started
from offbeat.api.start_warnings import start_warnings
from offbeat.config import resolve as configs
from offbeat.config.arguments import checked
from offbeat.config.changes import changes_between
from offbeat.config.config import Config
from offbeat.config.importing import accept, import_modules
from offbeat.config.trust import clusters_of
from offbeat.core.allocator import keep_freed_memory
from offbeat.core.caller_state import CallerState, caller_state
from offbeat.core.errors import ConfigError
from offbeat.core.files import GivenPath, user_path
from offbeat.metrics.progress import Progress
from offbeat.run_directory.directory import RunDirectory
from offbeat.runtime.deadline import notifying_if_slow
from offbeat.runtime.signals import StopSignals
from offbeat.tracking.tracker import require_package
from offbeat.tuning.chosen_layout import ChosenLayout

if TYPE_CHECKING:
    from offbeat.runtime.parts import Parts
    from offbeat.runtime.training_loop import TrainingLoop

ProgressKind = Literal["dashboard", "lines", "none"]
__all__ = ["Run", "continue_run", "resume", "start", "train"]


@checked
def train(
    algorithm: str | type[Any],
    env: str | Callable[..., Any],
    *,
    preset: str | None = None,
    policies: str | Path | Mapping[str, Mapping[str, Any]] | Callable[[str], str] | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[str | type[Any]] | None = None,
    run_dir: GivenPath | None = None,
    callbacks: Sequence[Callback | CallbackFunction] = (),
    progress: ProgressKind | None = "lines",
    **settings: object,
) -> Run:
    """Train an agent and return the run.

    Args:
        algorithm: name, such as 'ppo', or your own class at the top level of a module.
        env: Gymnasium id, or an id with an adapter's prefix; or your own env class, or a function that creates your
            env, at the top level of a module.
        preset: name of a preset; 'none' selects none; None selects the one for this algorithm and env if there is one.
        policies: of a world with several agents: 'shared', 'separate', a TOML file with tables [policies.NAME], such
            tables as dicts by name, or a function that is called with the name of each agent and returns the name of
            its policy. None: one policy for all agents.
        env_kwargs: arguments of the env's constructor: numbers, booleans, text, and lists of these.
        wrappers: wrappers of the env, the innermost first: classes at the top level of a module, or their paths,
            'my_module:MyWrapper'. Each is called with the env alone.
        run_dir: a directory that does not exist yet; None creates one under runs/.
        callbacks: objects of `Callback`, or functions: each is called with every metrics line, and may return 'stop',
            or a dict of numbers that are added to the next line.
        progress: 'lines' prints a line to standard error every few seconds; in a notebook it is replaced in place.
            'dashboard', 'none' for silence, or None for 'dashboard' on a terminal, else 'lines'.
        settings: any config key: steps, seed, max_lag, learning_rate, ...

    Raises:
        ConfigError: the input is invalid; nothing was started.
        RunFailed: the run failed.
    """
    algorithm, env = name_of_algorithm(algorithm), name_of_env(env)
    with caller_state() as caller:
        if "kwargs" in settings:
            raise ConfigError("kwargs is the name in files of the env's arguments: pass --env-kwargs NAME=VALUE")
        given = {} if policies is None else {"policies": _with_names_of_encoders(policies)}
        if "encoder" in settings:
            settings["encoder"] = name_of_encoder(settings["encoder"])
        flags = {**settings, **given, **env_settings(env_kwargs, wrappers)}
        config = configs.resolve(algorithm, env, preset=preset, flags=flags)
        caller.restore_random()
        path = user_path(run_dir) if run_dir else None
        return start(config, path, progress=progress, callbacks=callbacks, shows_end=True)


def _with_names_of_encoders(policies: Any) -> Any:
    """Return the policies with the paths of encoders that are given as classes in the settings of one of them."""
    if not isinstance(policies, Mapping):
        return policies
    return {name: _with_name_of_encoder(table) for name, table in policies.items()}


def _with_name_of_encoder(table: Any) -> Any:
    settings = table.get("settings") if isinstance(table, Mapping) else None
    if not isinstance(settings, Mapping) or "encoder" not in settings:
        return table
    return {**table, "settings": {**settings, "encoder": name_of_encoder(settings["encoder"])}}


def start(
    config: Config,
    run_dir: Path | None = None,
    *,
    progress: ProgressKind | None = None,
    callbacks: Sequence[Callback | CallbackFunction] = (),
    shows_end: bool = False,
) -> Run:
    """Train with a complete config. Raises as `train`. `shows_end`: whether the progress view shows how it ended."""
    called = Callbacks(callbacks)
    if run_dir is not None:
        RunDirectory(run_dir).refuse_existing()
    require_package(config.run.tracker)
    with caller_state() as caller:
        view = _view(progress)
        layout = _with_measured_topology(config, view, caller)
        parts = _prepare(layout.config, view, caller)
        config = parts.config
        try:
            start_parts = partial(_start, initial=initial_policies(parts), reason=layout.reason)
            with StopSignals() as signals:  # from here on the directory exists, and a signal must not leave it behind
                directory = _create(run_dir, config)
                roll_back = partial(_discard_empty, directory)
                context = RunContext(
                    *(parts, directory, view, called, signals, start_parts, lambda: None, roll_back),
                    expectation=layout.expectation,
                    shows_end=shows_end,
                )
                with _locked(directory):
                    return run_to_end(context)
        finally:
            parts.close()


@contextmanager
def _locked(directory: RunDirectory) -> Iterator[None]:
    """Lock a new run directory while entered. If that is not possible, discard it."""
    with ExitStack() as closing:
        try:
            closing.enter_context(directory.lock())
        except ConfigError:
            directory.discard()
            raise
        yield


def _create(run_dir: Path | None, config: Config) -> RunDirectory:
    return RunDirectory.create_default(config) if run_dir is None else RunDirectory.create(run_dir, config)


@checked
def resume(
    run: GivenPath,
    *,
    settings: Mapping[str, object] | None = None,
    steps: int | None = None,
    runtime: str | None = None,
    checkpoint: str = LATEST,
    callbacks: Sequence[Callback | CallbackFunction] = (),
    progress: ProgressKind | None = "lines",
    trust_code: bool = False,
    **more_settings: object,
) -> Run:
    """Continue a run from its latest checkpoint, or from an earlier one.

    Metrics lines and checkpoints that are later than this checkpoint are deleted, except the best checkpoint.

    Args:
        run: the run directory.
        settings: config keys that change from here on, with their new values: {"learning_rate": 1e-4}. Settings that
            the checkpoint depends on cannot change: the topology, the network, the env, the seed.
        steps: env steps to train to, in total; None: the steps of the run's config.
        runtime: serial, threads or processes; None: the runtime of the run. With lag exact the result has the same
            bits in each. A hogwild run can only be resumed in hogwild, and other runs cannot be resumed in hogwild.
        checkpoint: latest, best or step-<12 digits>. A best checkpoint that has only weights is refused.
        callbacks: as for `train`.
        progress: as for `train`.
        trust_code: import all code that the run names. Use it only for your own runs. Without it, only installed
            packages and code that this process has already accepted are imported.
        more_settings: the same as `settings`, as arguments: learning_rate=1e-4.

    Raises:
        ConfigError: the run cannot be resumed, its checkpoint is damaged, it names code that was refused, or a setting
            cannot change. Nothing was changed.
        RunFailed: the run failed.
    """
    given = _together(settings, {**more_settings, "steps": steps, "runtime": runtime})
    named = given.pop("runtime", None)
    return continue_run(
        run,
        given,
        runtime=None if named is None else str(named),
        checkpoint=checkpoint,
        callbacks=callbacks,
        progress=progress,
        trust_code=trust_code,
        shows_end=True,
    )


def _together(settings: Mapping[str, object] | None, arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the settings that `resume` was given, as a dict and as arguments; `steps` and `runtime` may be None.

    Raises:
        ConfigError: a key is given twice, or `settings` is no dict.
    """
    if settings is not None and not (isinstance(settings, Mapping) and all(isinstance(key, str) for key in settings)):
        raise ConfigError(
            f"settings is {settings!r}, but a dict with names of settings is expected: pass "
            'settings={"learning_rate": 1e-4}'
        )
    given = {key: value for key, value in arguments.items() if value is not None or key not in ("steps", "runtime")}
    for key in (settings or {}).keys() & given.keys():
        raise ConfigError(f"{key} is given twice, as an argument and in settings: pass only one of them")
    together: dict[str, Any] = {**(settings or {}), **given}
    of_env = env_settings(together.pop("env_kwargs", None), together.pop("wrappers", None))
    return {**together, **of_env}


def continue_run(
    run: GivenPath,
    given: Mapping[str, object],
    *,
    runtime: str | None = None,
    checkpoint: str = LATEST,
    callbacks: Sequence[Callback | CallbackFunction] = (),
    progress: ProgressKind | None = None,
    trust_code: bool = False,
    shows_end: bool = False,
) -> Run:
    """Continue a run with changed settings, `given` by key.

    Arguments and errors are those of `resume`. `shows_end`: whether the progress view shows how it ended.
    """
    called = Callbacks(callbacks)
    directory = RunDirectory.open(user_path(run), trust_code=trust_code)
    crash = directory.crash()
    with caller_state() as caller, directory.lock():
        view = _view(progress)
        accept(*clusters_of(given))
        named = given if runtime is None else {**given, "runtime": runtime}
        directory.require_code(named, trust_code=trust_code)
        saved, state = read_resumable(directory, checkpoint, with_replay=True)
        before = directory.read_config()
        config = _config_to_resume(before, directory.path, state, given, runtime)
        parts = _prepare(config, view, caller)
        try:
            require_fit(saved, parts, directory.path)
            changed = changes_between(before.without_limits(), config)
            continuation = Continuation(directory.path, replace(saved, replay=None), state, saved.replay, changed)
            del saved  # it refers to the replay
            with StopSignals() as signals:
                changes = Changes(directory, config, checkpoint, state, changed)
                context = RunContext(
                    *(parts, directory, view, called, signals),
                    *(continuation.start, changes.commit, changes.roll_back),
                    learned=state["counters"]["learning_step"],
                    metrics_size=changes.metrics_size,
                    resumed_at=state["counters"]["env_steps"],
                    shows_end=shows_end,
                )
                if crash:
                    context.notify(crash)
                return run_to_end(context)
        finally:
            parts.close()


def _config_to_resume(
    before: Config, run: Path, state: dict[str, Any], given: Mapping[str, object], runtime: str | None
) -> Config:
    """Return the config of the resumed run.

    Args:
        before: the config of the run.
        run: the run directory, for messages.
        state: the state of its checkpoint.
        given: the settings that change, by key.
        runtime: the new runtime; None: the same.

    Raises:
        ConfigError: the state cannot be resumed with it.
    """
    if runtime is not None:  # first, because the new runtime decides which of the given settings are supported
        require_same_runtime_kind(state, runtime, before, run)
        before = before.in_runtime(runtime)
    config = resumed_config(before, run, state["counters"], given)
    require_same_runtime_kind(state, config.runtime.runtime, config, run)
    require_topology(state, config, run)
    require_package(config.run.tracker)
    return config


def _view(kind: ProgressKind | None) -> Progress:
    from offbeat.metrics.dashboard import make_progress

    return make_progress(kind, sys.stderr)


def _with_measured_topology(config: Config, view: Progress, caller: CallerState) -> ChosenLayout:
    """Return the config with its topology, chosen by auto layout if `split` is measured."""
    if config.runtime.split == "given":
        return ChosenLayout(config)
    view.message("measuring the cost of acting and learning, to choose the number of actors")
    import_modules(config.run.imports)
    caller.save_library_settings()
    from offbeat.tuning.auto_layout import with_measured_topology

    import_compiled(config, view.message)
    with notifying_if_slow(f"measuring {config.run.env}", view.message):
        return with_measured_topology(config, view.message)


def _prepare(config: Config, view: Progress, caller: CallerState) -> Parts:
    """Check the env and the settings, and create the parts of the learner, or those that lock-free workers share."""
    import_modules(config.run.imports)
    caller.save_library_settings()
    keep_freed_memory()
    import_compiled(config, view.message)
    with notifying_if_slow(f"testing {config.run.env}", view.message):
        from offbeat.runtime.devices import set_up_device
        from offbeat.runtime.runtimes import build

        set_up_device(config)
        parts: Parts = build(config, view.message)
        return parts


def _start(parts: Parts, loop: TrainingLoop, initial: Mapping[str, InitialPolicy], reason: str) -> Started:
    """Start a new run: version 0 is the initial weights, and every actor starts new episodes."""
    from offbeat.algorithms import fast_paths
    from offbeat.envs.observations import image_notes
    from offbeat.runtime.saved_state import refuse_mismatches

    load_initial(parts, initial)
    runs = ", ".join(dict.fromkeys(str(each.run) for each in initial.values()))
    with refuse_mismatches(runs) if initial else nullcontext():
        loop.start({policy: each.statistics for policy, each in initial.items()})
    notices = dict.fromkeys(fast_paths.autograd_notice(policy.algorithm) for policy in parts.policies)
    images = dict.fromkeys(
        f"{problem}: {remedy}" for policy in parts.policies for problem, remedy in image_notes(policy.env.observation)
    )
    messages = (origin_of(parts, initial), reason, process_count.hint(parts.config), *notices, *images)
    return Started("; ".join(filter(None, messages)), start_warnings(parts))


def _discard_empty(directory: RunDirectory) -> bool:
    """Delete the directory of a run without a checkpoint; return whether it was deleted."""
    if (directory.checkpoints / "latest").exists():
        return False
    directory.discard()
    return True
