"""The numbers of an episode are reduced to one, which is recorded in the row that ends the episode."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from offbeat.envs.contract import Outcome
from offbeat.envs.episode_infos import EpisodeInfos
from offbeat.envs.rows import empty_rows, rows_of

NAMES = ("x:last", "y", "x:sum", "x:max", "z:max")
COLUMNS, ROWS = 4, 60


def rows(seed: int, *, games: bool = False) -> list[Outcome]:
    """Random rows: numbers that are missing or infinite, ends, and reset rows after these, which have no numbers."""
    random, ended, made = np.random.default_rng(seed), np.zeros(COLUMNS, bool), []
    for _ in range(ROWS):
        row = empty_rows([], COLUMNS, NAMES)
        row.valid[:] = ~ended
        row.info[:] = np.where(random.random(row.info.shape) < 0.5, random.normal(size=row.info.shape), np.nan)
        row.info[random.random(row.info.shape) < 0.1] = math.inf
        row.info[ended] = np.nan
        row.terminated[:] = (random.random(COLUMNS) < 0.2) & ~ended
        row.truncated[:] = (random.random(COLUMNS) < 0.1) & ~ended & ~row.terminated
        ended = row.terminated | row.truncated
        made.append(row._replace(over=ended & (random.random(COLUMNS) < 0.5)) if games else row)
    return made


def slowly(made: list[Outcome]) -> NDArray[np.float64]:
    """What is recorded, [T, N, K], one number after the other."""
    recorded = np.full((ROWS, COLUMNS, len(NAMES)), np.nan)
    for column in range(COLUMNS):
        for index, name in enumerate(NAMES):
            so_far: list[float] = []
            for time, row in enumerate(made):
                number = float(row.info[column, index])
                if ":" not in name:
                    recorded[time, column, index] = number
                    continue
                so_far += [number] if math.isfinite(number) else []
                if row.ended[column]:
                    reduce: Any = {"last": lambda numbers: numbers[-1], "sum": sum, "max": max}[name.partition(":")[2]]
                    recorded[time, column, index] = reduce(so_far) if so_far else np.nan
                    so_far = []
    return recorded


@pytest.mark.parametrize("games", [False, True])
@pytest.mark.parametrize("groups", [(4,), (1, 3)])
def test_the_row_that_ends_an_episode_has_what_its_numbers_reduce_to(groups, games):
    made, infos = rows(0, games=games), EpisodeInfos(NAMES, COLUMNS)
    parts = [slice(sum(groups[:index]), sum(groups[: index + 1])) for index in range(len(groups))]
    recorded = [np.concatenate([infos.add_outcome(rows_of(row, part), part) for part in parts]) for row in made]
    expected = slowly(made)
    np.testing.assert_allclose(recorded, expected)
    assert np.isfinite(expected[:, :, 0]).sum() > 5


def test_the_rows_of_the_envs_are_not_changed():
    made, twins, infos = rows(1), rows(1), EpisodeInfos(NAMES, COLUMNS)
    for row, twin in zip(made, twins, strict=True):
        infos.add_outcome(row, slice(None))
        np.testing.assert_array_equal(row.info, twin.info)


def test_unfinished_episodes_continue_from_a_state():
    made = rows(2)
    whole, first = EpisodeInfos(NAMES, COLUMNS), EpisodeInfos(NAMES, COLUMNS)
    for row in made[:30]:
        whole.add_outcome(row, slice(None))
        first.add_outcome(row, slice(None))
    state = first.state()
    assert state.keys() == {"info/x_last", "info/x_sum", "info/x_max", "info/z_max"}
    same = EpisodeInfos(NAMES, COLUMNS)
    same.restore(state)
    for row in made[30:]:
        np.testing.assert_array_equal(same.add_outcome(row, slice(None)), whole.add_outcome(row, slice(None)))
