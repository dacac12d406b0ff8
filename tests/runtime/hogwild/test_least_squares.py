"""Where the solution is known, lock-free learners find it, and one alone does what a learner by itself does."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from tests.reference.least_squares import (
    COLUMNS,
    RATE,
    Case,
    LeastSquares,
    Problem,
    Solvers,
    solve,
    solvers,
)

from offbeat.workers.updates import Updates

COUNT = 500
CASES, CASES_OF_THREE = (
    [Case(*case, COUNT) for case in product(workers, (False, True), (False, True))] for workers in ((1, 2), (3,))
)


@pytest.fixture(scope="module")
def pool():
    with solvers(CASES) as made:
        yield made


@pytest.fixture(scope="module")
def pool_of_three():
    with solvers(CASES_OF_THREE) as made:
        yield made


@cache
def alone() -> np.ndarray:
    """Return what updates in this process, with nothing shared, make of it."""
    least_squares = LeastSquares()
    solve(Updates(least_squares.as_algorithm()), Problem(), 0, COUNT)
    return least_squares.line.w.detach().numpy().astype(np.float64)


def test_updates_in_one_process_equal_those_of_a_plain_loop_with_torchs_adam():
    problem, w = Problem(), torch.zeros(COLUMNS, requires_grad=True)
    adam = torch.optim.Adam([w], eps=1e-8)
    for number in range(COUNT):
        minibatch = problem.minibatch((0, number))
        adam.param_groups[0]["lr"] = RATE * (1 - number / COUNT)
        adam.zero_grad()
        loss = (minibatch["x"] @ w - minibatch["y"]).square().mean() / 2
        torch.autograd.backward(loss)
        adam.step()
    np.testing.assert_allclose(alone(), w.detach().numpy(), atol=1e-5)
    np.testing.assert_allclose(alone(), problem.solution(), atol=1e-3)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_lock_free_steps_converge_to_the_least_squares_solution(pool: Solvers, case: Case):
    assert_solved(pool, case)


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES_OF_THREE, ids=str)
def test_lock_free_steps_of_three_workers_converge_to_the_solution(pool_of_three: Solvers, case: Case):
    assert_solved(pool_of_three, case)


def assert_solved(pool: Solvers, case: Case) -> None:
    solved = pool.solve(case)
    np.testing.assert_allclose(solved.w, Problem().solution(), atol=1e-3)
    assert solved.updates == [COUNT] * case.workers, "each update was counted once"
    lags = [metrics["gradient_staleness_max"] for metrics in solved.metrics]
    if case.workers == 1:
        np.testing.assert_array_equal(solved.w, alone())
        assert lags == [0]
    else:
        assert max(lags) > 0, "none was at work while another was"
        assert min(metrics["gradient_staleness_min"] for metrics in solved.metrics) >= 0
        assert (solved.w != alone()).any()
