from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbeat.core.errors import ConfigError
from offbeat.experiments import optuna_search
from offbeat.experiments.search import Choices, Over, Range, Search, refuse_duplicates

shares = st.floats(0, 1, exclude_max=True)


def test_a_grid_has_every_combination_once():
    search = Search("grid", {"b": Choices((1, 2, 3)), "a": Choices(("x", "y"))}, None)
    assert search.settings() == [{"a": a, "b": b} for a in "xy" for b in (1, 2, 3)]


OVER: Over = {
    "rate": Range(1e-4, 1e-2, "log"),
    "length": Range(8, 64, step=8, whole=True),
    "units": Choices(((16,), (32, 32))),
}


def test_random_samples_depend_on_seed_trial_number_and_key_alone():
    five = Search("random", OVER, 5, seed=3).settings()
    assert five[:2] == Search("random", OVER, 2, seed=3).settings()
    reversed_over = dict(reversed(OVER.items()))
    assert five == Search("random", reversed_over, 5, seed=3).settings()
    alone = Search("random", {"rate": OVER["rate"]}, 5, seed=3).settings()
    assert [each["rate"] for each in alone] == [each["rate"] for each in five]
    assert five != Search("random", OVER, 5, seed=4).settings()
    assert len({each["rate"] for each in five}) == 5


def test_a_random_search_has_no_settings_twice():
    over: Over = {"a": Choices((1, 2, 3)), "b": Choices(([8], [16], [8, 16]))}
    drawn = Search("random", over, 9).settings()
    assert sorted(drawn, key=str) == [{"a": a, "b": b} for a in (1, 2, 3) for b in ([16], [8, 16], [8])]
    assert Search("random", over, 20).settings() == drawn
    assert Search("random", over, 4).settings() == drawn[:4]
    many: Over = {"a": Choices(tuple(range(1000)))}
    assert len(Search("random", many, 1000).settings()) == 1000


def test_keys_are_sampled_independently_of_each_other():
    search = Search("random", {"a": OVER["rate"], "b": OVER["rate"]}, 5)
    assert all(values["a"] != values["b"] for values in search.settings())


@given(shares, st.integers(1, 30), st.integers(1, 50), st.booleans())
def test_sampled_integers_are_in_their_range(share, low, length, log):
    found = Range(low, low + length, "log" if log else "linear", whole=True).at(share)
    assert isinstance(found, int)
    assert low <= found <= low + length


@given(shares)
def test_sampled_numbers_with_a_step_lie_on_its_grid(share):
    found = Range(0.5, 0.9, step=0.1).at(share)
    assert found in (0.5, 0.6, 0.7, 0.8, 0.9)


def test_the_largest_number_that_is_checked_is_one_that_can_be_sampled():
    assert Range(0.5, 1.2, step=0.5).examples() == (0.5, 1.0)
    assert Range(0.5, 1.2).examples() == (0.5, 1.2)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "grid", [Range(100, 101, step=0.0125), Range(0.1, 1, step=1 / 3), Range(0, 1, step=1 / 7)], ids=str
)
def test_a_grid_of_numbers_with_many_digits_is_kept_and_optuna_accepts_its_numbers(grid):
    allowed = [grid.low + number * grid.step for number in range(100) if grid.low + number * grid.step <= grid.high]
    drawn = {grid.at(share) for share in np.linspace(0, 1, 1000, endpoint=False)}
    assert sorted(drawn) == pytest.approx(allowed, rel=1e-11)
    pytest.importorskip("optuna")
    told: list[tuple[dict[str, object], float]] = []
    for number in range(4):
        values = next(optuna_search.draws(Search("optuna", {"rate": grid}, 4), told, number))
        assert values["rate"] == pytest.approx(min(allowed, key=lambda each: abs(each - values["rate"])), rel=1e-11)
        told.append((values, 0.0))


@pytest.mark.parametrize("log", [False, True])
def test_integers_are_sampled_uniformly_on_their_scale(log):
    scale = Range(1, 4, "log" if log else "linear", whole=True)
    drawn = np.array([scale.at(share) for share in np.linspace(0, 1, 10_000, endpoint=False)])
    counts = np.array([(drawn == number).mean() for number in (1, 2, 3, 4)])
    edges = np.log(np.array([0.5, 1.5, 2.5, 3.5, 4.5]))
    expected = np.diff(edges) / (edges[-1] - edges[0]) if log else np.full(4, 0.25)
    assert counts == pytest.approx(expected, abs=1e-3)


def test_numbers_are_sampled_uniformly_on_a_log_scale():
    scale = Range(1e-4, 1e-2, "log")
    drawn = [scale.at(share) for share in (0.0, 0.25, 0.5, 0.75)]
    assert drawn == pytest.approx([1e-4, 10**-3.5, 1e-3, 10**-2.5], rel=1e-5)
    assert all(len(f"{number:.10g}".lstrip("0.").replace("e-05", "")) <= 6 for number in drawn)


def test_every_choice_is_sampled():
    choices = Choices(("a", "b", "c"))
    assert [choices.at(share) for share in (0.0, 0.3, 0.4, 0.9999)] == ["a", "a", "b", "c"]


def test_optuna_samples_in_the_ranges_and_resumes_as_if_uninterrupted():
    pytest.importorskip("optuna")
    search = Search("optuna", OVER, 20, seed=1)

    def searched(told: list[tuple[dict[str, object], float]], trials: int) -> list[tuple[dict[str, object], float]]:
        for number in range(len(told), trials):
            values = next(optuna_search.draws(search, told, number))
            told = [*told, (values, -abs(float(np.log10(values["rate"])) + 3))]
        return told

    told = searched([], 15)
    assert told == searched(searched([], 7), 15)
    for values, _ in told:
        assert 1e-4 <= values["rate"] <= 1e-2  # type: ignore[operator]
        assert values["length"] in range(8, 65, 8)
        assert values["units"] in OVER["units"].values  # type: ignore[union-attr]
    assert len({values["rate"] for values, _ in told}) == 15


def test_optuna_seldom_draws_values_with_which_trials_failed():
    pytest.importorskip("optuna")
    search = Search("optuna", {"rate": Range(0.0, 1.0)}, 50, seed=1)
    told: list[tuple[dict[str, object], float | None]] = [({"rate": 0.5 + 0.05 * number}, None) for number in range(10)]
    told += [({"rate": 0.1 * number}, 1.0) for number in range(5)]
    drawn = [next(optuna_search.draws(search, told, number))["rate"] for number in range(15, 35)]
    assert sum(rate > 0.5 for rate in drawn) <= 4


class Counted(int):
    """A number that counts its comparisons."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return super().__eq__(other)

    __hash__ = int.__hash__


def test_the_search_for_duplicates_compares_each_value_with_a_few_others_only():
    Counted.comparisons = 0
    for values in ([Counted(n) for n in range(1000)], [{"a": [Counted(n)]} for n in range(1000)]):
        refuse_duplicates("a.toml", "key", values)
    assert Counted.comparisons < 10_000


@pytest.mark.parametrize("value", [1, [1, [2.5]], {"a": [1], "b": {"c": 2}}], ids=["number", "list", "table"])
def test_a_value_that_is_there_twice_is_refused_whatever_its_type(value):
    with pytest.raises(ConfigError, match=r"key has .* twice"):
        refuse_duplicates("a.toml", "key", ["x", value, [2], {"a": 1}, value])
