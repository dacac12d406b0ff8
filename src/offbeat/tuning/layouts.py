"""Layouts of one run side by side: the speed that the costs predict for each, and the speed of a short run.

A prediction is not advice: only measured speeds decide which layout `offbeat bench` recommends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from offbeat.config.config import Config
from offbeat.config.runtimes import runtime_entry
from offbeat.core.errors import ConfigError, RunFailed
from offbeat.metrics.expectation import FACTOR
from offbeat.metrics.text import counted
from offbeat.tuning.auto_layout import with_measured_topology
from offbeat.tuning.inference_costs import WORTH


@dataclass(frozen=True)
class Layout:
    """A layout of a run."""

    runtime: str
    actors: int
    """Number of actors; lock-free, of workers."""
    envs_per_actor: int
    learner_threads: int

    @property
    def name(self) -> str:
        """The layout as text: processes, 2 actors x 16 envs; lock-free, hogwild, 2 workers x 16 envs."""
        threads = "" if self.learner_threads == 1 else f", {self.learner_threads} learner threads"
        role = runtime_entry(self.runtime).role
        return f"{self.runtime}, {counted(self.actors, role)} x {counted(self.envs_per_actor, 'env')}{threads}"

    @property
    def flags(self) -> str:
        """The flags that choose the layout in its runtime."""
        layout = f"--actors {self.actors} --envs-per-actor {self.envs_per_actor}"
        return f"{layout} --set learner_threads={self.learner_threads}"


@dataclass(frozen=True)
class MeasuredLayout(Layout):
    """A layout with its two speeds in env steps per second."""

    predicted_sps: float
    """Speed that follows from the costs, each measured alone."""
    achieved_sps: float
    """Speed of a short run."""


@dataclass(frozen=True)
class FailedLayout(Layout):
    """A layout whose short run failed."""

    reason: str


@dataclass(frozen=True)
class LayoutComparison:
    """A run, the same run in the other kind of runtime, and other layouts of it."""

    run: MeasuredLayout
    serial: MeasuredLayout | None
    """The layout that acts and learns in turn; None if it could not be measured."""
    concurrent: MeasuredLayout | None
    """The layout that acts and learns at the same time; None if it could not be measured."""
    others: tuple[MeasuredLayout, ...] = ()
    """More layouts of the run's runtime."""
    failed: tuple[FailedLayout, ...] = ()
    """Layouts without a speed."""

    @property
    def layouts(self) -> list[MeasuredLayout]:
        """All layouts, that of the run first."""
        rest = (*self.others, self.concurrent, self.serial)
        return [self.run, *(layout for layout in rest if layout is not None and layout is not self.run)]

    @property
    def overlap_gain(self) -> float | None:
        """How many times faster than in turn the run is if it acts and learns at the same time; None: not measured."""
        if self.serial is None or self.concurrent is None:
            return None
        return self.concurrent.achieved_sps / self.serial.achieved_sps

    def results(self) -> dict[str, Any]:
        """Return the results for `offbeat bench --json`."""
        layouts, failed = ([asdict(layout) for layout in each] for each in (self.layouts, self.failed))
        return {"overlap_gain": self.overlap_gain, "layouts": layouts, "failed_layouts": failed}


def serial_config(config: Config) -> Config:
    """Return the config of the same work in serial. On-policy, one actor acts in all envs, as it is cheapest there."""
    serial = config.in_runtime("serial")
    runtime = serial.runtime
    if "split" in config.algorithm_settings.unsupported_runtime_keys or runtime.batch_unrolls != runtime.actors:
        return serial
    one_actor = replace(
        runtime,
        actors=1,
        envs_per_actor=runtime.actors * runtime.envs_per_actor,
        unrolls_per_batch=1,
        inference_workers=None,
        inference_device=runtime.inference_device and runtime.inference_device[:1],
    )
    return replace(serial, runtime=one_actor)


def concurrent_config(config: Config, notify: Callable[[str], None]) -> Config:
    """Return the config of the same work in processes, in the layout that is best there by its measured costs.

    Args:
        config: the config of the run.
        notify: as for `with_measured_topology`.

    Raises:
        ConfigError: processes do not support the config.
        EnvFailed: the envs failed while the layout was chosen.
    """
    processes = config.in_runtime("processes")
    runtime = processes.runtime
    if "split" in config.algorithm_settings.unsupported_runtime_keys:
        return processes
    runtime = replace(runtime, max_lag=runtime.max_lag or runtime.entry.default_max_lag)
    if runtime.lag == "bounded" and runtime.batch_unrolls == runtime.actors:
        runtime = replace(runtime, split="measured")
    return with_measured_topology(replace(processes, runtime=runtime), notify).config


def layout_of(config: Config, threads: int, predicted_sps: float, achieved_sps: float) -> MeasuredLayout:
    """Return the layout of a run with its speeds; `threads`: those that its learner has."""
    runtime = config.runtime
    return MeasuredLayout(runtime.runtime, config.actors, runtime.envs_per_actor, threads, predicted_sps, achieved_sps)


def _failed(config: Config, error: RunFailed) -> FailedLayout:
    """Return the layout of a run that has failed."""
    runtime = config.runtime
    return FailedLayout(runtime.runtime, config.actors, runtime.envs_per_actor, config.threads, reason=str(error))


Measure = Callable[[Config], MeasuredLayout]
"""Measures the layout of a config."""


def compare(
    run: MeasuredLayout, config: Config, others: Sequence[Config], measure: Measure, notify: Callable[[str], None]
) -> LayoutComparison:
    """Measure the run in the other kind of runtime, and in `others`. A layout that fails is named in the result.

    Args:
        run: the layout of the run, with its measured speed.
        config: its config.
        others: configs of other layouts in its runtime.
        measure: measures the layout of a config.
        notify: as for `with_measured_topology`.
    """
    in_order = config.runtime.entry.runs_in_order
    try:
        counterpart = _in_processes(config, measure, notify) if in_order else _measured(serial_config(config), measure)
    except ConfigError:  # this runtime does not support the config
        counterpart = None
    more = [_measured(other, measure) for other in others]
    found = counterpart if isinstance(counterpart, MeasuredLayout) else None
    serial, concurrent = (run, found) if in_order else (found, run)
    measured = tuple(layout for layout in more if isinstance(layout, MeasuredLayout))
    failed = tuple(layout for layout in (counterpart, *more) if isinstance(layout, FailedLayout))
    return LayoutComparison(run, serial, concurrent, measured, failed)


def _in_processes(config: Config, measure: Measure, notify: Callable[[str], None]) -> MeasuredLayout | FailedLayout:
    """Measure a serial run in processes. Their layout is chosen with the envs, which may fail there already."""
    try:
        chosen = concurrent_config(config, notify)
    except RunFailed as error:
        return _failed(config.in_runtime("processes"), error)
    return _measured(chosen, measure)


def _measured(config: Config, measure: Measure) -> MeasuredLayout | FailedLayout:
    try:
        return measure(config)
    except RunFailed as error:
        return _failed(config, error)


# --- as text ------------------------------------------------------------------------------------------------


def table(layouts: Sequence[MeasuredLayout]) -> str:
    """Return the layouts with both speeds, one line each."""
    width = max(len(layout.name) for layout in layouts)
    rows = [
        f"  {layout.name:{width}}  {layout.predicted_sps:10,.0f}  {layout.achieved_sps:10,.0f}  "
        f"{layout.achieved_sps / layout.predicted_sps:5.0%}"
        for layout in layouts
    ]
    return "\n".join([f"  {'env steps/s':{width}}   predicted    measured", *rows])


def failures(layouts: Sequence[FailedLayout]) -> str:
    """Return why layouts have no speed, one line each."""
    return "\n".join(f"  {layout.name} failed: {layout.reason}" for layout in layouts)


def advice(comparison: LayoutComparison, *, busy: bool) -> str:
    """Return which layout to take, by the measured speeds alone. `busy`: whether other processes use the machine."""
    if busy:
        return "the machine is too busy to say which layout is faster"
    return "; ".join(filter(None, (_gain_advice(comparison), _layout_advice(comparison))))


def _gain_advice(comparison: LayoutComparison) -> str:
    gain, serial, concurrent = comparison.overlap_gain, comparison.serial, comparison.concurrent
    if gain is None or serial is None or concurrent is None:
        return ""
    here = f"{concurrent.runtime} is {gain:.2f}x as fast as serial here"
    in_order = comparison.run is comparison.serial
    in_turn = _runtime_flags(comparison.run, serial)
    if gain > WORTH:
        remedy = f", so pass {_runtime_flags(comparison.run, concurrent)}" if in_order else ""
        return f"asynchrony pays: {here}{remedy}"
    if gain < 1 / WORTH:
        return f"asynchrony does not help this workload: {here}, so {'stay with' if in_order else 'pass'} {in_turn}"
    return f"asynchrony makes no difference to this workload: {here}, and {in_turn} is simpler"


def _runtime_flags(run: Layout, layout: Layout) -> str:
    """Return the flags that turn the run into a measured layout of another runtime."""
    runtime = f"--runtime {layout.runtime}"
    return runtime if layout.flags == run.flags else f"{runtime} {layout.flags}"


def _layout_advice(comparison: LayoutComparison) -> str:
    """Return a faster layout of the same runtime; '' if none was measured."""
    best = max(comparison.others, key=lambda layout: layout.achieved_sps, default=comparison.run)
    gain = best.achieved_sps / comparison.run.achieved_sps
    return f"{best.flags} is {gain:.2f}x as fast as the layout of this run" if gain > WORTH else ""


def misprediction(layouts: Sequence[MeasuredLayout], *, busy: bool) -> str:
    """Return why speeds differ from their predictions by more than `FACTOR`; '' if none does.

    Args:
        layouts: the measured layouts.
        busy: whether other processes use the machine, which says enough.
    """
    if busy:
        return ""
    slow = [layout for layout in layouts if layout.achieved_sps * FACTOR < layout.predicted_sps]
    fast = [layout for layout in layouts if layout.achieved_sps > FACTOR * layout.predicted_sps]
    if fast:
        return f"faster than predicted ({_names(fast)}): the costs were measured too high; measure again"
    if not slow:
        return ""
    return (
        f"slower than predicted ({_names(slow)}): each cost is measured alone, but in a run acting and learning share "
        "caches and memory, and where they work at the same time, they wait for each other, in threads also for "
        "Python's lock"
    )


def _names(layouts: Sequence[Layout]) -> str:
    return "; ".join(layout.name for layout in layouts)
