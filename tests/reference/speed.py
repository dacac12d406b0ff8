"""Slow twin of the speed model: find the highest speed by bisection, from what each part does in one second."""

from __future__ import annotations

from collections.abc import Callable

from offbeat.metrics.speed_model import SpeedModel

SECOND = 1e6
"""In microseconds, the unit of the costs."""


def busy_times(model: SpeedModel, sps: float) -> dict[str, float]:
    """Return how long each part is busy in one second with `sps` env steps; 'cores' and 'machine' on average."""
    topology = model.topology
    acting, learning = sps * model.acting, sps * model.learning
    on_cores = (sps * model.acting_cpu + sps * model.learning_cpu) / topology.cores
    if topology.runtime.name == "serial":
        return {"the only thread": acting + learning}
    if topology.runtime.name == "hogwild":
        return {"workers": acting / topology.actors + learning / topology.actors, "cores": on_cores}
    return {"actors": acting / topology.actors, "learner": learning, "machine": on_cores}


def limit_sps(model: SpeedModel) -> float:
    """Return the most env steps of a second in which nothing is busy for longer than a second."""
    return _largest(lambda sps: max(busy_times(model, sps).values()) <= SECOND)


def turns_sps(model: SpeedModel) -> float:
    """Return the most env steps of a second in which first all actors act on the cores, and then the learner learns."""

    def fits(sps: float) -> bool:
        one_actor = sps / model.topology.actors * model.acting
        all_cores = sps * model.acting_cpu / model.topology.cores
        return max(one_actor, all_cores) + sps * model.learning <= SECOND

    return _largest(fits)


def _largest(fits: Callable[[float], bool]) -> float:
    """Return the largest number that fits, between 0 and 10^12."""
    low, high = 0.0, 1e12
    for _ in range(120):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
