"""The bottleneck report: one sentence that names what limits the speed in a period, and what would help.

It is computed from the seconds of `Timings`: 'act' and 'env', summed over all actors, and 'infer', summed over all
inference workers, are acting; 'learn' is learning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from offbeat.metrics.speed_model import SpeedModel, Topology
from offbeat.metrics.text import percentage
from offbeat.metrics.timings import (
    ACTOR_WAIT,
    CORE_WAIT,
    INFERENCE_WAIT,
    LEARNER_WAIT,
    MESSAGE_WAIT,
    OTHER_WORK,
    acting_s,
    other_work_s,
)

Bottleneck = Literal["learner", "actors", "lag", "machine", "balance", "serial", "hogwild"]
"""What limits the speed. machine: all cores are busy, with this run or with other programs; balance: neither actors
nor learner wait, and a core is idle."""

HIGH_WAIT = 0.15
"""Actors, or a learner, that wait for more than this fraction of their time do not limit the speed."""
ALL_BUSY = 0.9
"""If there is work for at least this fraction of the cores, none counts as idle."""
_ELSE = "unless envs wait, only"
"""Times are wall-clock times: an env that sleeps or waits for a server counts as work, but leaves its core idle."""
_OTHERS = "other programs, evaluations, or threads of envs and actors use the cores"
"""Why the learner waits for a core although its thread and the actors have no work for all of them."""
MIN_GAIN = 1.1
"""Smallest speed-up that is worth more than one worker."""

LABELS: dict[Bottleneck, str] = {
    "learner": "learner-bound",
    "actors": "actor-bound",
    "lag": "lag-bound",
    "machine": "machine-bound",
    "balance": "balanced",
    "serial": "serial",
    "hogwild": "lock-free",
}
"""Label at the start of the sentence."""


@dataclass(frozen=True)
class BottleneckReport:
    """What limits the speed of a run in a period."""

    bound: Bottleneck
    actor_wait: float | None
    """Fraction of the actors' time that they waited, in [0, 1]; None in serial."""
    learner_wait: float | None
    """Fraction of the learner's time that it waited, in [0, 1]; None in serial."""
    gain_max: float
    """Largest possible speed-up over the serial runtime, from 1 to the number of cores."""
    sentence: str
    """What limits the speed and what would help, for a person."""


def bottleneck_report(
    spent: Mapping[str, float], wall_s: float, topology: Topology, restarts: int = 0
) -> BottleneckReport:
    """Return what limited the speed in a period of `wall_s` seconds.

    The time of evaluations and checkpoints is subtracted, and so are the waits of actors for them: each actor measures
    these as `OTHER_WORK`, which is a part of `ACTOR_WAIT`.

    Args:
        spent: seconds by name, as in `Timings`, summed over all workers.
        wall_s: length of the period in seconds.
        topology: of the run.
        restarts: how often a process of an actor or inference worker was restarted in the period.
    """
    learning = spent.get("learn", 0.0)
    speed = SpeedModel.from_wall_times(topology, acting_s(spent), learning)
    if topology.runtime.runs_in_order:
        return _report_in_order(speed)
    training_s = wall_s - other_work_s(spent)
    if topology.runtime.workers_learn:
        return _report_hogwild(speed, training_s)
    waited = max(0.0, spent.get(ACTOR_WAIT, 0.0) - spent.get(OTHER_WORK, 0.0))
    for_inference, for_messages = spent.get(INFERENCE_WAIT, 0.0), spent.get(MESSAGE_WAIT, 0.0)
    in_actors = spent.get("act", 0.0) + spent.get("env", 0.0)  # without the time of inference workers
    whole = in_actors + for_inference + for_messages + waited
    period = _Period(
        actor_wait=_share(waited, whole),
        inference_wait=_share(for_inference, whole),
        message_wait=_share(for_messages, whole),
        learner_wait=_share(spent.get(LEARNER_WAIT, 0.0), learning + spent.get(LEARNER_WAIT, 0.0)),
        cores_used=speed.cores_used(training_s),
        core_wait=min(1.0, _share(spent.get(CORE_WAIT, 0.0), wall_s)),
        gain_max=speed.gain_max,
        restarts=restarts,
    )
    bound = _bound(period, topology)
    if restarts and bound in ("actors", "lag"):
        sentence = f"restarts: {_restart_advice(period)}"
    else:
        sentence = f"{LABELS[bound]}: {_ADVICE[bound](period, topology)}"
    sentence += f"{_inference_advice(bound, period)}{_message_advice(bound, period)}"
    return BottleneckReport(bound, period.actor_wait, period.learner_wait, period.gain_max, sentence)


@dataclass(frozen=True)
class _Period:
    """What was measured in a period with an overlapped runtime."""

    actor_wait: float
    inference_wait: float
    """Fraction of the actors' time that they waited for inference workers."""
    message_wait: float
    """Fraction of the actors' time in which they had nothing to do because a message was on its way."""
    learner_wait: float
    cores_used: float
    core_wait: float
    """Fraction of the period in which the thread that learns waited for a core; 0 if several threads learn."""
    gain_max: float
    restarts: int


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _bound(period: _Period, topology: Topology) -> Bottleneck:
    actors_wait, learner_waits = period.actor_wait > HIGH_WAIT, period.learner_wait > HIGH_WAIT
    if topology.max_lag == 0:
        return "lag"
    if actors_wait and learner_waits:  # without an idle core, one waits for the other, which waits for a core
        return "machine" if _no_core_is_idle(period, topology) and not period.restarts else "lag"
    if actors_wait:
        return "learner"
    if learner_waits:
        return "actors"
    return "machine" if _no_core_is_idle(period, topology) else "balance"


def _no_core_is_idle(period: _Period, topology: Topology) -> bool:
    """Whether actors and learner have work for all cores, or others use those that they leave idle."""
    return _all_cores_busy(period, topology) or _others_use_cores(period, topology)


def _others_use_cores(period: _Period, topology: Topology) -> bool:
    return period.core_wait > HIGH_WAIT and not _all_cores_busy(period, topology)


def _all_cores_busy(period: _Period, topology: Topology) -> bool:
    return topology.runtime.one_machine and period.cores_used >= ALL_BUSY * topology.cores


def _restart_advice(period: _Period) -> str:
    times = "once" if period.restarts == 1 else f"{period.restarts} times"
    return f"processes were restarted {times}, and the others waited {_waits(period)}: log.txt has the reasons"


def _waits(period: _Period) -> str:
    return f"(actors wait {percentage(period.actor_wait)}, the learner {percentage(period.learner_wait)})"


def _learner_advice(period: _Period, topology: Topology) -> str:
    advice = f"actors wait {percentage(period.actor_wait)} of the time"
    if _others_use_cores(period, topology):
        advice += f", and the learner's thread {percentage(period.core_wait)} for a core: {_OTHERS}"
    else:
        advice += f"; more actors or a larger {topology.lag_flag} will not help"
    return advice if period.gain_max >= MIN_GAIN else f"{advice}; overlap gains {_at_most(period)}"


def _actors_advice(period: _Period, topology: Topology) -> str:
    advice = f"the learner waits {percentage(period.learner_wait)} of the time"
    if _others_use_cores(period, topology):
        return f"{advice} for actors, and its thread {percentage(period.core_wait)} for a core: {_OTHERS}"
    return f"{advice}; {_more_actors(period, topology)}"


def _lag_advice(period: _Period, topology: Topology) -> str:
    advice = f"acting and learning take turns {_waits(period)}; a larger {topology.lag_flag}"
    return f"{advice} lets them overlap: {_at_most(period)}" if topology.max_lag == 0 else f"{advice} may help"


def _machine_advice(period: _Period, topology: Topology) -> str:
    if _others_use_cores(period, topology):
        return f"the learner waits {percentage(period.core_wait)} of the time for a core {_waits(period)}: {_OTHERS}"
    work = f"there is work for {_all_cores(topology.cores)} {_waits(period)}"
    return f"{work}; {_ELSE} cheaper acting or learning helps"


def _balance_advice(period: _Period, topology: Topology) -> str:
    return f"neither actors nor learner wait much {_waits(period)}, {_core_usage(period, topology)}"


_ADVICE: dict[Bottleneck, Callable[[_Period, Topology], str]] = {
    "learner": _learner_advice,
    "actors": _actors_advice,
    "lag": _lag_advice,
    "machine": _machine_advice,
    "balance": _balance_advice,
}
"""What would help, by what limits the speed of an overlapped run. Such a run cannot tell how fast serial is, because
its times include waits for cores that actors and learner share: `offbeat bench` measures that."""


def _inference_advice(bound: Bottleneck, period: _Period) -> str:
    """Return the end of the sentence, if actors wait for inference workers and limit the speed."""
    if bound not in ("actors", "machine", "balance") or period.inference_wait <= HIGH_WAIT:
        return ""
    return (
        f"; actors wait {percentage(period.inference_wait)} of the time for inference workers: `offbeat bench` "
        "compares them with inference=actor; env_groups=2 steps envs meanwhile"
    )


def _message_advice(bound: Bottleneck, period: _Period) -> str:
    """Return the end of the sentence, if actors on a cluster wait for messages and limit the speed."""
    if bound not in ("actors", "balance") or period.message_wait <= HIGH_WAIT:
        return ""
    return (
        f"; actors wait {percentage(period.message_wait)} of the time for messages: a larger unroll_length or "
        "envs_per_actor (with a replay chunk_length) needs fewer of them"
    )


def _more_actors(period: _Period, topology: Topology) -> str:
    if _all_cores_busy(period, topology):
        return f"actors have work for {_all_cores(topology.cores)}: {_ELSE} a lighter env or policy helps"
    return f"more actors help while cores are idle ({_core_usage(period, topology)})"


def _core_usage(period: _Period, topology: Topology) -> str:
    return f"at most {period.cores_used:.1f} of {topology.cores} cores are busy"


def _all_cores(cores: int) -> str:
    return {1: "the only core", 2: "both cores"}.get(cores, f"all {cores} cores")


def _at_most(period: _Period) -> str:
    return (
        f"at most {period.gain_max:.2f}x as fast"
        if period.gain_max >= MIN_GAIN
        else (f"at most {period.gain_max:.2f}x: not worthwhile")
    )


def _report_in_order(speed: SpeedModel) -> BottleneckReport:
    """Report on a runtime that acts and learns in turn: the largest speed-up of a runtime that overlaps them."""
    gain, (acting, learning) = speed.gain_max, _time_shares(speed)
    shares = f"acting takes {acting} and learning {learning} of the time"
    if gain < MIN_GAIN:
        advice = f"asynchrony would not help this workload (at most {gain:.2f}x)"
    else:
        advice = f"--runtime processes is at most {gain:.2f}x as fast unless envs wait: `offbeat bench` measures it"
    return BottleneckReport("serial", None, None, gain, f"{LABELS['serial']}: {shares}; {advice}")


def _report_hogwild(speed: SpeedModel, wall_s: float) -> BottleneckReport:
    """Report on workers that act and learn, and never wait for each other."""
    topology, gain, (acting, learning) = speed.topology, speed.gain_max, _time_shares(speed)
    have = "worker has" if topology.actors == 1 else "workers have"
    usage = (
        f"{topology.actors} {have} work for {speed.cores_used(wall_s):.1f} of {topology.cores} cores (acting {acting}, "
        f"learning {learning})"
    )
    if topology.has_too_many_workers:
        advice = f"there are more workers than cores: --workers {topology.useful_workers} is as fast"
    elif gain < MIN_GAIN:
        advice = "one worker does the same work as --runtime serial, which needs no second process"
    else:
        advice = f"at most {gain:.2f}x over serial, but with stale gradients (gradient_staleness)"
    return BottleneckReport("hogwild", None, None, gain, f"{LABELS['hogwild']}: {usage}; {advice}")


def _time_shares(speed: SpeedModel) -> tuple[str, str]:
    """Return the shares of acting and learning in their total time, as percentages."""
    total = speed.acting + speed.learning
    return percentage(_share(speed.acting, total)), percentage(_share(speed.learning, total))
