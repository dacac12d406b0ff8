"""`offbeat.train`: trains with settings that are given, and `train_config`, with a complete config."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offbeat.api.callbacks.callback import Callback, CallbackFunction
from offbeat.api.callbacks.calls import Callbacks
from offbeat.api.named_code import name_of_algorithm, name_of_encoder, name_of_env, require_plain, with_env_settings
from offbeat.api.running.initial import InitialPolicy, initial_policies, load_initial, origin_of
from offbeat.api.running.prepare import load_code, notifying_if_slow, prepare, view_on_stderr
from offbeat.api.running.run import Run, run_to_end
from offbeat.api.running.run_context import RunContext, StartMessages
from offbeat.api.running.start_hints import start_hints
from offbeat.api.running.start_warnings import start_warnings
from offbeat.config import resolve as configs
from offbeat.config.arguments import checked
from offbeat.config.config import Config
from offbeat.core.errors import ConfigError
from offbeat.core.files import GivenPath, user_path
from offbeat.core.process.caller_state import CallerState, caller_state
from offbeat.core.toml_files import MOST_BYTES_OF_A_RUN
from offbeat.metrics.progress.views import ProgressKind, View
from offbeat.run_directory.directory import RunDirectory
from offbeat.runtime.loop.signals import GracefulStop
from offbeat.tracking.tracker import require_tracker
from offbeat.tuning.chosen_layout import ChosenLayout

if TYPE_CHECKING:
    from offbeat.runtime.loop.training_loop import TrainingLoop
    from offbeat.runtime.parts import Parts

__all__ = ["Run", "train", "train_config"]


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
        env_kwargs: arguments of the env's constructor: numbers, booleans, text, and lists and dicts of these.
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
        if "settings" in settings:
            raise ConfigError("settings is no argument of train: pass each setting by its name, such as gamma=0.9")
        if "kwargs" in settings:
            raise ConfigError("kwargs is the name in files of the env's arguments: pass --env-kwargs NAME=VALUE")
        if isinstance(policies, Mapping):
            policies = {name: _with_text(table) for name, table in policies.items()}
        given = {} if policies is None else {"policies": policies}
        flags = with_env_settings({**_with_text(settings), **given}, env_kwargs, wrappers)
        config = configs.resolve(algorithm, env, preset=preset, flags=flags)
        caller.restore_random()
        path = None if run_dir is None else user_path(run_dir)
        return train_config(config, path, progress=progress, callbacks=callbacks, shows_end=True)


def _with_text(table: Any) -> Any:
    """Return settings, or the table of a policy, with text for what is given as an object: runs and encoders.

    Raises:
        ConfigError: an encoder cannot be imported by other processes, or has an argument that a file cannot hold.
    """
    if not isinstance(table, Mapping):
        return table
    text = {**table, "settings": _with_text(table["settings"])} if "settings" in table else dict(table)
    if isinstance(text.get("init_from"), os.PathLike):
        text["init_from"] = os.fspath(text["init_from"])
    if "encoder" in text:
        text["encoder"] = name_of_encoder(text["encoder"])
    if isinstance(text.get("encoder_kwargs"), Mapping):
        require_plain("encoder_kwargs", text["encoder_kwargs"])
    return text


def train_config(
    config: Config,
    run_dir: Path | None = None,
    *,
    progress: ProgressKind | None = None,
    callbacks: Sequence[Callback | CallbackFunction] = (),
    shows_end: bool = False,
) -> Run:
    """Train with a complete config. Raises as `train`. `shows_end`: whether the progress view shows how it ended."""
    called = Callbacks(callbacks)
    _require_small(config)
    if run_dir is not None:
        RunDirectory(run_dir).refuse_existing()
    require_tracker(config.run.tracker)
    for run in dict.fromkeys(config.initial_runs.values()):
        RunDirectory.open(Path(run))
    with called.reserved(), caller_state() as caller:
        view = view_on_stderr(progress)
        load_code(config, view, caller)
        layout = _with_measured_topology(config, view)
        return _train_and_release(layout, run_dir, view, called, caller, shows_end=shows_end)


def _train_and_release(
    layout: ChosenLayout,
    run_dir: Path | None,
    view: View,
    callbacks: Callbacks,
    caller: CallerState,
    *,
    shows_end: bool,
) -> Run:
    """Train, and release the memory of the run: on its exit, `caller_state` returns what is free to the system."""
    parts = prepare(layout.config, view)
    try:
        caller.restore_folder()  # an env may change it when it is tested
        start_acting = partial(_start_new, initial=initial_policies(parts), reason=layout.reason)
        with GracefulStop() as signals:  # from here on the directory exists, and a signal must not leave it behind
            directory = _create(run_dir, parts.config)
            context = RunContext(
                parts=parts,
                directory=directory,
                view=view,
                callbacks=callbacks,
                signals=signals,
                start_acting=start_acting,
                commit=lambda: None,
                roll_back=partial(_discard_empty, directory),
                expectation=layout.expectation,
                shows_end=shows_end,
            )
            with _locked(directory):
                return run_to_end(context)
    finally:
        parts.close()


def _require_small(config: Config) -> None:
    """Refuse a config whose file would be too large to be read."""
    if (size := len(config.as_toml())) > MOST_BYTES_OF_A_RUN:
        raise ConfigError(
            f"the config of this run has {size} bytes, but at most {MOST_BYTES_OF_A_RUN} are expected: let the env "
            "read large data from a file, and pass its path (env_kwargs)"
        )


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


def _with_measured_topology(config: Config, view: View) -> ChosenLayout:
    """Return the config with its topology, chosen by auto layout if `split` is measured."""
    if config.runtime.split == "given":
        return ChosenLayout(config)
    view.message("measuring the cost of acting and learning, to choose the number of actors")
    from offbeat.tuning.auto_layout import with_measured_topology

    with notifying_if_slow(f"measuring {config.run.env}", view.message):
        return with_measured_topology(config, view.message)


def _start_new(parts: Parts, loop: TrainingLoop, initial: Mapping[str, InitialPolicy], reason: str) -> StartMessages:
    """Start a new run: version 0 is the initial weights, and every actor starts new episodes."""
    from offbeat.runtime.loop.state_checks import refuse_mismatches

    load_initial(parts, initial)
    runs = ", ".join(dict.fromkeys(str(each.run) for each in initial.values()))
    with refuse_mismatches(runs) if initial else nullcontext():
        loop.start({policy: each.statistics for policy, each in initial.items()})
    messages = (origin_of(parts, initial), reason, *start_hints(parts))
    return StartMessages("; ".join(filter(None, messages)), start_warnings(parts))


def _discard_empty(directory: RunDirectory) -> bool:
    """Delete the directory of a run without a checkpoint; return whether it was deleted."""
    if directory.has_checkpoint:
        return False
    directory.discard()
    return True
