"""Who waits for whom: the seconds of a period become one sentence that names what bounds the speed.

The workers' seconds are those of `Timings`. Acting is 'act' + 'env', summed over all actors; learning is 'learn'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from offbeat.config.runtimes import RuntimeEntry

Bound = Literal["learner", "actors", "lag", "machine", "balance", "serial", "hogwild"]
"""What bounds the speed; 'machine': all cores are busy; 'balance': both sides are, and a core is idle."""

WAITS_MUCH = 0.15
"""A side that waits for more than this fraction of its time is not what bounds the speed."""
ALL_BUSY = 0.9
"""From this fraction of the cores on, none counts as idle."""
WORTH_IT = 1.1
"""A gain below this is not worth a second worker."""

_LABELS: dict[Bound, str] = {
    "learner": "learner-bound",
    "actors": "actor-bound",
    "lag": "lag-bound",
    "machine": "machine-bound",
    "balance": "balanced",
    "serial": "serial",
    "hogwild": "lock-free",
}


@dataclass(frozen=True)
class Topology:
    """Who works, and on what."""

    runtime: RuntimeEntry
    actors: int
    """Or workers, which act and learn."""
    learner_threads: int
    cores: int
    """Cores that the run may use."""
    max_lag: int
    """How far actors may be ahead: in learning steps, on a replay in tickets."""
    lag_flag: str = "--max-lag"
    """What is typed to let them be further ahead."""


@dataclass(frozen=True)
class BottleneckReport:
    """What a period shows about the topology."""

    bound: Bound
    actor_wait: float | None
    """Fraction of the actors' time that they waited, in [0, 1]; None in serial."""
    learner_wait: float | None
    """Fraction of the learner's time that it waited, in [0, 1]; None in serial."""
    gain_max: float
    """What asynchrony can win here at most: a factor of serial's SPS, in [1, cores]."""
    sentence: str
    """What bounds the speed and what would help, for a person."""


def judge(spent: Mapping[str, float], wall_s: float, topology: Topology) -> BottleneckReport:
    """Say who waited for whom in a period of `wall_s` seconds, of which workers `spent` some on each name.

    Evaluations and checkpoints are left out. The actors wait for the learner meanwhile, as long as it takes or
    less; that much is taken off their waits, so that their share is told too low rather than too high.
    """
    acting, learning = spent.get("act", 0.0) + spent.get("env", 0.0), spent.get("learn", 0.0)
    if topology.runtime.runs_in_order:
        return _judge_serial(acting, learning, topology)
    aside = spent.get("evaluate", 0.0) + spent.get("checkpoint", 0.0)
    if topology.runtime.workers_learn:
        return _judge_hogwild(acting, learning, wall_s - aside, topology)
    waited = max(0.0, spent.get("wait/actor", 0.0) - topology.actors * aside)
    seen = _Seen(
        actor_wait=_share(waited, acting + waited),
        learner_wait=_share(spent.get("wait/learner", 0.0), learning + spent.get("wait/learner", 0.0)),
        busy=_busy_cores(acting, learning, wall_s - aside, topology),
        gain=gain_max(acting, learning, topology.actors, topology.cores, topology.learner_threads),
    )
    bound = _bound(seen, topology)
    sentence = f"{_LABELS[bound]}: {_advice(bound, seen, topology)}"
    return BottleneckReport(bound, seen.actor_wait, seen.learner_wait, seen.gain, sentence)


def gain_max(acting: float, learning: float, actors: int, cores: int, threads: int = 1) -> float:
    """Return how many times faster than serial the same work can be done at most.

    Serial takes T_act + T_learn seconds. No overlap takes less than T_act / actors, as an actor does one thing at a
    time; than T_learn, as learning steps follow each other; than (T_act + threads T_learn) / cores, as a core does one
    thing at a time, and the learner's threads take one each::

        gain_max = (T_act + T_learn) / max(T_act / actors, T_learn, (T_act + threads T_learn) / cores)

    That is at least 1 and at most `cores`. It is a limit, not a forecast: waking up, publishing, and the memory and
    caches that cores share all take their part.
    """
    serial, work = acting + learning, acting + threads * learning
    if serial <= 0:
        return 1.0
    return max(1.0, serial / max(acting / actors, learning, work / cores))


def lock_free_gain_max(topology: Topology) -> float:
    """Return how many times faster than one worker several of them can be: they wait for nobody, but cores."""
    return max(1.0, min(topology.actors, topology.cores / topology.learner_threads))


@dataclass(frozen=True)
class _Seen:
    """The numbers that a sentence is made of."""

    actor_wait: float
    learner_wait: float
    busy: float
    """Cores."""
    gain: float


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _busy_cores(acting: float, learning: float, seconds: float, topology: Topology) -> float:
    """Cores that were wanted on average; a learner wants one for each of its threads while it learns."""
    return _share(acting + topology.learner_threads * learning, seconds)


def _bound(seen: _Seen, topology: Topology) -> Bound:
    actors_wait, learner_waits = seen.actor_wait > WAITS_MUCH, seen.learner_wait > WAITS_MUCH
    if topology.max_lag == 0 or (actors_wait and learner_waits):
        return "lag"
    if actors_wait:
        return "learner"
    if learner_waits:
        return "actors"
    return "machine" if _no_core_is_idle(seen, topology) else "balance"


def _no_core_is_idle(seen: _Seen, topology: Topology) -> bool:
    return seen.busy >= ALL_BUSY * topology.cores


def _advice(bound: Bound, seen: _Seen, topology: Topology) -> str:
    if bound == "learner":
        return (
            f"actors wait {_percent(seen.actor_wait)} of the time; more actors or a larger {topology.lag_flag} will "
            f"not help; overlapping wins {_at_most(seen.gain)}"
        )
    if bound == "actors":
        return (
            f"the learner waits {_percent(seen.learner_wait)} of the time; {_more_actors(seen, topology)}; "
            f"{_at_most(seen.gain)}"
        )
    waits = f"(actors wait {_percent(seen.actor_wait)}, the learner {_percent(seen.learner_wait)})"
    if bound == "lag":
        overlap = "lets them overlap" if topology.max_lag == 0 else "may help"
        return f"the sides take turns {waits}; a larger {topology.lag_flag} {overlap}: {_at_most(seen.gain)}"
    if bound == "machine":
        return f"{_all_cores(topology.cores)} busy {waits}; only cheaper work helps; {_at_most(seen.gain)}"
    return f"neither side is ahead {waits}, {_busy_of(seen, topology)}; {_at_most(seen.gain)}"


def _more_actors(seen: _Seen, topology: Topology) -> str:
    if _no_core_is_idle(seen, topology):
        return f"{_all_cores(topology.cores)} busy: only a lighter env or policy helps"
    return f"more actors help while cores are idle ({_busy_of(seen, topology)})"


def _busy_of(seen: _Seen, topology: Topology) -> str:
    return f"{seen.busy:.1f} of {topology.cores} cores are busy"


def _all_cores(cores: int) -> str:
    return {1: "the only core is", 2: "both cores are"}.get(cores, f"all {cores} cores are")


def _at_most(gain: float) -> str:
    return f"at most {gain:.2f}x" + (" over serial here" if gain >= WORTH_IT else ": it does not pay")


def _judge_serial(acting: float, learning: float, topology: Topology) -> BottleneckReport:
    """In serial the number of actors is still open: take as many as there are cores."""
    gain = gain_max(acting, learning, topology.cores, topology.cores, topology.learner_threads)
    whole = acting + learning
    taken = (
        f"acting takes {_percent(_share(acting, whole))} and learning {_percent(_share(learning, whole))} of the time"
    )
    if gain < WORTH_IT:
        advice = f"asynchrony would not help this workload (at most {gain:.2f}x)"
    else:
        advice = f"--runtime processes can win at most {gain:.2f}x here"
    return BottleneckReport("serial", None, None, gain, f"{_LABELS['serial']}: {taken}; {advice}")


def _judge_hogwild(acting: float, learning: float, wall_s: float, topology: Topology) -> BottleneckReport:
    """Workers wait for nobody, so the gain can be as much as there are cores for them."""
    threads, workers, gain = topology.learner_threads, topology.actors, lock_free_gain_max(topology)
    whole = acting + learning
    busy = min(topology.cores, _share(acting + threads * learning, wall_s))  # evaluations may go on beside them
    taken = (
        f"{workers} worker{'s keep' if workers != 1 else ' keeps'} {busy:.1f} of {topology.cores} cores busy (acting "
        f"{_percent(_share(acting, whole))}, learning {_percent(_share(learning, whole))})"
    )
    if workers * threads > topology.cores:
        advice = f"there are more of them than cores: --workers {max(1, topology.cores // threads)} does as much"
    elif gain < WORTH_IT:
        advice = "one worker does what the serial runtime does, with another process on top"
    else:
        advice = f"{_at_most(gain)}, at the price of updates by others in between (gradient_staleness)"
    return BottleneckReport("hogwild", None, None, gain, f"{_LABELS['hogwild']}: {taken}; {advice}")
