"""Makes the training loop of a run, and what it uses: the sinks of its metrics, the recorder, the other services."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from offbeat.api.running.run_context import RunContext
from offbeat.api.running.running_status import RunningStatus
from offbeat.config.config import Config
from offbeat.metrics.process_memory import ProcessMemory
from offbeat.metrics.progress.status import About
from offbeat.metrics.recorder import Recorder
from offbeat.metrics.sinks import JsonLines, LateSink, Sink, TensorBoard
from offbeat.metrics.text import counted
from offbeat.runtime.assembly import topology_of
from offbeat.runtime.children.supervised import Supervised, start_failure
from offbeat.runtime.devices import device_text
from offbeat.runtime.loop.run_services import RunServices
from offbeat.runtime.loop.training_loop import TrainingLoop
from offbeat.runtime.reporting import Reporting
from offbeat.runtime.runtimes import runtime_of


def make_sinks(context: RunContext, tracker: Sink | None, warn: Callable[[str], None]) -> list[LateSink]:
    """Return the sinks of the run, which are not open yet. The tracker is last: it reads the line in the file."""
    metrics, tensorboard = context.directory.metrics_file, context.directory.tensorboard_folder
    makers: list[Callable[[], Sink]] = [
        partial(JsonLines, metrics),
        partial(TensorBoard, tensorboard, context.resumed_at),
    ]
    if tracker is not None:
        makers.append(lambda: tracker)
    return [LateSink(make, warn) for make in makers]


def make_loop(
    closing: ExitStack, context: RunContext, sinks: Sequence[Sink], warn: Callable[[str], None]
) -> TrainingLoop:
    """Create the training loop with its actors or workers; add to `closing` what must be closed at the end.

    Raises:
        RunFailed: the system refuses files or memory for it.
    """
    parts, directory, config = context.parts, context.directory, context.config
    memory, status = ProcessMemory(), RunningStatus(directory, context.view.update)

    def show_processes(role: str, children: Sequence[Supervised]) -> None:
        pids = {child.index: child.pid for child in children if child.pid is not None}
        memory.watch(role, pids)
        status.set_processes(role, pids)

    recorder = Recorder(
        sinks,
        topology_of(config, parts.threads),
        context.messages.notify,
        episodes_window=config.run.episodes_window,
        info=config.env.info_metrics,
        memory=memory.read,
    )
    closing.callback(recorder.close)
    services = RunServices(
        directory=directory,
        recorder=recorder,
        show_status=status.update,
        warn=warn,
        reporting=Reporting(context.messages.notify, show_processes),
        signals=context.signals,
        observer=context.callbacks,
        expectation=context.expectation,
    )
    try:
        loop = runtime_of(config).loop(parts, context.learned, services, closing)
    except OSError as error:  # the bells of many actors need many files
        raise start_failure("the run", error) from error
    closing.callback(loop.evaluations.close)
    return loop


def about_run(config: Config, run_dir: Path) -> About:
    """Return what the progress view shows about the run."""
    run, runtime = config.run, config.runtime
    settings = "default settings, no preset" if run.preset is None else f"preset {run.preset}"
    layout = [f"{counted(config.actors, runtime.entry.role)} x {counted(runtime.envs_per_actor, 'env')}"]
    if runtime.inference_processes:
        layout.append(counted(runtime.inference_processes, "inference worker"))
    lag = _lag_label(config) + (" (exact)" if runtime.lag == "exact" else "")
    topology = ", ".join((runtime.entry.name, *layout, lag, device_text(config)))
    return About(f"{run.algorithm} on {run.env} ({settings})", topology, runtime.entry, run_dir)


def _lag_label(config: Config) -> str:
    """Return the bound on the lag as a short text; for lock-free workers, what they share."""
    if config.runtime.entry.workers_learn:
        return f"{config.runtime.hogwild or 'shared'}, moments {config.runtime.hogwild_moments or 'shared'}"
    return f"{config.algorithm_settings.lag_flag.strip('-').replace('-', '_')} {config.memory.pace.versions - 1}"
