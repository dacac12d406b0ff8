"""A search by Optuna: it chooses the next trial from the results of earlier ones.

The experiment's directory is the only storage: each call adds all earlier trials to a new study. Its random stream is
keyed by the trial's number. So an interrupted search continues as if it had not been interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from offbeat.core.errors import ConfigError
from offbeat.core.seeding import derive_seed
from offbeat.experiments.pruning_rule import Pruned
from offbeat.experiments.search import Choices, Range, Search, Values


def require_optuna() -> None:
    """Raise ConfigError if Optuna is not installed."""
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise ConfigError(
            'method is optuna, which is not installed: run pip install "offbeat[optuna]", or write method = "random"'
        ) from None


def draws(search: Search, scored: Sequence[tuple[Values, float | Pruned | None]], number: int) -> Iterator[Values]:
    """Yield the values that Optuna draws for the next trial: the first ones, then others in their place, without end.

    Args:
        search: The search space.
        scored: Values and mean final return of each earlier trial, by number. One that was pruned is worse than all
            that were not, and None, of a trial that failed, is worse than every other result.
        number: Number of the next trial.
    """
    import optuna
    from optuna.trial import TrialState

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=derive_seed(search.seed, "search/optuna", number))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    distributions = {key: _distribution(search.over[key]) for key in sorted(search.over)}
    for values, score in scored:
        params = {key: _to_optuna(search.over[key], value) for key, value in values.items()}
        given: dict[str, Any] = {"state": TrialState.PRUNED}  # also of one that failed: the sampler ignores FAIL
        if isinstance(score, Pruned):
            given["intermediate_values"] = {score.env_steps: score.best_return}
        elif score is not None:
            given = {"state": TrialState.COMPLETE, "value": score}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, **given))
    while True:
        drawn = study.ask(distributions).params
        yield {key: _from_optuna(search.over[key], drawn[key]) for key in distributions}


def _distribution(values: Choices | Range) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(values, Choices):  # by index: Optuna does not support lists as choices
        return CategoricalDistribution(tuple(range(len(values.values))))
    if values.step is not None:  # by the number of steps: a range that a rounded step does not divide loses its end
        return IntDistribution(0, values.place(values.highest))
    log = values.scale == "log"
    if values.whole:
        return IntDistribution(int(values.low), int(values.high), log=log)
    return FloatDistribution(values.low, values.high, log=log)


def _to_optuna(values: Choices | Range, value: Any) -> Any:
    if isinstance(values, Choices):
        return values.values.index(value)
    return value if values.step is None else values.place(value)


def _from_optuna(values: Choices | Range, value: Any) -> Any:
    if isinstance(values, Choices):
        return values.values[value]
    return values.rounded(value if values.step is None else values.low + value * values.step)
