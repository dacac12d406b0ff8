"""`offbeat.resume`: continues a run from a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from offbeat.api.callbacks.callback import Callback, CallbackFunction
from offbeat.api.callbacks.calls import Callbacks
from offbeat.api.named_code import with_env_settings
from offbeat.api.running.checkpoint_fit import require_checkpoint_fit
from offbeat.api.running.continuation import Continuation
from offbeat.api.running.prepare import load_code, prepare, view_on_stderr
from offbeat.api.running.resume_changes import DirectoryChanges
from offbeat.api.running.resume_checks import config_to_resume, read_resumable
from offbeat.api.running.run import Run, run_to_end
from offbeat.api.running.run_context import RunContext
from offbeat.config.arguments import checked
from offbeat.config.changes import changes_between
from offbeat.config.importing import accept
from offbeat.config.trust import clusters_of
from offbeat.core.errors import ConfigError
from offbeat.core.files import GivenPath
from offbeat.core.process.caller_state import CallerState, caller_state
from offbeat.metrics.counters import Counters
from offbeat.metrics.progress.views import ProgressKind, View
from offbeat.run_directory.directory import RunDirectory
from offbeat.run_directory.store import LATEST
from offbeat.runtime.loop.signals import GracefulStop


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
        runtime: serial, threads, processes or ray; None: the runtime of the run. With lag exact the result has the
            same bits in each. A hogwild run can only be resumed in hogwild, and other runs cannot be resumed in
            hogwild.
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
    return continue_run(
        run,
        given,
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
    env_kwargs, wrappers = together.pop("env_kwargs", None), together.pop("wrappers", None)
    return with_env_settings(together, env_kwargs, wrappers)


def continue_run(
    run: GivenPath,
    given: Mapping[str, object],
    *,
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
    directory = RunDirectory.open(run, trust_code=trust_code)
    messages = directory.crash_message(), directory.status_damage()
    with called.reserved(), caller_state() as caller, directory.presence().required(), directory.lock():
        view = view_on_stderr(progress)
        accept(*clusters_of(given))
        directory.require_code(given, trust_code=trust_code)
        return _continue_and_release(
            directory, given, checkpoint, view, called, caller, messages=messages, shows_end=shows_end
        )


def _continue_and_release(
    directory: RunDirectory,
    given: Mapping[str, object],
    checkpoint: str,
    view: View,
    callbacks: Callbacks,
    caller: CallerState,
    *,
    messages: Sequence[str],
    shows_end: bool,
) -> Run:
    """Continue a run, and release its memory: on its exit, `caller_state` returns what is free to the system."""
    saved, state = read_resumable(directory, checkpoint, with_replay=True)
    before = directory.read_config()
    config = config_to_resume(before, directory.path, state, given)
    load_code(config, view, caller)
    parts = prepare(config, view)
    try:
        require_checkpoint_fit(saved, parts, directory.path)
        changed = changes_between(before.without_limits(), config)
        continuation = Continuation(directory.path, saved, changed)
        counters = Counters.of_state(state["counters"])
        logged = Counters.of_state(state["recorder"]["counted"]).learning_step
        del saved, state  # they are large, and the continuation releases them
        with GracefulStop() as signals:
            changes = DirectoryChanges(directory, config, checkpoint, counters, logged, changed)
            context = RunContext(
                parts=parts,
                directory=directory,
                view=view,
                callbacks=callbacks,
                signals=signals,
                start_acting=continuation.start_acting,
                commit=changes.commit,
                roll_back=changes.roll_back,
                learned=counters.learning_step,
                metrics_size=changes.metrics_size,
                resumed_at=counters.env_steps,
                shows_end=shows_end,
            )
            for message in filter(None, (*messages, changes.lost_lines)):
                context.messages.notify(message)
            return run_to_end(context)
    finally:
        parts.close()
