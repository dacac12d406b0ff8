"""A search by Optuna: it is told what earlier trials have come to, and asked for the next.

There is no other store than the experiment itself: each time, Optuna is told all finished trials anew, and its
sampler's random stream is keyed by the trial's number. So a search that was interrupted goes on as if it had not been.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from offbeat.core.errors import ConfigError
from offbeat.core.seeding import derive_seed
from offbeat.experiments.search import Choices, Range, Search, Values


def require_optuna() -> None:
    """Refuse a search by Optuna where it is not installed.

    Raises:
        ConfigError: with what to type.
    """
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise ConfigError(
            'method is optuna, which is not installed: run pip install "offbeat[optuna]", or write method = "random"'
        ) from None


def ask(search: Search, whole: Collection[str], scored: Sequence[tuple[Values, float]], number: int) -> Values:
    """Return the values that Optuna would try next.

    Args:
        search: what is searched over.
        whole: keys that take whole numbers alone.
        scored: values and mean final return of each finished trial, by number.
        number: of the trial to come.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=derive_seed(search.seed, "search/optuna", number))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    distributions = {key: _distribution(search.over[key], key in whole) for key in sorted(search.over)}
    for values, score in scored:
        inner = {key: _inner(search.over[key], value) for key, value in values.items()}
        study.add_trial(optuna.trial.create_trial(params=inner, distributions=distributions, value=score))
    asked = study.ask(distributions).params
    return {key: _outer(search.over[key], asked[key], key in whole) for key in distributions}


def _distribution(values: Choices | Range, whole: bool) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(values, Choices):  # by position: Optuna knows no lists
        return CategoricalDistribution(tuple(range(len(values.values))))
    log = values.scale == "log"
    if whole:
        return IntDistribution(int(values.low), int(values.high), log=log, step=int(values.step or 1))
    return FloatDistribution(values.low, values.high, log=log, step=values.step)


def _inner(values: Choices | Range, value: Any) -> Any:
    return values.values.index(value) if isinstance(values, Choices) else value


def _outer(values: Choices | Range, value: Any, whole: bool) -> Any:
    return values.values[value] if isinstance(values, Choices) else values.tidy(value, whole=whole)
